//! What really moves the money: one trait, two phases.
//!
//! A payment is prepared, and its id stored, before anything can move; then it is confirmed. A payment can succeed once and a
//! cancelled one never can, so nothing rests on a rail that honours idempotency keys.
//! Invariant: a rail reports what it was told and guesses nothing. Whatever it does not understand, or hears too late, is
//! [`RailOutcome::Unknown`], and asked for again later.

mod charges;
mod client;
pub mod http;
mod manual;
mod null;
pub mod standard_webhooks;
pub mod stripe;
#[cfg(test)]
mod tests;
mod worker;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::intent::Capture;
use crate::key::RailReference;
use crate::money::{Cents, Currency};
use crate::outcome::RailOutcome;
use crate::problem::Problem;

pub use charges::ChargesRail;
pub use client::{RailSetupError, TIMEOUT};
pub use http::HttpRail;
pub use manual::{ManualRail, ReportedStatus};
pub use null::NullRail;
pub use stripe::StripeRail;
pub use worker::{Options as WorkerOptions, WorkerRail};

/// A boxed answer of a rail; it never fails, because not knowing is an answer too.
pub type RailFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is to be paid: the same whenever it is asked about, before and after a crash.
#[derive(Clone, Debug)]
pub struct Charge {
    pub intent_id: String,
    pub transaction_id: String,
    /// The name under which the rail knows it; to be sent as metadata and, with a suffix, as idempotency key.
    pub reference: RailReference,
    pub amount: Cents,
    pub currency: Currency,
    pub action: Option<String>,
    pub summary: Option<String>,
    /// As the intent names it.
    pub payment_method: Option<String>,
    pub capture: Capture,
    /// How many refunds of it the rail has refused for good.
    pub refunds_refused: u32,
}

impl Charge {
    /// The name under which the rail knows the refund.
    pub fn refund_reference(&self) -> String {
        self.reference.refund(self.refunds_refused)
    }
}

/// What a rail says about a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailReport {
    pub outcome: RailOutcome,
    /// The rail's own name of the payment, as soon as there is one.
    pub payment_id: Option<String>,
    /// Why it failed, in the rail's words.
    pub failure: Option<RailFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RailFailure {
    pub code: String,
    pub message: String,
}

impl RailReport {
    pub fn of(outcome: RailOutcome) -> Self {
        Self {
            outcome,
            payment_id: None,
            failure: None,
        }
    }

    /// What bears no proper name is not understood.
    #[must_use]
    pub fn with_payment_id(self, payment_id: impl Into<String>) -> Self {
        let payment_id = payment_id.into();
        if !is_name(&payment_id) {
            return Self::of(RailOutcome::Unknown);
        }
        Self {
            payment_id: Some(payment_id),
            ..self
        }
    }

    #[must_use]
    pub fn with_failure(self, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            failure: Some(client::failure(&code.into(), &message.into())),
            ..self
        }
    }
}

/// What came of the attempt to fence a payment off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// It can never succeed any more, or there is none.
    Cancelled,
    /// Too late: it has succeeded, or is past the point where it can be stopped. Look again.
    TooLate,
    Unknown,
}

impl Fenced {
    /// Of two payments that both must never succeed.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::TooLate, _) | (_, Self::TooLate) => Self::TooLate,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Cancelled, Self::Cancelled) => Self::Cancelled,
        }
    }
}

/// What came of a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundOutcome {
    /// All of it is paid back, now or before.
    Done {
        refund_id: Option<String>,
    },
    /// Under way; ask again.
    Pending,
    /// The rail will never pay it back.
    Refused(RailFailure),
    Unknown,
    /// Whoever could have said so is gone, and no look will tell more.
    Lost,
}

impl RefundOutcome {
    fn done(refund_id: Option<String>) -> Self {
        if refund_id.as_deref().is_none_or(is_name) {
            Self::Done { refund_id }
        } else {
            Self::Unknown
        }
    }
}

/// What a genuine message of a rail is about. It is a hint: whoever gets it asks the rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackHint {
    /// The same for every delivery of one event.
    pub event_id: String,
    /// The payment or the reference to look for; none if the event is of no concern.
    pub about: Option<String>,
}

impl CallbackHint {
    /// A name that is too long is nobody's.
    fn new(event_id: String, about: Option<String>) -> Result<Self, Problem> {
        if !is_name(&event_id) {
            let reason = format!("must have at most {NAME_CHARS_MAX} characters");
            return Err(Problem::field("id", reason));
        }
        Ok(Self {
            event_id,
            about: about.filter(|about| is_name(about)),
        })
    }
}

/// Of payments, refunds and events, as a rail calls them: they are kept as keys and shown to everybody.
const NAME_CHARS_MAX: usize = 255;

fn is_name(text: &str) -> bool {
    text.chars().take(NAME_CHARS_MAX + 1).count() <= NAME_CHARS_MAX
}

/// A message as it came.
#[derive(Clone, Copy, Debug)]
pub struct CallbackMessage<'a> {
    /// Header by its name in lower case.
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
    pub now: consign_kernel::ids::Micros,
}

impl<'a> CallbackMessage<'a> {
    /// None as well if there are several, because it would be anybody's guess which one was meant.
    fn header(&self, name: &str) -> Option<&'a str> {
        let mut values = self.headers.iter().filter(|(given, _)| given == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value.as_str())
    }
}

/// Implementors guarantee: every call ends within the rail's time limit; a payment of one charge succeeds at most once
/// however often and in whatever order these are called.
pub trait Rail: Send + Sync + fmt::Debug + 'static {
    fn name(&self) -> &'static str;

    /// Makes the payment without moving anything. Reports [`RailOutcome::Unconfirmed`] with its id; or what else it found.
    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport>;

    /// Lets the prepared payment happen.
    fn confirm<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport>;

    /// Takes money that is held.
    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport>;

    /// What is known of the payment, by its id or else by the charge's reference. Changes nothing.
    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport>;

    /// Sees to it that the payment never succeeds: the one with this id, and any other under the charge's reference.
    fn cancel<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, Fenced>;

    /// Pays all of it back, once: what was refunded before under this reference is found, not repeated.
    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome>;

    /// Whether a message is the rail's, and what it is about. A rail without messages refuses all.
    fn parse_callback(&self, message: CallbackMessage<'_>) -> Result<CallbackHint, Problem>;

    /// Refuses what this rail could only pay by rounding, or would take for another amount.
    fn check_amount(&self, _amount: Cents, _currency: Currency) -> Result<(), Problem> {
        Ok(())
    }
}
