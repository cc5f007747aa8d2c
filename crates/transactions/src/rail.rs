//! Payment rails, which move the money: one trait with two phases.
//!
//! A payment is prepared and its id stored before money can move; then it is confirmed. A payment can succeed once and a
//! cancelled one never can, so correctness does not depend on a rail that honours idempotency keys.
//! Invariant: a rail reports facts and guesses nothing. An answer that is late or not understood is [`RailOutcome::Unknown`],
//! and the rail is asked again later.

#[cfg(feature = "stripe-charges")]
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

#[cfg(feature = "stripe-charges")]
pub use charges::ChargesRail;
pub use client::{RailSetupError, TIMEOUT};
pub use http::HttpRail;
pub use manual::{ManualRail, ReportedStatus};
pub use null::NullRail;
pub use stripe::StripeRail;
pub use worker::{Options as WorkerOptions, WorkerRail};

/// A boxed future of a rail's answer. It never fails, because an unknown outcome is an answer.
pub type RailFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A payment to make. It is the same for every call, before and after a crash.
#[derive(Clone, Debug)]
pub struct Charge {
    pub intent_id: String,
    pub transaction_id: String,
    /// The reference by which the rail knows it; sent as metadata and, with a suffix, as idempotency key.
    pub reference: RailReference,
    pub amount: Cents,
    pub currency: Currency,
    pub action: Option<String>,
    pub summary: Option<String>,
    /// As the intent names it.
    pub payment_method: Option<String>,
    pub capture: Capture,
    /// How many refunds the rail has finally refused.
    pub refunds_refused: u32,
}

impl Charge {
    /// The reference by which the rail knows the refund.
    pub fn refund_reference(&self) -> String {
        self.reference.refund(self.refunds_refused)
    }
}

/// A rail's report on a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailReport {
    pub outcome: RailOutcome,
    /// The rail's id of the payment, once it exists.
    pub payment_id: Option<String>,
    /// Why it failed, as reported by the rail.
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

    /// A report with an unusable id is treated as unknown.
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

/// The result of fencing a payment off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// It can never succeed, or does not exist.
    Cancelled,
    /// Too late: it has succeeded or can no longer be stopped. Look it up again.
    TooLate,
    Unknown,
}

impl Fenced {
    /// The combined result for two payments of which neither may succeed.
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::TooLate, _) | (_, Self::TooLate) => Self::TooLate,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Cancelled, Self::Cancelled) => Self::Cancelled,
        }
    }
}

/// The result of a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundOutcome {
    /// All of it is refunded, now or before.
    Done {
        refund_id: Option<String>,
    },
    /// In progress; ask again.
    Pending,
    /// The rail will never refund it.
    Refused(RailFailure),
    Unknown,
    /// The worker is lost, and no later check can reveal the outcome.
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

/// The subject of an authentic callback. It is a hint: the receiver asks the rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackHint {
    /// The same for every delivery of one event.
    pub event_id: String,
    /// The payment id or reference to look up; none if the event is not relevant.
    pub about: Option<String>,
}

impl CallbackHint {
    /// An id that is too long is refused.
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

/// Limit on a rail's ids of payments, refunds and events: they are stored as keys and shown publicly.
const NAME_CHARS_MAX: usize = 255;

fn is_name(text: &str) -> bool {
    text.chars().take(NAME_CHARS_MAX + 1).count() <= NAME_CHARS_MAX
}

/// A callback as received.
#[derive(Clone, Copy, Debug)]
pub struct CallbackMessage<'a> {
    /// Headers with lower-case names.
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
    pub now: consign_kernel::ids::Micros,
}

impl<'a> CallbackMessage<'a> {
    /// None also if the header occurs several times, because that is ambiguous.
    fn header(&self, name: &str) -> Option<&'a str> {
        let mut values = self.headers.iter().filter(|(given, _)| given == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value.as_str())
    }
}

/// Implementors guarantee: every call ends within the rail's time limit; the payment of one charge succeeds at most once,
/// however often and in whatever order the methods are called.
pub trait Rail: Send + Sync + fmt::Debug + 'static {
    fn name(&self) -> &'static str;

    /// Creates the payment without moving money. Reports [`RailOutcome::Unconfirmed`] with its id, or what else it found.
    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport>;

    /// Confirms the prepared payment.
    fn confirm<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport>;

    /// Captures a hold.
    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport>;

    /// Reports on the payment with this id, or else on the charge's reference. Changes nothing.
    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport>;

    /// Ensures that the payment never succeeds: the one with this id, and any other under the charge's reference.
    fn cancel<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, Fenced>;

    /// Refunds all of it, once: an earlier refund under this reference is found and not repeated.
    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        payment_id: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome>;

    /// Verifies and parses a callback. A rail without callbacks refuses all.
    fn parse_callback(&self, message: CallbackMessage<'_>) -> Result<CallbackHint, Problem>;

    /// Refuses an amount that this rail would round or misread.
    fn check_amount(&self, _amount: Cents, _currency: Currency) -> Result<(), Problem> {
        Ok(())
    }
}
