//! Stripe's payment intents: prepared, named, and only then confirmed.
//!
//! Invariant: nothing is confirmed but a payment whose id the caller knows, and so has stored. A payment that nobody named, such
//! as one made just before a crash, has therefore moved nothing: it is found by its metadata, or else replaced without harm.
//! Idempotency keys are sent because Stripe asks for them; nothing rests on their being honoured.

mod account;
mod api;
mod payment;
mod refund;
mod units;

use std::fmt;
use std::time::Duration;

use super::client::RailSetupError;
use super::{
    CallbackHint, CallbackMessage, Charge, Fenced, Rail, RailFuture, RailReport, RefundOutcome,
};
use crate::callback::StripeSecrets;
use crate::intent::Capture;
use crate::money::{Cents, Currency};
use crate::outcome::RailOutcome;
use crate::problem::Problem;

pub(super) use account::{StripeAccount, StripeObject, path_of};
pub(super) use api::{ListItem, StripeReply};
use payment::PaymentIntent;
pub(super) use payment::difference;
pub(super) use units::check as check_amount;

pub const BASE: &str = "https://api.stripe.com";

pub struct Options {
    /// [`BASE`], or a stand-in for tests.
    pub base: String,
    pub secret: String,
    pub webhook_secrets: StripeSecrets,
    /// For one operation, however many calls it takes.
    pub timeout: Duration,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("base", &self.base)
            .field("webhook_secrets", &self.webhook_secrets)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct StripeRail {
    account: StripeAccount,
    /// What kinds of payment methods an intent may name.
    methods: Vec<String>,
}

impl StripeRail {
    /// Takes cards.
    pub fn new(options: Options) -> Result<Self, RailSetupError> {
        Ok(Self {
            account: StripeAccount::new(options)?,
            methods: vec!["card".to_owned()],
        })
    }

    /// Takes these kinds of payment methods, by Stripe's names. They are told explicitly, because otherwise Stripe demands an
    /// address to send the payer back to, and no payer is there.
    #[must_use]
    pub fn accepting(self, methods: impl IntoIterator<Item = String>) -> Self {
        Self {
            methods: methods.into_iter().collect(),
            ..self
        }
    }

    async fn make(&self, charge: &Charge) -> RailReport {
        let capture = match charge.capture {
            Capture::Automatic => "automatic",
            Capture::Manual => "manual",
        };
        let own = |method| {
            let mut own = vec![
                ("payment_method", method),
                ("capture_method", capture.to_owned()),
            ];
            let methods = self.methods.iter();
            own.extend(methods.map(|method| ("payment_method_types[]", method.clone())));
            own
        };
        self.account.make::<PaymentIntent>(charge, "pi", own).await
    }

    /// Confirms or captures, and reports what really became of the payment.
    async fn step(&self, charge: &Charge, id: &str, verb: &str) -> RailReport {
        let stuck = match verb {
            "capture" => RailOutcome::Held,
            _ => RailOutcome::Unconfirmed,
        };
        let path = format!("{}/{verb}", path_of::<PaymentIntent>(id));
        let key = key(charge, verb);
        let refusal = match self
            .account
            .api
            .post::<PaymentIntent>(&path, &[], Some(&key))
            .await
        {
            StripeReply::Done(payment) => return unknown_if_still(payment.report(charge), stuck),
            StripeReply::Refused(failure) => Some(failure),
            StripeReply::Missing(_) | StripeReply::Unclear => None,
        };
        let found = self.account.look::<PaymentIntent>(charge, Some(id)).await;
        match refusal {
            // It still waits for what was just refused for good. A hold may yet be captured, and is not given up.
            Some(failure) if found.outcome == stuck && stuck == RailOutcome::Unconfirmed => {
                RailReport {
                    failure: Some(failure),
                    outcome: RailOutcome::Failed,
                    ..found
                }
            }
            _ => unknown_if_still(found, stuck),
        }
    }

    async fn fence(&self, charge: &Charge, id: Option<&str>) -> Fenced {
        let Some(ids) = self.account.ids_to_fence::<PaymentIntent>(charge, id).await else {
            return Fenced::Unknown;
        };
        let mut fenced = Fenced::Cancelled;
        for id in &ids {
            fenced = fenced.and(self.fence_one(id).await);
        }
        fenced
    }

    /// Without an idempotency key: cancelling twice is cancelling, and a fence must hear how things are, not how they were when
    /// it was first tried.
    async fn fence_one(&self, id: &str) -> Fenced {
        let path = format!("{}/cancel", path_of::<PaymentIntent>(id));
        let cancelled = self
            .account
            .api
            .post::<PaymentIntent>(&path, &[], None)
            .await;
        let shown = match cancelled {
            StripeReply::Done(payment) => StripeReply::Done(payment),
            StripeReply::Refused(_) | StripeReply::Missing(_) | StripeReply::Unclear => {
                self.account
                    .api
                    .get::<PaymentIntent>(&path_of::<PaymentIntent>(id))
                    .await
            }
        };
        match shown {
            StripeReply::Done(payment) => match payment.status.as_str() {
                "canceled" => Fenced::Cancelled,
                "succeeded" | "processing" => Fenced::TooLate,
                _ => Fenced::Unknown,
            },
            // What was there cannot be unheard of: this may be another account.
            StripeReply::Missing(_) | StripeReply::Refused(_) | StripeReply::Unclear => {
                Fenced::Unknown
            }
        }
    }
}

/// One key per endpoint, because Stripe knows a key by its endpoint and parameters.
pub(super) fn key(charge: &Charge, endpoint: &str) -> String {
    format!("{}:{endpoint}", charge.reference.as_str())
}

/// What is still as it was before a call says nothing about what the call will have done.
pub(super) fn unknown_if_still(report: RailReport, as_before: RailOutcome) -> RailReport {
    if report.outcome == as_before {
        return RailReport {
            outcome: RailOutcome::Unknown,
            ..report
        };
    }
    report
}

impl Rail for StripeRail {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport> {
        let late = RailReport::of(RailOutcome::Unknown);
        Box::pin(self.account.api.within(self.make(charge), late))
    }

    fn confirm<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        let late = RailReport::of(RailOutcome::Unknown);
        match id {
            Some(id) => Box::pin(
                self.account
                    .api
                    .within(self.step(charge, id, "confirm"), late.with_payment_id(id)),
            ),
            // It must be named first.
            None => self.look_up(charge, None),
        }
    }

    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        let late = RailReport::of(RailOutcome::Unknown);
        match id {
            Some(id) => Box::pin(
                self.account
                    .api
                    .within(self.step(charge, id, "capture"), late.with_payment_id(id)),
            ),
            None => self.look_up(charge, None),
        }
    }

    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        let late = RailReport::of(RailOutcome::Unknown);
        Box::pin(
            self.account
                .api
                .within(self.account.look::<PaymentIntent>(charge, id), late),
        )
    }

    fn cancel<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> RailFuture<'a, Fenced> {
        Box::pin(
            self.account
                .api
                .within(self.fence(charge, id), Fenced::Unknown),
        )
    }

    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome> {
        let refunding = self.account.refund_payment::<PaymentIntent>(charge, id);
        Box::pin(self.account.api.within(refunding, RefundOutcome::Unknown))
    }

    fn parse_callback(&self, message: CallbackMessage<'_>) -> Result<CallbackHint, Problem> {
        self.account.parse_callback(message)
    }

    fn check_amount(&self, amount: Cents, currency: Currency) -> Result<(), Problem> {
        units::check(amount, currency)
    }
}
