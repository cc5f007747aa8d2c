//! The transaction protocol (ATP): one call per route.
//!
//! Bodies arrive signed and are sent byte for byte; signed documents are returned as the exact text. A signed body names its
//! operation, site, time and idempotency key (`consign_transactions::envelope::RequestContext` adds and signs them), and the
//! call takes the same key.
//! Invariant: no call is repeated here ([`RetryLoop`](crate::RetryLoop) does that), agents send no key of the server, and only
//! the operator's calls carry the admin token.

use std::fmt;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::atp_wire::{
    AnnouncedKey, AtpIntent, AtpReceipt, AtpReceiptList, AtpTransaction, AuthorizedIntent,
    CreatedAtpIntent, ResolvedTransaction, RevokedKey, RotatedKey, SiteHealth, SiteKeyList,
    SweepReply, TransactionList, VerifyReply,
};
use crate::call::{Call, Credential, decode, nested, refused};
use crate::query::{encode, path_with_query};
use crate::{Client, Error, Response, SecretKey};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// A server may keep a request open this long while the rail works; waiting for the answer is better than an early timeout.
const SERVER_WAIT: Duration = Duration::from_secs(20);

/// A parsed answer and its text.
#[derive(Clone)]
pub struct ParsedResponse<T> {
    pub status: u16,
    /// The delay that the server asks for.
    pub retry_after: Option<Duration>,
    /// Whether the server repeated a stored answer.
    pub replayed: bool,
    pub text: String,
    pub body: T,
}

impl<T> ParsedResponse<T> {
    /// Whether the result is still pending.
    pub fn is_open(&self) -> bool {
        self.status == StatusCode::ACCEPTED.as_u16()
    }
}

/// Omits the text, which may be long.
impl<T: fmt::Debug> fmt::Debug for ParsedResponse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedResponse")
            .field("status", &self.status)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

/// The transaction protocol of one server.
#[derive(Debug, Clone, Copy)]
pub struct Transactions<'a>(&'a Client);

impl Client {
    pub fn transactions(&self) -> Transactions<'_> {
        Transactions(self)
    }
}

impl Transactions<'_> {
    /// The same signed intent may be sent again until it is authorized.
    pub async fn create(self, intent: &str) -> Result<ParsedResponse<CreatedAtpIntent>, Error> {
        let call = Call::post("create", "/api/atp/intents".to_owned());
        self.call_public(call.text(intent)).await
    }

    pub async fn authorize(
        self,
        key: &SecretKey,
        body: &str,
    ) -> Result<ParsedResponse<AuthorizedIntent>, Error> {
        let call = Call::post("authorize", "/api/atp/authorize".to_owned());
        self.call_public(call.secret_header(IDEMPOTENCY_KEY, key)?.text(body))
            .await
    }

    pub async fn execute(
        self,
        key: &SecretKey,
        body: &str,
    ) -> Result<ParsedResponse<AtpTransaction>, Error> {
        let call = Call::post("execute", "/api/atp/execute".to_owned()).extra_wait(SERVER_WAIT);
        self.call_public(call.secret_header(IDEMPOTENCY_KEY, key)?.text(body))
            .await
    }

    pub async fn compensate(
        self,
        key: &SecretKey,
        body: &str,
    ) -> Result<ParsedResponse<AtpTransaction>, Error> {
        let path = "/api/atp/compensate".to_owned();
        let call = Call::post("compensate", path).extra_wait(SERVER_WAIT);
        self.call_public(call.secret_header(IDEMPOTENCY_KEY, key)?.text(body))
            .await
    }

    /// Cancelling twice is the same as cancelling once, whatever the key; a signed body names its key all the same.
    pub async fn cancel(
        self,
        key: &SecretKey,
        body: &str,
    ) -> Result<ParsedResponse<AtpIntent>, Error> {
        let call = Call::post("cancel", "/api/atp/cancel".to_owned());
        self.call_public(call.secret_header(IDEMPOTENCY_KEY, key)?.text(body))
            .await
    }

    pub async fn intent(self, id: &str) -> Result<ParsedResponse<AtpIntent>, Error> {
        let path = format!("/api/atp/intents/{}", encode(id.as_bytes()));
        self.call_public(Call::get("intent", path)).await
    }

    pub async fn receipts_of(
        self,
        intent_id: &str,
    ) -> Result<ParsedResponse<AtpReceiptList>, Error> {
        let path = format!("/api/atp/intents/{}/receipts", encode(intent_id.as_bytes()));
        self.call_public(Call::get("receipts", path)).await
    }

    pub async fn transaction(self, id: &str) -> Result<ParsedResponse<AtpTransaction>, Error> {
        let path = format!("/api/atp/transactions/{}", encode(id.as_bytes()));
        self.call_public(Call::get("transaction", path)).await
    }

    pub async fn receipt(self, id: &str) -> Result<ParsedResponse<AtpReceipt>, Error> {
        let path = format!("/api/atp/receipts/{}", encode(id.as_bytes()));
        self.call_public(Call::get("receipt", path)).await
    }

    /// The site's own verification of a document. A verifier that does not trust the site verifies offline.
    pub async fn verify(self, document: &str) -> Result<ParsedResponse<VerifyReply>, Error> {
        let call = Call::post("verify", "/api/atp/receipts/verify".to_owned());
        self.call_public(call.text(document)).await
    }

    pub async fn keys(self) -> Result<ParsedResponse<SiteKeyList>, Error> {
        self.call_public(Call::get("keys", "/api/atp/keys".to_owned()))
            .await
    }

    pub async fn health(self) -> Result<ParsedResponse<SiteHealth>, Error> {
        self.call_public(Call::get("health", "/api/atp/health".to_owned()))
            .await
    }

    /// For operators: open transactions first, oldest first; or those in one state, from the end of a page.
    pub async fn list(
        self,
        state: Option<&str>,
        limit: Option<u32>,
        from: Option<u64>,
    ) -> Result<ParsedResponse<TransactionList>, Error> {
        let limit = limit.map(|limit| limit.to_string());
        let from = from.map(|from| from.to_string());
        let path = path_with_query(
            "/api/atp/admin/transactions",
            &[
                ("limit", limit.as_deref()),
                ("state", state),
                ("from", from.as_deref()),
            ],
        );
        self.call_as_operator(Call::get("transactions", path)).await
    }

    /// For operators: records the outcome of an effect that the rail cannot report; `body` is a JSON object with `outcome` and
    /// `reason`.
    pub async fn resolve(
        self,
        id: &str,
        body: &str,
    ) -> Result<ParsedResponse<ResolvedTransaction>, Error> {
        let id = encode(id.as_bytes());
        let path = format!("/api/atp/admin/transactions/{id}/resolve");
        self.call_as_operator(Call::post("resolve", path).text(body))
            .await
    }

    /// For operators: checks open transactions now.
    pub async fn reconcile(self) -> Result<ParsedResponse<SweepReply>, Error> {
        let path = "/api/atp/admin/reconcile".to_owned();
        self.call_as_operator(Call::post("reconcile", path)).await
    }

    /// For operators: publishes the key that will sign next; an announced key stays.
    pub async fn announce_key(self) -> Result<ParsedResponse<AnnouncedKey>, Error> {
        let path = "/api/atp/admin/keys/announce".to_owned();
        self.call_as_operator(Call::post("announce_key", path))
            .await
    }

    /// For operators: makes the announced key current, or a new one.
    pub async fn rotate_key(self, reason: &str) -> Result<ParsedResponse<RotatedKey>, Error> {
        let path = "/api/atp/admin/keys/rotate".to_owned();
        let call = Call::post("rotate_key", path).json(&json!({"reason": reason}))?;
        self.call_as_operator(call).await
    }

    /// For operators: revokes a key; its signatures are no longer valid.
    pub async fn revoke_key(
        self,
        key_id: &str,
        reason: &str,
    ) -> Result<ParsedResponse<RevokedKey>, Error> {
        let path = format!("/api/atp/admin/keys/{}/revoke", encode(key_id.as_bytes()));
        let call = Call::post("revoke_key", path).json(&json!({"reason": reason}))?;
        self.call_as_operator(call).await
    }

    async fn call_as_operator<T: DeserializeOwned>(
        self,
        call: Call,
    ) -> Result<ParsedResponse<T>, Error> {
        self.exchange(call.credential(Credential::Bearer)).await
    }

    async fn call_public<T: DeserializeOwned>(
        self,
        call: Call,
    ) -> Result<ParsedResponse<T>, Error> {
        self.exchange(call.credential(Credential::None)).await
    }

    async fn exchange<T: DeserializeOwned>(self, call: Call) -> Result<ParsedResponse<T>, Error> {
        let what = call.what();
        let response = self.0.respond(call).await?;
        match response.status.as_u16() {
            // A server without a site refuses the path in the format of the Intent Protocol.
            401 | 404 if nested(&response.body).is_some() => Err(Error::NotServed {
                server: self.0.address().clone(),
            }),
            400.. => Err(refused(&response)),
            _ => parse_reply(what, &response),
        }
    }
}

fn parse_reply<T: DeserializeOwned>(
    what: &'static str,
    response: &Response,
) -> Result<ParsedResponse<T>, Error> {
    let header = |name: &str| response.headers.get(name).map(HeaderValue::as_bytes);
    let seconds = header(header::RETRY_AFTER.as_str())
        .and_then(|bytes| std::str::from_utf8(bytes).ok())
        .and_then(|text| text.trim().parse().ok());
    let text = String::from_utf8(response.body.to_vec());
    Ok(ParsedResponse {
        status: response.status.as_u16(),
        retry_after: seconds.map(Duration::from_secs),
        replayed: header("idempotent-replayed") == Some(b"true"),
        body: decode(what, &response.body)?,
        text: text.map_err(|error| Error::Unreadable {
            what,
            why: error.to_string(),
        })?,
    })
}
