//! Calls of Beam: agents, signed intents, the message bus, access rules and peers.
//!
//! Responses are returned as the server sent them: the protocol allows further members in every object, and a signature may
//! cover them. The credential of these calls is the admin token of the client, sent as a bearer token: the API key of an
//! agent, the key of the bus, or the session of an operator. Without one, the request has no credential.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, Credential};
use crate::query::{encode, path_with_query};
use crate::{Client, Error, SecretKey};

/// How long a directory waits for the result of an intent.
const RESULT_WAIT: Duration = Duration::from_mins(1);
/// How long the bus waits for the directory.
const DELIVERY_WAIT: Duration = Duration::from_secs(35);
const FEDERATION_SECRET: &str = "x-beam-federation-secret";

/// Which agents a list shows.
#[derive(Clone, Debug, Default)]
pub struct AgentSearch {
    pub org: Option<String>,
    /// Separated by commas; an agent must have all.
    pub capabilities: Option<String>,
    pub text: Option<String>,
    pub limit: Option<u32>,
}

/// Which intents of the directory a list shows.
#[derive(Clone, Debug, Default)]
pub struct BeamIntentSearch {
    /// A part of the nonce, a party, the type or the error code.
    pub text: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    pub intent: Option<String>,
    /// A state, or an outcome.
    pub status: Option<String>,
    pub error_code: Option<String>,
    /// Only the last hours; all intents that are kept without it.
    pub hours: Option<u32>,
    pub limit: Option<u32>,
}

/// Which messages of the bus a list shows.
#[derive(Clone, Debug, Default)]
pub struct MessageSearch {
    pub sender: Option<String>,
    pub recipient: Option<String>,
    pub intent: Option<String>,
    pub status: Option<String>,
    /// Unix seconds.
    pub since: Option<f64>,
    pub until: Option<f64>,
    pub limit: Option<u32>,
}

/// Which messages a recipient asks for.
#[derive(Clone, Debug, Default)]
pub struct MessagePoll {
    pub status: Option<String>,
    /// Unix seconds.
    pub since: Option<f64>,
    pub limit: Option<u32>,
    /// How long the server may wait for the first message, in seconds.
    pub wait_s: Option<u32>,
}

impl Client {
    /// Registers an agent. The response has its API key, which is not shown again.
    pub async fn beam_register(&self, registration: &Value) -> Result<Value, Error> {
        let call = self.beam_post("agent registration", "/agents/register".to_owned());
        self.fetch(call.json(registration)?).await
    }

    pub async fn beam_agents(&self, search: &AgentSearch) -> Result<Value, Error> {
        let limit = search.limit.map(|limit| limit.to_string());
        let path = path_with_query(
            "/agents/search",
            &[
                ("capabilities", search.capabilities.as_deref()),
                ("limit", limit.as_deref()),
                ("org", search.org.as_deref()),
                ("q", search.text.as_deref()),
            ],
        );
        self.fetch(self.beam_get("agent search", path)).await
    }

    pub async fn beam_agent(&self, beam_id: &str) -> Result<Value, Error> {
        let path = format!("/agents/{}", encode(beam_id.as_bytes()));
        self.fetch(self.beam_get("agent", path)).await
    }

    pub async fn beam_rotate_key(&self, beam_id: &str, rotation: &Value) -> Result<Value, Error> {
        let path = format!("/agents/{}/keys/rotate", encode(beam_id.as_bytes()));
        let call = self.beam_post("key rotation", path);
        self.fetch(call.json(rotation)?).await
    }

    pub async fn beam_revoke_key(&self, beam_id: &str, revocation: &Value) -> Result<Value, Error> {
        let path = format!("/agents/{}/keys/revoke", encode(beam_id.as_bytes()));
        let call = self.beam_post("key revocation", path);
        self.fetch(call.json(revocation)?).await
    }

    /// Sends an intent frame, whose text is signed, and waits for the recipient's result.
    pub async fn beam_send(&self, frame: &str) -> Result<Value, Error> {
        let call = self.beam_post("intent", "/intents/send".to_owned());
        self.fetch(call.text(frame).extra_wait(RESULT_WAIT)).await
    }

    /// The trace of an intent. Needs the session of an operator.
    pub async fn beam_trace(&self, nonce: &str) -> Result<Value, Error> {
        let path = format!("/observability/intents/{}", encode(nonce.as_bytes()));
        self.fetch(self.beam_get("trace", path)).await
    }

    /// Intents of the directory, newest first. Needs the session of an operator, as the next two.
    pub async fn beam_intents(&self, search: &BeamIntentSearch) -> Result<Value, Error> {
        let text = |number: Option<u32>| number.map(|number| number.to_string());
        let (hours, limit) = (text(search.hours), text(search.limit));
        let path = path_with_query(
            "/observability/intents",
            &[
                ("errorCode", search.error_code.as_deref()),
                ("from", search.from.as_deref()),
                ("hours", hours.as_deref()),
                ("intentType", search.intent.as_deref()),
                ("limit", limit.as_deref()),
                ("q", search.text.as_deref()),
                ("status", search.status.as_deref()),
                ("to", search.to.as_deref()),
            ],
        );
        self.fetch(self.beam_get("intents", path)).await
    }

    /// Figures of the intents of the last hours.
    pub async fn beam_overview(&self, hours: Option<u32>) -> Result<Value, Error> {
        let hours = hours.map(|hours| hours.to_string());
        let path = path_with_query("/observability/overview", &[("hours", hours.as_deref())]);
        self.fetch(self.beam_get("overview", path)).await
    }

    /// Errors of the intents of the last hours.
    pub async fn beam_errors(&self, hours: Option<u32>) -> Result<Value, Error> {
        let hours = hours.map(|hours| hours.to_string());
        let path = path_with_query("/observability/errors", &[("hours", hours.as_deref())]);
        self.fetch(self.beam_get("errors", path)).await
    }

    /// Begins a session of an operator on the machine of the server, and returns its token.
    pub async fn beam_login(&self, email: &str) -> Result<SecretKey, Error> {
        #[derive(Deserialize)]
        struct TokenBody {
            token: Option<String>,
        }
        let token = |body: TokenBody| {
            body.token
                .map(|token| SecretKey::new(&token))
                .ok_or_else(|| {
                    let why = "the server gives login tokens to its own machine only";
                    Error::Request(why.to_owned())
                })
        };
        let call = Call::post("login", "/admin/auth/magic-link".to_owned());
        let call = call.credential(Credential::None);
        let link = token(self.fetch(call.json(&json!({"email": email}))?).await?)?;
        let call = Call::post("login", "/admin/auth/verify".to_owned());
        let call = call.credential(Credential::None);
        token(
            self.fetch(call.json(&json!({"token": link.reveal()}))?)
                .await?,
        )
    }

    /// Sends a message over the bus.
    pub async fn bus_send(&self, message: &Value) -> Result<Value, Error> {
        let call = self.beam_post("message", "/v1/beam/send".to_owned());
        self.fetch(call.json(message)?.extra_wait(DELIVERY_WAIT))
            .await
    }

    /// The messages of a recipient. Nothing changes.
    pub async fn bus_poll(&self, agent: &str, poll: &MessagePoll) -> Result<Value, Error> {
        let text = |number: Option<u32>| number.map(|number| number.to_string());
        let (limit, wait) = (text(poll.limit), text(poll.wait_s));
        let since = poll.since.map(|since| since.to_string());
        let path = path_with_query(
            "/v1/beam/poll",
            &[
                ("agent", Some(agent)),
                ("limit", limit.as_deref()),
                ("since", since.as_deref()),
                ("status", poll.status.as_deref()),
                ("wait", wait.as_deref()),
            ],
        );
        let wait = Duration::from_secs(poll.wait_s.unwrap_or(0).into());
        self.fetch(self.beam_get("poll", path).extra_wait(wait))
            .await
    }

    pub async fn bus_ack(&self, acknowledgement: &Value) -> Result<Value, Error> {
        let call = self.beam_post("acknowledgement", "/v1/beam/ack".to_owned());
        self.fetch(call.json(acknowledgement)?).await
    }

    pub async fn bus_history(&self, search: &MessageSearch) -> Result<Value, Error> {
        let limit = search.limit.map(|limit| limit.to_string());
        let time = |at: Option<f64>| at.map(|at| at.to_string());
        let (since, until) = (time(search.since), time(search.until));
        let path = path_with_query(
            "/v1/beam/history",
            &[
                ("intent", search.intent.as_deref()),
                ("limit", limit.as_deref()),
                ("recipient", search.recipient.as_deref()),
                ("sender", search.sender.as_deref()),
                ("since", since.as_deref()),
                ("status", search.status.as_deref()),
                ("until", until.as_deref()),
            ],
        );
        self.fetch(self.beam_get("history", path)).await
    }

    /// How many messages the bus has, by state and by agent.
    pub async fn bus_stats(&self) -> Result<Value, Error> {
        let path = "/v1/beam/stats".to_owned();
        self.fetch(self.beam_get("statistics of the bus", path))
            .await
    }

    /// Attempts a message again that is a dead letter or has failed.
    pub async fn bus_requeue(&self, message_id: &str) -> Result<Value, Error> {
        let id = encode(message_id.as_bytes());
        let path = format!("/v1/beam/dead-letter/{id}/requeue");
        let call = self.beam_post("requeue", path);
        self.fetch(call.extra_wait(DELIVERY_WAIT)).await
    }

    /// The access rules of an agent.
    pub async fn beam_rules(&self, target: &str) -> Result<Value, Error> {
        let path = format!("/acl/{}", encode(target.as_bytes()));
        self.fetch(self.beam_get("access rules", path)).await
    }

    pub async fn beam_allow(
        &self,
        target: &str,
        intent: &str,
        allowed_from: &str,
    ) -> Result<Value, Error> {
        let rule = json!({
            "targetBeamId": target, "intentType": intent, "allowedFrom": allowed_from,
        });
        let call = self.beam_post("access rule", "/acl".to_owned());
        self.fetch(call.json(&rule)?).await
    }

    pub async fn beam_remove_rule(&self, id: u64) -> Result<(), Error> {
        let call = Call::delete("access rule", format!("/acl/{id}"));
        self.answer(call.credential(self.beam_credential()))
            .await
            .map(drop)
    }

    /// The peers of a directory. Needs the secret that directories share, or the session of an administrator as credential;
    /// with a secret, the session does not count.
    pub async fn beam_peers(&self, secret: Option<&SecretKey>) -> Result<Value, Error> {
        let call = self.beam_get("peers", "/federation/peers".to_owned());
        self.fetch(with_federation_secret(call, secret)?).await
    }

    /// Registers a peer, whose agents the server reads. Needs the same as [`Self::beam_peers`].
    pub async fn beam_add_peer(
        &self,
        secret: Option<&SecretKey>,
        peer: &Value,
    ) -> Result<Value, Error> {
        let call = self.beam_post("peer", "/federation/peers".to_owned());
        let call = with_federation_secret(call, secret)?;
        self.fetch(call.json(peer)?.extra_wait(DELIVERY_WAIT)).await
    }

    pub async fn beam_remove_peer(&self, directory_url: &str) -> Result<(), Error> {
        let path = path_with_query(
            "/federation/peers",
            &[("directoryUrl", Some(directory_url))],
        );
        let call = Call::delete("peer", path).credential(self.beam_credential());
        self.answer(call).await.map(drop)
    }

    fn beam_get(&self, what: &'static str, path: String) -> Call {
        Call::get(what, path).credential(self.beam_credential())
    }

    fn beam_post(&self, what: &'static str, path: String) -> Call {
        Call::post(what, path).credential(self.beam_credential())
    }

    fn beam_credential(&self) -> Credential {
        if self.has_admin_token() {
            Credential::Bearer
        } else {
            Credential::None
        }
    }
}

fn with_federation_secret(call: Call, secret: Option<&SecretKey>) -> Result<Call, Error> {
    match secret {
        Some(secret) => call.secret_header(FEDERATION_SECRET, secret),
        None => Ok(call),
    }
}
