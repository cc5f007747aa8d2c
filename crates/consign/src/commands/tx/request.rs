//! Shared parts of requests about an intent: retries, dry runs, and the output of a transaction.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use clap::Args;
use consign_client::{AtpTransaction, RetryLoop, SecretKey};
use consign_kernel::ids::Micros;
use consign_transactions::document::AgentSigner;
use consign_transactions::envelope::{RequestContext, RequestOperation};
use consign_transactions::instant;
use consign_transactions::intent::SignedIntent;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::agent::AgentArgs;
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::ServerArgs;
use crate::{out, render};

/// The arguments of a request about an intent.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// The intent
    #[arg(value_name = "INTENT")]
    pub(super) id: String,

    /// Show the request instead of sending it
    #[arg(long)]
    pub(super) dry_run: bool,

    #[command(flatten)]
    pub(super) output: OutputArgs,

    #[command(flatten)]
    pub(super) patience: WaitArgs,

    /// The site of an intent signed elsewhere; default as for create
    #[arg(long, value_name = "ORIGIN")]
    pub(super) site: Option<String>,

    #[command(flatten)]
    pub(super) agent: AgentArgs,

    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// A request before it is sent, and its signer.
pub(super) struct RequestDraft {
    operation: RequestOperation,
    members: Value,
    /// With the site that it is signed for; none if it is sent unsigned.
    signer: Option<(AgentSigner, String)>,
}

impl RequestDraft {
    /// Signs for this key and the current time. A request may be signed again for every attempt.
    pub(super) fn signed(&self, key: &SecretKey) -> anyhow::Result<String> {
        let Some((signer, site)) = &self.signer else {
            return Ok(self.shown());
        };
        let seal = RequestContext {
            operation: self.operation,
            site,
            idempotency_key: key.reveal(),
            issued_at: now(),
        };
        let signed = seal.sign(signer, &self.members);
        Ok(signed.map_err(|problem| Failure::usage(problem.to_string()))?)
    }

    /// Without key and signature, because a signed request can be used by anyone who reads it.
    pub(super) fn shown(&self) -> String {
        let mut members = self.members.clone();
        members["type"] = self.operation.document_type().into();
        if let Some((_, site)) = &self.signer {
            members["site"] = site.as_str().into();
        }
        members.to_string()
    }
}

/// The site that a document is signed for. A remote server must not choose it: a document for another site could be used
/// there.
pub(super) async fn site_of(named: Option<&String>, server: &ServerArgs) -> anyhow::Result<String> {
    if let Some(site) = named {
        return Ok(site.clone());
    }
    let client = server.client()?;
    if server.is_local()? {
        return Ok(client.transactions().keys().await?.body.site);
    }
    // A site is an origin, wherever on it the routes are.
    Ok(client.address().origin())
}

impl RequestArgs {
    pub(super) async fn draft(
        &self,
        operation: RequestOperation,
        intent: Option<&SignedIntent>,
        signer: Option<AgentSigner>,
        members: Value,
    ) -> anyhow::Result<RequestDraft> {
        let signer = match (signer, intent) {
            (None, _) => None,
            (Some(signer), Some(intent)) if self.site.is_none() => {
                Some((signer, intent.site.clone()))
            }
            (Some(signer), _) => {
                let site = site_of(self.site.as_ref(), &self.server).await?;
                Some((signer, site))
            }
        };
        Ok(RequestDraft {
            operation,
            members,
            signer,
        })
    }

    /// Shows a request with the idempotency key named `request`.
    pub(super) fn show_dry_run(
        &self,
        path: &'static str,
        request: &str,
        body: &str,
    ) -> anyhow::Result<Exit> {
        let begun = self.agent.state()?.is_begun(&self.id, request)?;
        show_dry_run(self.output, path, Some(begun), body)
    }
}

/// The time limit for retries.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Maximal seconds of retries; they also end when the intent expires
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u32,
}

impl WaitArgs {
    /// When to give up; `expires_at` is the end of the intent.
    pub(super) fn until(&self, expires_at: Option<Micros>) -> SystemTime {
        let own = SystemTime::now() + Duration::from_secs(u64::from(self.wait));
        let expires_at = expires_at.and_then(|at| u64::try_from(at.0).ok());
        let end = expires_at.map(|us| SystemTime::UNIX_EPOCH + Duration::from_micros(us));
        end.map_or(own, |end| end.min(own))
    }
}

/// Prints the reason for retries on standard error, each once.
pub(super) struct RetryNotes {
    noted: RefCell<Option<String>>,
}

impl RetryNotes {
    pub(super) fn new() -> Self {
        Self {
            noted: RefCell::new(None),
        }
    }

    pub(super) fn note(&self, why: &str) {
        if self.noted.borrow().as_deref() != Some(why) {
            out::note(&format!("{}; trying again", render::safe(why)));
            *self.noted.borrow_mut() = Some(why.to_owned());
        }
    }
}

/// Sends a request until its answer is final. It is signed again for each attempt, because retries may outlast a
/// signature.
pub(super) async fn send_signed<T, F>(
    until: SystemTime,
    draft: &RequestDraft,
    key: &SecretKey,
    send: impl Fn(String) -> F,
) -> anyhow::Result<consign_client::ParsedResponse<T>>
where
    F: Future<Output = Result<consign_client::ParsedResponse<T>, consign_client::Error>>,
{
    let first = draft.signed(key)?;
    let body = || draft.signed(key).unwrap_or_else(|_| first.clone());
    Ok(send_with_retries(until, || send(body())).await?)
}

/// Runs `send` until its answer is final.
pub(super) async fn send_with_retries<T, F>(
    until: SystemTime,
    send: impl Fn() -> F,
) -> Result<consign_client::ParsedResponse<T>, consign_client::Error>
where
    F: Future<Output = Result<consign_client::ParsedResponse<T>, consign_client::Error>>,
{
    let notes = RetryNotes::new();
    let hear = |why: &str, _: Duration| notes.note(why);
    RetryLoop::until(until, &hear).send(send).await
}

/// A request that is shown instead of sent.
#[derive(Serialize)]
struct RequestDryRun<'a> {
    method: &'static str,
    path: &'static str,
    /// Whether the request was begun before and would be repeated. The key itself is not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    begun: Option<bool>,
    body: &'a RawValue,
}

/// Shows a request; `begun` for one with an idempotency key.
pub(super) fn show_dry_run(
    output: OutputArgs,
    path: &'static str,
    begun: Option<bool>,
    body: &str,
) -> anyhow::Result<Exit> {
    if output.json {
        let body: &RawValue = serde_json::from_str(body)?;
        out::json(&RequestDryRun {
            method: "POST",
            path,
            begun,
            body,
        })?;
        return Ok(Exit::Done);
    }
    out::data(&format!("POST {path}"))?;
    out::data(&render::safe(body))?;
    out::note(match begun {
        Some(true) => "nothing was sent; it was begun before and would continue with the same key",
        Some(false) | None => "nothing was sent",
    });
    Ok(Exit::Done)
}

/// The fields of a transaction.
pub(super) fn transaction_fields(transaction: &AtpTransaction) -> String {
    let receipt_id = |receipt: &Option<Box<RawValue>>| {
        receipt.as_deref().and_then(|receipt| id_of(receipt.get()))
    };
    let failure = transaction.failure.as_ref();
    render::fields(&[
        (
            "transaction",
            Some(render::safe(&transaction.transaction_id)),
        ),
        ("intent", Some(render::safe(&transaction.intent_id))),
        ("state", Some(render::safe(&transaction.state))),
        (
            "amount",
            Some(amount(transaction.amount_cents, &transaction.currency)),
        ),
        ("rail", Some(render::safe(&transaction.rail.name))),
        ("reference", Some(render::safe(&transaction.rail.reference))),
        (
            "payment",
            transaction.rail.payment_id.as_deref().map(render::safe),
        ),
        (
            "failure",
            failure.map(|failure| render::safe(&format!("{} ({})", failure.message, failure.code))),
        ),
        ("begun at", Some(render::safe(&transaction.created_at))),
        ("changed at", Some(render::safe(&transaction.updated_at))),
        ("receipt", receipt_id(&transaction.receipt)),
        (
            "compensation",
            receipt_id(&transaction.compensation_receipt),
        ),
    ])
}

/// An amount in the protocol's unit, which does not define the decimals of a currency.
pub(crate) fn amount(cents: u64, currency: &str) -> String {
    format!("{cents} cents {}", render::safe(currency))
}

fn id_of(receipt: &str) -> Option<String> {
    let receipt: serde_json::Value = serde_json::from_str(receipt).ok()?;
    receipt["receipt_id"].as_str().map(render::safe)
}

pub(crate) fn now() -> Micros {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let us = since.map_or(0, |since| since.as_micros());
    Micros(i64::try_from(us).unwrap_or(i64::MAX))
}

pub(super) fn parsed(at: &str) -> Option<Micros> {
    instant::parse(at)
}
