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

use super::wire::Setup;
use super::{Asked, Charge, Fenced, Hint, Message, Rail, Refunded, Report};
use crate::callback::Secrets;
use crate::intent::Capture;
use crate::money::{Cents, Currency};
use crate::outcome::RailOutcome;
use crate::problem::Problem;

pub(super) use account::{Account, Shown, path_of};
pub(super) use api::{Listed, Reply};
use payment::Payment;
pub(super) use payment::difference;
pub(super) use units::check as check_amount;

pub const BASE: &str = "https://api.stripe.com";

pub struct Options {
    /// [`BASE`], or a stand-in for tests.
    pub base: String,
    pub secret: String,
    pub webhook_secrets: Secrets,
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
pub struct Stripe {
    account: Account,
    /// What kinds of payment methods an intent may name.
    methods: Vec<String>,
}

impl Stripe {
    /// Takes cards.
    pub fn new(options: Options) -> Result<Self, Setup> {
        Ok(Self {
            account: Account::new(options)?,
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

    async fn make(&self, charge: &Charge) -> Report {
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
        self.account.make::<Payment>(charge, "pi", own).await
    }

    /// Confirms or captures, and reports what really became of the payment.
    async fn step(&self, charge: &Charge, id: &str, verb: &str) -> Report {
        let stuck = match verb {
            "capture" => RailOutcome::Held,
            _ => RailOutcome::Unconfirmed,
        };
        let path = format!("{}/{verb}", path_of::<Payment>(id));
        let key = key(charge, verb);
        let refusal = match self
            .account
            .api
            .post::<Payment>(&path, &[], Some(&key))
            .await
        {
            Reply::Done(payment) => return unless(payment.report(charge), stuck),
            Reply::Refused(failure) => Some(failure),
            Reply::Missing(_) | Reply::Unclear => None,
        };
        let found = self.account.look::<Payment>(charge, Some(id)).await;
        match refusal {
            // It still waits for what was just refused for good. A hold may yet be captured, and is not given up.
            Some(failure) if found.outcome == stuck && stuck == RailOutcome::Unconfirmed => {
                Report {
                    failure: Some(failure),
                    outcome: RailOutcome::Failed,
                    ..found
                }
            }
            _ => unless(found, stuck),
        }
    }

    async fn fence(&self, charge: &Charge, id: Option<&str>) -> Fenced {
        let Some(ids) = self.account.to_fence::<Payment>(charge, id).await else {
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
        let path = format!("{}/cancel", path_of::<Payment>(id));
        let cancelled = self.account.api.post::<Payment>(&path, &[], None).await;
        let shown = match cancelled {
            Reply::Done(payment) => Reply::Done(payment),
            Reply::Refused(_) | Reply::Missing(_) | Reply::Unclear => {
                self.account
                    .api
                    .get::<Payment>(&path_of::<Payment>(id))
                    .await
            }
        };
        match shown {
            Reply::Done(payment) => match payment.status.as_str() {
                "canceled" => Fenced::Cancelled,
                "succeeded" | "processing" => Fenced::TooLate,
                _ => Fenced::Unknown,
            },
            // What was there cannot be unheard of: this may be another account.
            Reply::Missing(_) | Reply::Refused(_) | Reply::Unclear => Fenced::Unknown,
        }
    }
}

/// One key per endpoint, because Stripe knows a key by its endpoint and parameters.
pub(super) fn key(charge: &Charge, endpoint: &str) -> String {
    format!("{}:{endpoint}", charge.reference.as_str())
}

/// What is still as it was before a call says nothing about what the call will have done.
pub(super) fn unless(report: Report, as_before: RailOutcome) -> Report {
    if report.outcome == as_before {
        return Report {
            outcome: RailOutcome::Unknown,
            ..report
        };
    }
    report
}

impl Rail for Stripe {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> Asked<'a, Report> {
        let late = Report::of(RailOutcome::Unknown);
        Box::pin(self.account.api.within(self.make(charge), late))
    }

    fn confirm<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        let late = Report::of(RailOutcome::Unknown);
        match id {
            Some(id) => Box::pin(
                self.account
                    .api
                    .within(self.step(charge, id, "confirm"), late.named(id)),
            ),
            // It must be named first.
            None => self.look_up(charge, None),
        }
    }

    fn capture<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        let late = Report::of(RailOutcome::Unknown);
        match id {
            Some(id) => Box::pin(
                self.account
                    .api
                    .within(self.step(charge, id, "capture"), late.named(id)),
            ),
            None => self.look_up(charge, None),
        }
    }

    fn look_up<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        let late = Report::of(RailOutcome::Unknown);
        Box::pin(
            self.account
                .api
                .within(self.account.look::<Payment>(charge, id), late),
        )
    }

    fn cancel<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Fenced> {
        Box::pin(
            self.account
                .api
                .within(self.fence(charge, id), Fenced::Unknown),
        )
    }

    fn refund<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Refunded> {
        let refunding = self.account.give_back::<Payment>(charge, id);
        Box::pin(self.account.api.within(refunding, Refunded::Unknown))
    }

    fn heard(&self, message: Message<'_>) -> Result<Hint, Problem> {
        self.account.heard(message)
    }

    fn check_amount(&self, amount: Cents, currency: Currency) -> Result<(), Problem> {
        units::check(amount, currency)
    }
}
