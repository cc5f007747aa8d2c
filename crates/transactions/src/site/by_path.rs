//! Requests that name their subject in the path, as the older client sends them. Otherwise they equal requests to
//! `/compensate` and `/cancel`: the same idempotency key means the same request.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use super::{CancelledIntent, Site, TransactionAnswer};
use crate::document::{AtpDocument, NOTE_BYTES_MAX};
use crate::fields::DocumentFields;
use crate::problem::Problem;

impl Site {
    /// `POST /transactions/{id}/compensate`.
    pub async fn compensate_named(
        &self,
        transaction_id: &str,
        key: Option<&[u8]>,
        body: &[u8],
    ) -> Result<TransactionAnswer, Problem> {
        let found = self.transaction_by_id(transaction_id).await?;
        let transaction = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        if transaction.value.manual.is_some() {
            return Err(Problem::Unauthorized);
        }
        let named = [
            ("intent_id", transaction.intent_id()),
            ("transaction_id", transaction_id),
        ];
        self.compensate(key, &completed(body, &named)?).await
    }

    /// `POST /intents/{id}/revoke`.
    pub async fn cancel_named(
        &self,
        intent_id: &str,
        key: Option<&[u8]>,
        body: &[u8],
    ) -> Result<CancelledIntent, Problem> {
        let named = [("intent_id", intent_id)];
        self.cancel(key, &completed(body, &named)?).await
    }
}

/// Adds the members that the path implies to the body. A signed body must contain them itself, because the path is
/// not signed.
fn completed(body: &[u8], named: &[(&str, &str)]) -> Result<Vec<u8>, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    let document = AtpDocument::read(body, NOTE_BYTES_MAX)?;
    let fields = DocumentFields::of(&document);
    let unreadable = |_| Problem::InternalError;
    let mut members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(body).map_err(unreadable)?;
    for (name, value) in named {
        match fields.get(name) {
            Some(said) if said.as_str().as_deref() == Some(*value) => {}
            Some(_) => return Err(fields.refuse(name, "differs from the path")),
            None if document.is_signed() => {
                return Err(fields.refuse(
                    name,
                    "must be in a signed body, because the path is not signed",
                ));
            }
            None => {
                let value = to_raw_value(value).map_err(unreadable)?;
                members.insert((*name).to_owned(), value);
            }
        }
    }
    serde_json::to_vec(&members).map_err(unreadable)
}
