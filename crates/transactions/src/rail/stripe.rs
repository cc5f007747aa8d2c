//! Stripe's payment intents: prepared, named, and only then confirmed.
//!
//! Invariant: nothing is confirmed but a payment whose id the caller knows, and so has stored. A payment that nobody named, such
//! as one made just before a crash, has therefore moved nothing: it is found by its metadata, or else replaced without harm.
//! Idempotency keys are sent because Stripe asks for them; nothing rests on their being honoured.

mod api;
mod payment;
mod refund;

use std::fmt;
use std::time::Duration;

use consign_client::percent_encode;

use super::wire::Setup;
use super::{Asked, Charge, Fenced, Hint, Message, Rail, Refunded, Report};
use crate::callback::{Event, Secrets};
use crate::intent::Capture;
use crate::outcome::RailOutcome;
use crate::problem::Problem;

pub(super) use api::{Api, Listed, Reply};
use payment::Payment;
pub(super) use payment::sum_up;
pub(super) use refund::pay_back;

pub const BASE: &str = "https://api.stripe.com";

const PAYMENTS: &str = "/v1/payment_intents";
const SIGNATURE: &str = "stripe-signature";

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
    api: Api,
    webhook_secrets: Secrets,
    /// What kinds of payment methods an intent may name.
    methods: Vec<String>,
}

impl Stripe {
    /// Takes cards.
    pub fn new(options: Options) -> Result<Self, Setup> {
        Ok(Self {
            api: Api::new(&options.base, &options.secret, options.timeout)?,
            webhook_secrets: options.webhook_secrets,
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
        let Some(method) = charge.payment_method.clone() else {
            return Report::of(RailOutcome::Failed).because(
                "payment_method_required",
                "the intent names no payment method in rail.payment_method",
            );
        };
        let capture = match charge.capture {
            Capture::Automatic => "automatic",
            Capture::Manual => "manual",
        };
        let mut form = vec![
            ("amount", charge.amount.get().to_string()),
            ("currency", charge.currency.as_str().to_lowercase()),
            ("payment_method", method),
            ("capture_method", capture.to_owned()),
            ("metadata[atp_ref]", charge.reference.as_str().to_owned()),
            ("metadata[intent_id]", charge.intent_id.clone()),
        ];
        let methods = self.methods.iter();
        form.extend(methods.map(|method| ("payment_method_types[]", method.clone())));
        let key = key(charge, "pi");
        match self.api.post::<Payment>(PAYMENTS, &form, Some(&key)).await {
            Reply::Done(payment) => payment.report(charge),
            Reply::Refused(failure) | Reply::Missing(failure) => Report {
                failure: Some(failure),
                ..Report::of(RailOutcome::Failed)
            },
            // It may be there all the same, and a key that once failed fails for a day.
            Reply::Unclear => unless(self.find(charge).await, RailOutcome::NotFound),
        }
    }

    /// Confirms or captures, and reports what really became of the payment.
    async fn step(&self, charge: &Charge, id: &str, verb: &str) -> Report {
        let stuck = match verb {
            "capture" => RailOutcome::Held,
            _ => RailOutcome::Unconfirmed,
        };
        let path = format!("{}/{verb}", payment_path(id));
        let key = key(charge, verb);
        let refusal = match self.api.post::<Payment>(&path, &[], Some(&key)).await {
            Reply::Done(payment) => return unless(payment.report(charge), stuck),
            Reply::Refused(failure) => Some(failure),
            Reply::Missing(_) | Reply::Unclear => None,
        };
        let found = self.look(charge, Some(id)).await;
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

    async fn look(&self, charge: &Charge, id: Option<&str>) -> Report {
        let Some(id) = id else {
            return self.find(charge).await;
        };
        match self.api.get::<Payment>(&payment_path(id)).await {
            Reply::Done(payment) => payment.report(charge),
            Reply::Missing(_) => self.find(charge).await,
            Reply::Refused(_) | Reply::Unclear => Report::of(RailOutcome::Unknown).named(id),
        }
    }

    /// By the reference alone.
    async fn find(&self, charge: &Charge) -> Report {
        match self.under_reference(charge).await {
            Some(payments) => {
                let told = payments.iter().map(|p| (p.created, p.report(charge)));
                sum_up(told.collect())
            }
            None => Report::of(RailOutcome::Unknown),
        }
    }

    async fn under_reference(&self, charge: &Charge) -> Option<Vec<Payment>> {
        let ours = |payment: &Payment| payment.reference() == Some(charge.reference.as_str());
        self.api.list(PAYMENTS, &[], ours).await
    }

    async fn fence(&self, charge: &Charge, id: Option<&str>) -> Fenced {
        let Some(payments) = self.under_reference(charge).await else {
            return Fenced::Unknown;
        };
        let mut ids: Vec<String> = payments.into_iter().map(|payment| payment.id).collect();
        if let Some(id) = id
            && !ids.iter().any(|listed| listed == id)
        {
            ids.push(id.to_owned());
        }
        let mut fenced = Fenced::Cancelled;
        for id in &ids {
            fenced = fenced.and(self.fence_one(id).await);
        }
        fenced
    }

    /// Without an idempotency key: cancelling twice is cancelling, and a fence must hear how things are, not how they were when
    /// it was first tried.
    async fn fence_one(&self, id: &str) -> Fenced {
        let path = format!("{}/cancel", payment_path(id));
        let cancelled = self.api.post::<Payment>(&path, &[], None).await;
        let shown = match cancelled {
            Reply::Done(payment) => Reply::Done(payment),
            Reply::Refused(_) | Reply::Missing(_) | Reply::Unclear => {
                self.api.get::<Payment>(&payment_path(id)).await
            }
        };
        match shown {
            Reply::Done(payment) => match payment.status.as_str() {
                "canceled" => Fenced::Cancelled,
                "succeeded" | "processing" => Fenced::TooLate,
                _ => Fenced::Unknown,
            },
            Reply::Missing(_) => Fenced::Cancelled,
            Reply::Refused(_) | Reply::Unclear => Fenced::Unknown,
        }
    }
}

/// One key per endpoint, because Stripe knows a key by its endpoint and parameters.
pub(super) fn key(charge: &Charge, endpoint: &str) -> String {
    format!("{}:{endpoint}", charge.reference.as_str())
}

fn payment_path(id: &str) -> String {
    format!("{PAYMENTS}/{}", percent_encode(id.as_bytes()))
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

pub(super) fn heard(secrets: &Secrets, message: Message<'_>) -> Result<Hint, Problem> {
    let signature = message.header(SIGNATURE).ok_or(Problem::CallbackRefused {
        reason: "is missing; the rail sends it as Stripe-Signature",
    })?;
    secrets.check(signature, message.body, message.now)?;
    let event = Event::read(message.body)?;
    Hint::new(event.id, event.payment_id)
}

impl Rail for Stripe {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> Asked<'a, Report> {
        let late = Report::of(RailOutcome::Unknown);
        Box::pin(self.api.within(self.make(charge), late))
    }

    fn confirm<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        let late = Report::of(RailOutcome::Unknown);
        match id {
            Some(id) => Box::pin(
                self.api
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
                self.api
                    .within(self.step(charge, id, "capture"), late.named(id)),
            ),
            None => self.look_up(charge, None),
        }
    }

    fn look_up<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        let late = Report::of(RailOutcome::Unknown);
        Box::pin(self.api.within(self.look(charge, id), late))
    }

    fn cancel<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Fenced> {
        Box::pin(self.api.within(self.fence(charge, id), Fenced::Unknown))
    }

    fn refund<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Refunded> {
        let refunding = async move {
            let found = match id {
                Some(id) => Some(id.to_owned()),
                None => self.find(charge).await.payment_id,
            };
            match found {
                Some(id) => pay_back(&self.api, charge, "payment_intent", &id).await,
                None => Refunded::Unknown,
            }
        };
        Box::pin(self.api.within(refunding, Refunded::Unknown))
    }

    fn heard(&self, message: Message<'_>) -> Result<Hint, Problem> {
        heard(&self.webhook_secrets, message)
    }
}
