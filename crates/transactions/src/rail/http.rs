//! A site's own endpoint: signed JSON to five URLs and a look-up, with one vocabulary of answers.
//!
//! The contract is in `docs/protocols/transactions-rails.md`. Invariant: only a complete answer with status 200 is conclusive;
//! anything else is unknown, and the endpoint is asked again.

use std::time::Duration;

use consign_client::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::client::{self, RailClient, RailSetupError, failure};
use super::standard_webhooks::{self, WebhookSecrets};
use super::{
    CallbackHint, CallbackMessage, Charge, Fenced, Rail, RailFailure, RailFuture, RailReport,
    RefundOutcome,
};
use crate::intent::Capture;
use crate::money::Currency;
use crate::outcome::RailOutcome;
use crate::problem::Problem;

#[derive(Debug)]
pub struct Options {
    /// The URLs are this base with `/prepare`, `/confirm`, `/capture`, `/cancel`, `/refund` and `/lookup`.
    pub base: String,
    /// Shared with the endpoint, for both directions.
    pub secrets: WebhookSecrets,
    pub timeout: Duration,
}

#[derive(Debug)]
pub struct HttpRail {
    client: RailClient,
    secrets: WebhookSecrets,
}

/// The request to the endpoint. It is always complete, so that the endpoint needs no state to answer.
#[derive(Serialize)]
struct EndpointRequest<'a> {
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
enum EndpointStatus {
    Succeeded,
    Processing,
    Held,
    Unconfirmed,
    Failed,
    NotFound,
}

#[derive(Debug, Deserialize)]
struct EndpointAnswer {
    status: EndpointStatus,
    #[serde(default, deserialize_with = "client::maybe_id")]
    payment_id: Option<String>,
    #[serde(default, deserialize_with = "client::maybe_id")]
    refund_id: Option<String>,
    amount_cents: Option<u64>,
    currency: Option<String>,
    failure: Option<RailFailure>,
}

impl EndpointAnswer {
    fn report(self, charge: &Charge, asked_for: Option<&str>) -> RailReport {
        let outcome = self.outcome(charge, asked_for);
        let failed = outcome == RailOutcome::Failed;
        let report = RailReport {
            failure: failed.then(|| self.why("payment_failed")),
            ..RailReport::of(outcome)
        };
        match self.payment_id.or_else(|| asked_for.map(str::to_owned)) {
            Some(id) => report.with_payment_id(id),
            None => report,
        }
    }

    fn outcome(&self, charge: &Charge, asked_for: Option<&str>) -> RailOutcome {
        let outcome = match self.status {
            EndpointStatus::Succeeded => RailOutcome::Succeeded,
            EndpointStatus::Processing => RailOutcome::Processing,
            EndpointStatus::Held => RailOutcome::Held,
            EndpointStatus::Unconfirmed => RailOutcome::Unconfirmed,
            EndpointStatus::Failed => return RailOutcome::Failed,
            EndpointStatus::NotFound => return RailOutcome::NotFound,
        };
        let same_payment = match (asked_for, self.payment_id.as_deref()) {
            (Some(asked_for), Some(reported)) => asked_for == reported,
            _ => true,
        };
        match self.is_about_the_money_of(charge) {
            None => RailOutcome::Unknown,
            Some(true) if same_payment => outcome,
            Some(_) => RailOutcome::Different,
        }
    }

    /// None if the answer does not say.
    fn is_about_the_money_of(&self, charge: &Charge) -> Option<bool> {
        let (amount, currency) = (self.amount_cents?, self.currency.as_deref()?);
        Some(amount == charge.amount.get() && currency == charge.currency.as_str())
    }

    fn why(&self, code: &str) -> RailFailure {
        match &self.failure {
            Some(reason) => failure(&reason.code, &reason.message),
            None => failure(code, "the endpoint gave no reason"),
        }
    }
}

impl HttpRail {
    pub fn new(options: Options) -> Result<Self, RailSetupError> {
        Ok(Self {
            client: RailClient::new(&options.base, options.timeout)?,
            secrets: options.secrets,
        })
    }

    async fn ask(
        &self,
        verb: &str,
        charge: &Charge,
        payment_id: Option<&str>,
    ) -> Option<EndpointAnswer> {
        let question = EndpointRequest {
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
        // The same for every repetition of a request, so that an endpoint may answer from a cache.
        let id = format!("{}:{verb}", charge.reference.as_str());
        let headers = self.signed(&id, &body)?;
        let answer = self.client.post(&format!("/{verb}"), headers, body).await?;
        let parsed = (answer.status == 200).then(|| answer.json()).flatten();
        if parsed.is_none() {
            answer.log_unusable();
        }
        parsed
    }

    fn signed(&self, id: &str, body: &[u8]) -> Option<HeaderMap> {
        let at_s = standard_webhooks::now_s();
        let pairs = [
            (standard_webhooks::ID, id.to_owned()),
            (standard_webhooks::TIMESTAMP, at_s.to_string()),
            (
                standard_webhooks::SIGNATURE,
                self.secrets.sign(id, at_s, body),
            ),
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
    ) -> RailFuture<'a, RailReport> {
        let asking = async move {
            match self.ask(verb, charge, id).await {
                Some(answer) => answer.report(charge, id),
                None => RailReport::of(RailOutcome::Unknown),
            }
        };
        let late = RailReport::of(RailOutcome::Unknown);
        Box::pin(self.client.within(asking, late))
    }
}

impl Rail for HttpRail {
    fn name(&self) -> &'static str {
        "http"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport> {
        self.reported("prepare", charge, None)
    }

    fn confirm<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        self.reported("confirm", charge, id)
    }

    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        self.reported("capture", charge, id)
    }

    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        self.reported("lookup", charge, id)
    }

    fn cancel<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> RailFuture<'a, Fenced> {
        let asking = async move {
            match self
                .ask("cancel", charge, id)
                .await
                .map(|answer| answer.status)
            {
                Some(EndpointStatus::Failed) => Fenced::Cancelled,
                // The endpoint assigned an id, so the payment must exist.
                Some(EndpointStatus::NotFound) if id.is_some() => Fenced::Unknown,
                Some(EndpointStatus::NotFound) => Fenced::Cancelled,
                Some(EndpointStatus::Succeeded | EndpointStatus::Processing) => Fenced::TooLate,
                Some(EndpointStatus::Held | EndpointStatus::Unconfirmed) | None => Fenced::Unknown,
            }
        };
        Box::pin(self.client.within(asking, Fenced::Unknown))
    }

    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome> {
        let asking = async move {
            let Some(answer) = self.ask("refund", charge, id).await else {
                return RefundOutcome::Unknown;
            };
            match answer.status {
                // A partial refund is not a full one.
                EndpointStatus::Succeeded if answer.is_about_the_money_of(charge) == Some(true) => {
                    RefundOutcome::done(answer.refund_id)
                }
                EndpointStatus::Processing => RefundOutcome::Pending,
                EndpointStatus::Failed => RefundOutcome::Refused(answer.why("refund_failed")),
                EndpointStatus::Succeeded
                | EndpointStatus::Held
                | EndpointStatus::Unconfirmed
                | EndpointStatus::NotFound => RefundOutcome::Unknown,
            }
        };
        Box::pin(self.client.within(asking, RefundOutcome::Unknown))
    }

    fn parse_callback(&self, message: CallbackMessage<'_>) -> Result<CallbackHint, Problem> {
        let event_id = self.secrets.check(message)?.to_owned();
        let callback: EndpointCallback = serde_json::from_slice(message.body)
            .map_err(|_| Problem::field("data", "must be an event with data"))?;
        CallbackHint::new(
            event_id,
            callback.data.payment_id.or(callback.data.reference),
        )
    }
}

#[derive(Deserialize)]
struct EndpointCallback {
    #[serde(default)]
    data: EndpointCallbackData,
}

#[derive(Default, Deserialize)]
struct EndpointCallbackData {
    payment_id: Option<String>,
    reference: Option<String>,
}
