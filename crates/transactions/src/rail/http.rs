//! A site's own endpoint: signed JSON to five addresses and a look-up, one vocabulary of answers.
//!
//! The contract is in `docs/protocols/transactions-rails.md`. Invariant: only an answer with status 200 that says all that it must
//! counts; whatever else the endpoint does is unknown, and asked for again.

use std::time::Duration;

use consign_client::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::standard::{self, Secrets};
use super::wire::{self, Setup, Wire, failure};
use super::{Asked, Charge, Failure, Fenced, Hint, Message, Rail, Refunded, Report};
use crate::intent::Capture;
use crate::money::Currency;
use crate::outcome::RailOutcome;
use crate::problem::Problem;

#[derive(Debug)]
pub struct Options {
    /// The addresses are this and `/prepare`, `/confirm`, `/capture`, `/cancel`, `/refund`, `/lookup`.
    pub base: String,
    /// Shared with the endpoint, for both directions.
    pub secrets: Secrets,
    pub timeout: Duration,
}

#[derive(Debug)]
pub struct Http {
    wire: Wire,
    secrets: Secrets,
}

/// What the endpoint is told: always all of it, so that it needs no memory to answer.
#[derive(Serialize)]
struct Question<'a> {
    reference: &'a str,
    intent_id: &'a str,
    transaction_id: &'a str,
    amount_cents: u64,
    currency: Currency,
    capture: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_reference: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Succeeded,
    Processing,
    Held,
    Unconfirmed,
    Failed,
    NotFound,
}

#[derive(Debug, Deserialize)]
struct Answer {
    status: Status,
    #[serde(default, deserialize_with = "wire::maybe_id")]
    payment_id: Option<String>,
    #[serde(default, deserialize_with = "wire::maybe_id")]
    refund_id: Option<String>,
    amount_cents: Option<u64>,
    currency: Option<String>,
    failure: Option<Failure>,
}

impl Answer {
    fn report(self, charge: &Charge, asked_for: Option<&str>) -> Report {
        let outcome = self.outcome(charge, asked_for);
        let failed = outcome == RailOutcome::Failed;
        let report = Report {
            failure: failed.then(|| self.why("payment_failed")),
            ..Report::of(outcome)
        };
        match self.payment_id.or_else(|| asked_for.map(str::to_owned)) {
            Some(id) => report.named(id),
            None => report,
        }
    }

    fn outcome(&self, charge: &Charge, asked_for: Option<&str>) -> RailOutcome {
        let outcome = match self.status {
            Status::Succeeded => RailOutcome::Succeeded,
            Status::Processing => RailOutcome::Processing,
            Status::Held => RailOutcome::Held,
            Status::Unconfirmed => RailOutcome::Unconfirmed,
            Status::Failed => return RailOutcome::Failed,
            Status::NotFound => return RailOutcome::NotFound,
        };
        let same_payment = match (asked_for, self.payment_id.as_deref()) {
            (Some(asked_for), Some(told)) => asked_for == told,
            _ => true,
        };
        match self.is_about_the_money_of(charge) {
            None => RailOutcome::Unknown,
            Some(true) if same_payment => outcome,
            Some(_) => RailOutcome::Different,
        }
    }

    /// None if it does not say.
    fn is_about_the_money_of(&self, charge: &Charge) -> Option<bool> {
        let (amount, currency) = (self.amount_cents?, self.currency.as_deref()?);
        Some(amount == charge.amount.get() && currency == charge.currency.as_str())
    }

    fn why(&self, code: &str) -> Failure {
        match &self.failure {
            Some(told) => failure(&told.code, &told.message),
            None => failure(code, "the endpoint gave no reason"),
        }
    }
}

impl Http {
    pub fn new(options: Options) -> Result<Self, Setup> {
        Ok(Self {
            wire: Wire::new(&options.base, options.timeout)?,
            secrets: options.secrets,
        })
    }

    async fn ask(&self, verb: &str, charge: &Charge, payment_id: Option<&str>) -> Option<Answer> {
        let question = Question {
            reference: charge.reference.as_str(),
            intent_id: &charge.intent_id,
            transaction_id: &charge.transaction_id,
            amount_cents: charge.amount.get(),
            currency: charge.currency,
            capture: match charge.capture {
                Capture::Automatic => "automatic",
                Capture::Manual => "manual",
            },
            payment_method: charge.payment_method.as_deref(),
            action: charge.action.as_deref(),
            summary: charge.summary.as_deref(),
            payment_id,
            refund_reference: (verb == "refund").then(|| charge.refund_reference()),
        };
        let body = serde_json::to_vec(&question).ok()?;
        // The same whenever the same is asked, so that an endpoint may answer from memory.
        let id = format!("{}:{verb}", charge.reference.as_str());
        let headers = self.signed(&id, &body)?;
        let answer = self.wire.post(&format!("/{verb}"), headers, body).await?;
        let told = (answer.status == 200).then(|| answer.json()).flatten();
        if told.is_none() {
            answer.pass_over();
        }
        told
    }

    fn signed(&self, id: &str, body: &[u8]) -> Option<HeaderMap> {
        let at_s = standard::now_s();
        let pairs = [
            (standard::ID, id.to_owned()),
            (standard::TIMESTAMP, at_s.to_string()),
            (standard::SIGNATURE, self.secrets.sign(id, at_s, body)),
        ];
        let header = |(name, value): (&'static str, String)| {
            Some((
                HeaderName::from_static(name),
                HeaderValue::from_str(&value).ok()?,
            ))
        };
        pairs.into_iter().map(header).collect()
    }

    fn reported<'a>(
        &'a self,
        verb: &'static str,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> Asked<'a, Report> {
        let asking = async move {
            match self.ask(verb, charge, id).await {
                Some(answer) => answer.report(charge, id),
                None => Report::of(RailOutcome::Unknown),
            }
        };
        let late = Report::of(RailOutcome::Unknown);
        Box::pin(self.wire.within(asking, late))
    }
}

impl Rail for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> Asked<'a, Report> {
        self.reported("prepare", charge, None)
    }

    fn confirm<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        self.reported("confirm", charge, id)
    }

    fn capture<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        self.reported("capture", charge, id)
    }

    fn look_up<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Report> {
        self.reported("lookup", charge, id)
    }

    fn cancel<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Fenced> {
        let asking = async move {
            match self
                .ask("cancel", charge, id)
                .await
                .map(|answer| answer.status)
            {
                Some(Status::Failed) => Fenced::Cancelled,
                // What the endpoint gave a name to cannot be unheard of.
                Some(Status::NotFound) if id.is_some() => Fenced::Unknown,
                Some(Status::NotFound) => Fenced::Cancelled,
                Some(Status::Succeeded | Status::Processing) => Fenced::TooLate,
                Some(Status::Held | Status::Unconfirmed) | None => Fenced::Unknown,
            }
        };
        Box::pin(self.wire.within(asking, Fenced::Unknown))
    }

    fn refund<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> Asked<'a, Refunded> {
        let asking = async move {
            let Some(answer) = self.ask("refund", charge, id).await else {
                return Refunded::Unknown;
            };
            match answer.status {
                // A part of it is not all of it.
                Status::Succeeded if answer.is_about_the_money_of(charge) == Some(true) => {
                    Refunded::done(answer.refund_id)
                }
                Status::Processing => Refunded::Pending,
                Status::Failed => Refunded::Refused(answer.why("refund_failed")),
                Status::Succeeded | Status::Held | Status::Unconfirmed | Status::NotFound => {
                    Refunded::Unknown
                }
            }
        };
        Box::pin(self.wire.within(asking, Refunded::Unknown))
    }

    fn heard(&self, message: Message<'_>) -> Result<Hint, Problem> {
        let event_id = self.secrets.check(message)?.to_owned();
        let told: Told = serde_json::from_slice(message.body)
            .map_err(|_| Problem::field("data", "this is no event with its data"))?;
        Hint::new(event_id, told.data.payment_id.or(told.data.reference))
    }
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    data: About,
}

#[derive(Default, Deserialize)]
struct About {
    payment_id: Option<String>,
    reference: Option<String>,
}
