//! Stripe's payment intents: prepared, stored, and only then confirmed.
//!
//! Invariant: only a payment whose id is stored is confirmed. A payment without a stored id, such as one created just before a
//! crash, has moved no money: it is found by its metadata, or replaced without harm.
//! Idempotency keys are sent because Stripe recommends them; correctness does not depend on them.

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
#[cfg(feature = "stripe-charges")]
pub(super) use api::ListItem;
pub(super) use api::StripeReply;
use payment::PaymentIntent;
#[cfg(feature = "stripe-charges")]
pub(super) use payment::difference;
#[cfg(feature = "stripe-charges")]
pub(super) use units::check as check_amount;

pub const BASE: &str = "https://api.stripe.com";

pub struct Options {
    /// [`BASE`], or a mock server in tests.
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
    /// The payment method types that an intent may name.
    methods: Vec<String>,
}

impl StripeRail {
    /// Accepts cards.
    pub fn new(options: Options) -> Result<Self, RailSetupError> {
        Ok(Self {
            account: StripeAccount::new(options)?,
            methods: vec!["card".to_owned()],
        })
    }

    /// Accepts these payment method types, by Stripe's names. They are sent explicitly, because otherwise Stripe requires a
    /// return URL for the payer, and no payer is present.
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

    /// Confirms or captures, and reports the outcome.
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
            // The step was finally refused and the payment still waits for it. A hold may still be captured later and is kept.
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

    /// Sent without an idempotency key: cancelling twice is harmless, and the fence needs the current state, not the stored
    /// answer to an earlier attempt.
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
            // The payment existed before, so this may be another account.
            StripeReply::Missing(_) | StripeReply::Refused(_) | StripeReply::Unclear => {
                Fenced::Unknown
            }
        }
    }
}

/// One key per endpoint, because Stripe binds a key to its endpoint and parameters.
pub(super) fn key(charge: &Charge, endpoint: &str) -> String {
    format!("{}:{endpoint}", charge.reference.as_str())
}

/// A status that is unchanged after a call does not tell whether the call takes effect.
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
            // Its id must be known first.
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
