//! `atp.intent.v1`: a signed permission with a time limit, parsed strictly and stored as sent.
//!
//! Invariant: a [`SignedIntent`] satisfies every rule that needs no clock, key registry or ledger. The checks below cover the
//! rest, in the order that each operation requires.
//! Unknown members are signed, stored and ignored.

mod read;
#[cfg(test)]
mod tests;

use consign_kernel::ids::{DAY_US, Micros, SECOND_US};
use serde::Serialize;

use crate::document::{AtpDocument, AtpPublicKey, Signature};
use crate::money::{Cents, Currency, SpendCap};
use crate::problem::{ExpiredReason, Problem};

pub const TYPE: &str = "atp.intent.v1";

/// The longest life of an intent.
pub const LIFE_MAX_US: i64 = 7 * DAY_US;
/// The default for the allowed difference between the clocks of agent and site.
pub const FRESHNESS_S: u32 = 300;
pub const EXECUTIONS_MAX: u16 = 1_000;
pub const PRECONDITIONS_MAX: usize = 16;

pub(crate) const NOT_THE_AGENTS: &str = "the agent_key did not sign this body";

/// A permission to act, as the agent signed it.
#[derive(Clone, Debug)]
pub struct SignedIntent {
    /// Chosen by the agent.
    pub intent_id: String,
    pub site: String,
    /// The site's own name for itself.
    pub site_id: Option<String>,
    pub agent_id: Option<String>,
    pub agent_key: AtpPublicKey,
    /// The key that must sign the authorization instead of the agent's.
    pub principal_key: Option<AtpPublicKey>,
    pub user_id: Option<String>,
    pub purpose: String,
    pub scope: IntentScope,
    /// The default amount of an execution; without a total it is also the maximum for one.
    pub amount: Option<Cents>,
    pub currency: Currency,
    pub spend_cap: SpendCap,
    pub max_executions: u16,
    pub nonce: String,
    pub issued_at: Micros,
    pub expires_at: Micros,
    pub action_dedup_key: Option<String>,
    /// Intents that must be settled before this one is authorized.
    pub preconditions: Vec<String>,
    pub rail: Option<RailChoice>,
    document: AtpDocument,
}

/// The allowed actions and domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IntentScope {
    pub actions: Vec<ScopeAction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<String>>,
}

macro_rules! actions {
    ($($name:ident => $word:literal,)+) => {
        /// An action that an intent may allow.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ScopeAction { $($name,)+ }

        impl ScopeAction {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

actions! {
    Read => "read",
    Search => "search",
    Compare => "compare",
    Select => "select",
    AddToCart => "add_to_cart",
    Checkout => "checkout",
    SubmitForm => "submit_form",
    Book => "book",
    Cancel => "cancel",
    Message => "message",
    Pay => "pay",
}

impl ScopeAction {
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|action| action.word() == word)
    }
}

/// How the money is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailChoice {
    pub name: String,
    pub payment_method: Option<String>,
    pub capture: Capture,
}

/// Whether a hold is captured automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    #[default]
    Automatic,
    Manual,
}

impl SignedIntent {
    /// The document it was parsed from; its bytes are stored.
    pub fn document(&self) -> &AtpDocument {
        &self.document
    }

    /// Ties a receipt to exactly this permission.
    pub fn hash(&self) -> String {
        self.document.hash()
    }

    /// The subject of action deduplication: the agent together with the user that it names. Any agent can write any user's
    /// name, so the name alone would let an agent claim the actions of another agent's user.
    pub fn dedup_subject(&self) -> String {
        match &self.user_id {
            // A printed key has no space, so different pairs cannot collide.
            Some(user_id) => format!("{} {user_id}", self.agent_key),
            None => self.agent_key.to_string(),
        }
    }

    /// The maximum for one execution: the signed amount, unless the signed total is more than that amount for each execution.
    pub fn amount_max(&self) -> Option<Cents> {
        let more = self.spend_cap.limit() > self.each_time();
        self.amount.filter(|_| !more)
    }

    /// The maximum for all executions together: the signed total, or else the signed amount times the executions. None if
    /// neither was signed.
    pub fn spend_max(&self) -> Option<Cents> {
        self.spend_cap.limit().or(self.each_time())
    }

    /// The signed amount times the executions.
    fn each_time(&self) -> Option<Cents> {
        self.amount.map(|each| each.times(self.max_executions))
    }

    /// Whether an execution of this amount is allowed in addition to the spent and reserved amount.
    pub fn allows(&self, committed: Cents, amount: Cents) -> bool {
        let within =
            |limit: Option<Cents>, amount: Cents| limit.is_none_or(|limit| amount <= limit);
        let total = committed.plus(amount);
        within(self.amount_max(), amount)
            && total.is_some_and(|total| within(self.spend_max(), total))
    }

    /// If requests are not signed, the intent must state an amount.
    pub fn check_bounded(&self) -> Result<(), Problem> {
        let reason = "is missing, and so is max_spend_cents; this site takes unsigned requests, so the intent must say what may be spent";
        ensure(
            self.spend_max().is_some(),
            Problem::field("amount_cents", reason),
        )
    }

    pub fn capture(&self) -> Capture {
        self.rail
            .as_ref()
            .map(|rail| rail.capture)
            .unwrap_or_default()
    }

    /// Whether the agent that it names signed it.
    pub fn check_signature(&self) -> Result<(), Problem> {
        let problem = Problem::InvalidSignature {
            reason: NOT_THE_AGENTS,
        };
        ensure(self.document.is_signed_by(&self.agent_key), problem)
    }

    pub fn check_site(&self, site: &str) -> Result<(), Problem> {
        ensure(self.site == site, Problem::SiteMismatch)
    }

    /// For an intent that is presented for the first time; stored ones may have any currency code.
    pub fn check_currency(&self) -> Result<(), Problem> {
        let code = self.currency;
        let reason = format!("{code} is not a currency of ISO 4217 that payments are made in");
        ensure(
            code.minor_digits().is_some(),
            Problem::field("currency", reason),
        )
    }

    /// For an intent that is presented for the first time.
    pub fn check_freshness(&self, now: Micros, window_s: u32) -> Result<(), Problem> {
        let apart = now.0.abs_diff(self.issued_at.0);
        ensure(
            apart <= u64::from(window_s) * SECOND_US.unsigned_abs(),
            Problem::TimestampOutOfWindow { window_s },
        )
    }

    /// An intent is expired at the very instant of its expiry.
    pub fn is_expired(&self, now: Micros) -> bool {
        now >= self.expires_at
    }

    pub fn check_unexpired(&self, now: Micros) -> Result<(), Problem> {
        let problem = Problem::IntentExpired {
            expires_at: self.expires_at,
            reason: ExpiredReason::Time,
        };
        ensure(!self.is_expired(now), problem)
    }

    /// Whether the body of an authorize request authorizes this intent.
    ///
    /// The principal signs if the intent names one, otherwise the agent. Instead of a signature over the body, an agent may
    /// send the signature of its intent, in a body with no other claims; a principal signs each time.
    pub fn check_authorization(&self, body: &AtpDocument) -> Result<(), Problem> {
        let signer = self.principal_key.as_ref().unwrap_or(&self.agent_key);
        let repeats = || match (body.signature(), self.document.signature()) {
            (Signature::Claimed(given), Signature::Claimed(own)) => {
                self.principal_key.is_none() && given.equals(own) && !body.names_its_operation()
            }
            _ => false,
        };
        let reason = "it is not that of the key that may authorize this intent";
        ensure(
            body.is_signed_by(signer) || repeats(),
            Problem::InvalidSignature { reason },
        )
    }
}

fn ensure(holds: bool, problem: Problem) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err(problem) }
}
