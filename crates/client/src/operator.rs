//! Reads for operators: lists, timelines, receipts and the public keys that verify them.
//!
//! Invariant: receipts and key sets are returned as the exact bytes, because a signature covers
//! bytes.

use serde_json::value::RawValue;

use crate::call::{Call, Credential};
use crate::query::{encode, path_with_query};
use crate::{Client, Error, ListPage, ReceiptStanding, Timeline};

/// The filter of a list, and where it continues.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    pub status: Option<String>,
    pub namespace: Option<String>,
    pub goal: Option<String>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

impl Client {
    pub async fn list(&self, filter: &ListFilter) -> Result<ListPage, Error> {
        let limit = filter.limit.map(|limit| limit.to_string());
        let path = path_with_query(
            "/intents",
            &[
                ("cursor", filter.cursor.as_deref()),
                ("goal", filter.goal.as_deref()),
                ("limit", limit.as_deref()),
                ("namespace", filter.namespace.as_deref()),
                ("status", filter.status.as_deref()),
            ],
        );
        self.fetch(Call::get("list", path)).await
    }

    pub async fn timeline(&self, id: &str) -> Result<Timeline, Error> {
        let path = format!("/intents/{}/timeline", encode(id.as_bytes()));
        self.fetch(Call::get("timeline", path)).await
    }

    /// The signed document, verbatim.
    pub async fn receipt(&self, id: &str) -> Result<String, Error> {
        let path = format!("/intents/{}/receipt", encode(id.as_bytes()));
        self.text(Call::get("receipt", path), "receipt").await
    }

    /// Whether a receipt is genuine, and its current standing. Needs no key.
    pub async fn verify_receipt(&self, document: &str) -> Result<ReceiptStanding, Error> {
        let document: &RawValue = serde_json::from_str(document)
            .map_err(|error| Error::Request(format!("the receipt is not JSON: {error}")))?;
        let call = Call::post("receipt verification", "/receipts/verify".to_owned());
        let call = call.credential(Credential::None).json(document)?;
        self.fetch(call).await
    }

    /// The public keys of the server, verbatim. Needs no key.
    pub async fn jwks(&self) -> Result<String, Error> {
        let call = Call::get("jwks", "/.well-known/jwks.json".to_owned());
        self.text(call.credential(Credential::None), "jwks").await
    }

    async fn text(&self, call: Call, what: &'static str) -> Result<String, Error> {
        let response = self.answer(call).await?;
        String::from_utf8(response.body.to_vec()).map_err(|error| Error::Unreadable {
            what,
            why: error.to_string(),
        })
    }
}
