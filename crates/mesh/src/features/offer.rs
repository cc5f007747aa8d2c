//! What this broker offers, and its answer to a request.

use serde_json::{Map, Value, json};

use super::{CONCURRENT, DEDUPE, MAX_PAYLOAD, ROTATED};
use crate::frame::{FeatureOffer, FeatureRequest, FeatureResponse};
use crate::limits::{BLOB_BYTES_MAX, INLINE_BYTES_MAX};
use crate::max_age::DedupeWindow;
use crate::role::ClonePolicy;

/// The settings of a mesh that its features name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerOffer {
    pub window: DedupeWindow,
    pub clone_policy: ClonePolicy,
    /// Off by the rollback switch: fingerprints are neither compared nor offered.
    pub compares_fingerprints: bool,
}

/// All features are named, also those that were not asked for; what is required and missing is listed.
pub fn answer(offer: &BrokerOffer, request: &FeatureRequest) -> FeatureResponse {
    let mut response = FeatureResponse::default();
    if offer.compares_fingerprints {
        let mut params = params(json!({"version": 2, "request_fingerprint": true}));
        match offer.window {
            DedupeWindow::Permanent => {
                params.insert("mode".to_owned(), json!("permanent"));
            }
            DedupeWindow::Days(days) => {
                params.insert("mode".to_owned(), json!("retention_scoped"));
                params.insert("dedupe_retention_days".to_owned(), json!(days));
            }
        }
        response
            .supported
            .insert(DEDUPE.to_owned(), FeatureOffer { params });
    }
    let policy = json!({"version": 1, "default_policy": offer.clone_policy.as_str()});
    let payload =
        json!({"version": 1, "inline_bytes": INLINE_BYTES_MAX, "blob_bytes": BLOB_BYTES_MAX});
    for (name, params_of) in [
        (CONCURRENT, policy),
        (ROTATED, json!({"version": 1})),
        (MAX_PAYLOAD, payload),
    ] {
        let params = params(params_of);
        response
            .supported
            .insert(name.to_owned(), FeatureOffer { params });
    }
    let is_missing = |name: &&String| !response.supported.contains_key(*name);
    response.missing_required = request.require.iter().filter(is_missing).cloned().collect();
    response
}

fn params(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(params) => params,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
