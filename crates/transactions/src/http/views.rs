//! The bodies of successful responses, made from the results of the site.
//!
//! A body that is built as a value has its members in alphabetical order; a body that is built from a struct has them in the
//! order of the struct, and contains receipts as their exact text.

mod intents;
mod operators;
mod receipts;
mod transactions;
mod users;

use serde_json::Value;
use serde_json::value::RawValue;

/// A stored document as part of a body. Only documents that a JSON parser can read are ever stored.
fn document_value(document: &RawValue) -> Value {
    serde_json::from_str(document.get()).expect("a stored document is readable")
}
