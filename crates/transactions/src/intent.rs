//! `atp.intent.v1`: a signed, time-limited permission, read strictly and kept as it came.
//!
//! Invariant: an [`SignedIntent`] satisfies every rule that can be checked without a clock, a key registry or a ledger. Those are
//! asked for by the checks below, in the order that the operation demands.
//! Unknown members are signed, kept and ignored.

mod read;
#[cfg(test)]
mod tests;

use consign_kernel::ids::{DAY_US, Micros, SECOND_US};
use serde::Serialize;

use crate::document::{AtpDocument, AtpPublicKey, Signature};
use crate::money::{Cents, Currency, SpendCap};
use crate::problem::{ExpiredReason, Problem};

pub const TYPE: &str = "atp.intent.v1";

/// How far an intent may reach into the future.
pub const LIFE_MAX_US: i64 = 7 * DAY_US;
/// How far the clocks of agent and site may be apart where the operator says nothing else.
pub const FRESHNESS_S: u32 = 300;
pub const EXECUTIONS_MAX: u16 = 1_000;
pub const PRECONDITIONS_MAX: usize = 16;

pub(crate) const NOT_THE_AGENTS: &str = "it is not the agent_key's over this body";

/// A permission to act, as the agent signed it.
#[derive(Clone, Debug)]
pub struct SignedIntent {
    /// Chosen by the agent.
    pub intent_id: String,
    pub site: String,
    /// What the site calls itself in its own books.
    pub site_id: Option<String>,
    pub agent_id: Option<String>,
    pub agent_key: AtpPublicKey,
    /// Who must sign the authorization instead of the agent.
    pub principal_key: Option<AtpPublicKey>,
    pub user_id: Option<String>,
    pub purpose: String,
    pub scope: IntentScope,
    /// What an execution that names no amount is for, and without a total the most that one may be for.
    pub amount: Option<Cents>,
    pub currency: Currency,
    pub spend_cap: SpendCap,
    pub max_executions: u16,
    pub nonce: String,
    pub issued_at: Micros,
    pub expires_at: Micros,
    pub action_dedup_key: Option<String>,
    /// The intents that must be settled before this one is authorized.
    pub preconditions: Vec<String>,
    pub rail: Option<RailChoice>,
    document: AtpDocument,
}

/// What an intent allows to be done, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IntentScope {
    pub actions: Vec<ScopeAction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<Vec<String>>,
}

macro_rules! actions {
    ($($name:ident => $word:literal,)+) => {
        /// Something an agent may be allowed to do.
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
    CallbackMessage => "message",
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

/// How the money shall move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailChoice {
    pub name: String,
    pub payment_method: Option<String>,
    pub capture: Capture,
}

/// Whether a hold becomes a payment by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    #[default]
    Automatic,
    Manual,
}

impl SignedIntent {
    /// The document it was read from; its bytes are what is stored.
    pub fn document(&self) -> &AtpDocument {
        &self.document
    }

    /// Ties a receipt to exactly this permission.
    pub fn hash(&self) -> String {
        self.document.hash()
    }

    /// Whose repetition of an action counts: the agent's, for the user that it names. A user's name alone is what any agent
    /// may write, and would let a stranger take the actions of somebody else's user.
    pub fn dedup_subject(&self) -> String {
        match &self.user_id {
            // A printed key has no space, so no two pairs run together.
            Some(user_id) => format!("{} {user_id}", self.agent_key),
            None => self.agent_key.to_string(),
        }
    }

    /// What one execution may cost at most: the amount that was signed, unless more was signed for all of them together than
    /// that amount for each.
    pub fn amount_max(&self) -> Option<Cents> {
        let more = self.spend_cap.limit() > self.each_time();
        self.amount.filter(|_| !more)
    }

    /// What all executions together may cost: the total that was signed, or else the signed amount for each of them.
    /// None if neither was signed.
    pub fn spend_max(&self) -> Option<Cents> {
        self.spend_cap.limit().or(self.each_time())
    }

    /// The signed amount for each execution there may be.
    fn each_time(&self) -> Option<Cents> {
        self.amount.map(|each| each.times(self.max_executions))
    }

    /// Whether an execution may cost this much, besides what is spent or promised to executions under way.
    pub fn allows(&self, committed: Cents, amount: Cents) -> bool {
        let within =
            |limit: Option<Cents>, amount: Cents| limit.is_none_or(|limit| amount <= limit);
        let total = committed.plus(amount);
        within(self.amount_max(), amount)
            && total.is_some_and(|total| within(self.spend_max(), total))
    }

    /// Where nobody signs what an execution costs, the intent must say it.
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

    /// For an intent that is presented for the first time: those of before may name anything.
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

    /// It is over when its time is reached, not only when it has passed.
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

    /// Whether the body of an authorize request may authorize this intent.
    ///
    /// It is signed by the principal where the intent names one, else by the agent. In place of a signature over the body an
    /// agent may send the one over its intent, in a body that claims nothing else; a principal signs each time.
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
