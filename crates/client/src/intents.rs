//! Publishing, claiming, extending, fulfilling, failing, and reading one intent.
//!
//! Invariant: absent options are absent on the wire, so the server's defaults stay the only ones.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::call::{Call, Credential, decode};
use crate::query::{encode, path_with_query};
use crate::wire::ItemList;
use crate::{Claimed, Client, Error, Extended, FailReply, IntentResult, IntentStatus, Published};

/// An intent to publish.
#[derive(Debug, Clone, Serialize)]
pub struct Publish {
    pub goal: String,
    pub payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// Seconds before it may be claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Seconds; doubled for each failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_base: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_capability: Option<String>,
}

impl Publish {
    /// A publish with only the two required fields.
    pub fn new(goal: &str, payload: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let payload = serde_json::value::to_raw_value(payload)
            .map_err(|error| Error::Request(format!("payload: {error}")))?;
        Ok(Self {
            goal: goal.to_owned(),
            payload,
            namespace: None,
            visibility: None,
            priority: None,
            delay: None,
            max_attempts: None,
            backoff_base: None,
            target_worker: None,
            required_capability: None,
        })
    }
}

/// One of many intents published together.
#[derive(Debug, Clone, Serialize)]
pub struct PublishItem {
    #[serde(flatten)]
    pub publish: Publish,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// The filter of a claim.
#[derive(Debug, Clone, Default)]
pub struct ClaimFilter {
    pub goal: Option<String>,
    pub namespace: Option<String>,
    /// Only intents of this publisher's key.
    pub publisher: Option<String>,
    pub worker_id: Option<String>,
    pub capabilities: Vec<String>,
    /// How long the server may keep the request open, 0 to 30 s.
    pub wait_s: Option<u64>,
    /// Take up to this many at once, 1 to 100.
    pub max: Option<u32>,
}

/// The result of a worker.
#[derive(Debug, Clone)]
pub enum Output {
    Json(Box<RawValue>),
    Text(String),
}

impl Output {
    pub fn json(value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        serde_json::value::to_raw_value(value)
            .map(Self::Json)
            .map_err(|error| Error::Request(format!("result: {error}")))
    }
}

/// What a worker knows about the attempt after a failed one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NextAttempt {
    /// The back-off of the intent decides.
    #[default]
    Scheduled,
    /// It cannot succeed: the intent is dead now.
    Never,
    /// It begins no earlier than this.
    In(Duration),
}

/// The wire form of a [`NextAttempt`], alone or inside a settlement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NextAttemptFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in: Option<f64>,
}

impl From<NextAttempt> for NextAttemptFields {
    fn from(next: NextAttempt) -> Self {
        match next {
            NextAttempt::Scheduled => Self::default(),
            NextAttempt::Never => Self {
                retry: Some(false),
                retry_in: None,
            },
            NextAttempt::In(pause) => Self {
                retry: None,
                retry_in: Some(pause.as_secs_f64()),
            },
        }
    }
}

/// The wire form of an [`Output`], alone or inside a settlement.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum OutputField<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

impl<'a> From<&'a Output> for OutputField<'a> {
    fn from(output: &'a Output) -> Self {
        match output {
            Output::Json(value) => Self::Json(value),
            Output::Text(text) => Self::Text(text),
        }
    }
}

pub(crate) fn output_kind(output: &Output) -> &'static str {
    match output {
        Output::Json(_) => "json",
        Output::Text(_) => "text",
    }
}

impl Client {
    pub async fn publish(
        &self,
        publish: &Publish,
        idempotency_key: Option<&str>,
    ) -> Result<Published, Error> {
        let call = Call::post("publish", "/intent".to_owned())
            .json(publish)?
            .header("idempotency-key", idempotency_key)?;
        self.fetch(call).await
    }

    /// Publishes a request whose text was made before, unchanged. With the same key it may be sent again.
    pub async fn publish_text(
        &self,
        request: &str,
        idempotency_key: &str,
    ) -> Result<Published, Error> {
        let call = Call::post("publish", "/intent".to_owned())
            .text(request)
            .header("idempotency-key", Some(idempotency_key))?;
        self.fetch(call).await
    }

    /// Succeeds if the server answers at all, whatever it says. No key is sent.
    pub async fn reach(&self) -> Result<(), Error> {
        let call = Call::get("health", "/health".to_owned()).credential(Credential::None);
        self.respond(call).await.map(drop)
    }

    /// Publishes all intents of the list or none, in one request.
    pub async fn publish_many(&self, items: &[PublishItem]) -> Result<Vec<Published>, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            intents: &'a [PublishItem],
        }
        let call = Call::post("publish", "/intents".to_owned()).json(&Body { intents: items })?;
        let many: ItemList<Published> = self.fetch(call).await?;
        Ok(many.intents)
    }

    /// Claims waiting intents; an empty list means that there were none.
    pub async fn claim(&self, claim: &ClaimFilter) -> Result<Vec<Claimed>, Error> {
        let wait = claim.wait_s.map(|wait| wait.to_string());
        let max = claim.max.map(|max| max.to_string());
        let path = path_with_query(
            "/claim",
            &[
                ("goal", claim.goal.as_deref()),
                ("max", max.as_deref()),
                ("namespace", claim.namespace.as_deref()),
                ("publisher", claim.publisher.as_deref()),
                ("wait", wait.as_deref()),
            ],
        );
        let capabilities = claim.capabilities.join(",");
        let capabilities = (!capabilities.is_empty()).then_some(capabilities);
        let call = Call::post("claim", path)
            .header("x-worker-id", claim.worker_id.as_deref())?
            .header("x-worker-capabilities", capabilities.as_deref())?
            .extra_wait(Duration::from_secs(claim.wait_s.unwrap_or(0)));
        let response = self.answer(call).await?;
        if response.status == http::StatusCode::NO_CONTENT {
            return Ok(Vec::new());
        }
        // A server without batches ignores `max` and returns one intent. A parse error would block
        // it until its lease ends, so both formats are accepted.
        if claim.max.is_some()
            && let Ok(many) = decode::<ItemList<Claimed>>("claim", &response.body)
        {
            return Ok(many.intents);
        }
        Ok(vec![decode("claim", &response.body)?])
    }

    /// Sets the lease to end `seconds` from now.
    pub async fn extend(&self, id: &str, token: &str, seconds: u64) -> Result<Extended, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            claim_token: &'a str,
            seconds: u64,
        }
        let path = format!("/extend_claim/{}", encode(id.as_bytes()));
        let call = Call::post("extend", path).json(&Body {
            claim_token: token,
            seconds,
        })?;
        self.fetch(call).await
    }

    pub async fn fulfil(
        &self,
        id: &str,
        token: &str,
        output: Option<&Output>,
    ) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            claim_token: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<OutputField<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            result_type: Option<&'static str>,
        }
        let path = format!("/fulfill/{}", encode(id.as_bytes()));
        let call = Call::post("fulfil", path).json(&Body {
            claim_token: token,
            result: output.map(OutputField::from),
            result_type: output.map(output_kind),
        })?;
        self.answer(call).await.map(drop)
    }

    pub async fn fail(&self, id: &str, token: &str, error: &str) -> Result<(), Error> {
        let next = NextAttempt::Scheduled;
        self.fail_with(id, token, error, next).await.map(drop)
    }

    /// Reports a failure, and what is known about the next attempt.
    pub async fn fail_with(
        &self,
        id: &str,
        token: &str,
        error: &str,
        next: NextAttempt,
    ) -> Result<FailReply, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            claim_token: &'a str,
            error: &'a str,
            #[serde(flatten)]
            next: NextAttemptFields,
        }
        let path = format!("/fail/{}", encode(id.as_bytes()));
        let call = Call::post("fail", path).json(&Body {
            claim_token: token,
            error,
            next: next.into(),
        })?;
        self.fetch(call).await
    }

    pub async fn status(&self, id: &str) -> Result<IntentStatus, Error> {
        let path = format!("/status/{}", encode(id.as_bytes()));
        self.fetch(Call::get("status", path)).await
    }

    pub async fn result(&self, id: &str) -> Result<IntentResult, Error> {
        let path = format!("/result/{}", encode(id.as_bytes()));
        self.fetch(Call::get("result", path)).await
    }
}
