//! Feature negotiation: what a broker offers, and whether a daemon can work with it.
//!
//! Invariant: a daemon runs only if every required feature is offered with valid parameters; nothing is degraded silently.
//! Invalid optional parameters are replaced by the daemon's own value and reported.

mod offer;
mod parameters;
#[cfg(test)]
mod tests;

use crate::close::{MeshCloseCode, MeshCloseReason};
use crate::frame::FeatureResponse;
use crate::max_age::DedupeWindow;

pub use offer::{BrokerOffer, answer};
pub use parameters::{FeatureParameters, ParameterWarning};

pub const DEDUPE: &str = "client_message_id_dedupe";
pub const CONCURRENT: &str = "concurrent_connection_policy";
pub const ROTATED: &str = "member_keypair_rotated_event";
pub const KEY_EPOCH: &str = "key_epoch";
pub const MAX_PAYLOAD: &str = "max_payload";

/// What a daemon requires unless its settings say otherwise.
pub const REQUIRED: &[&str] = &[DEDUPE, CONCURRENT];
pub const OPTIONAL: &[&str] = &["mesh_skill_share", "mcp_host", MAX_PAYLOAD];

/// The version of the dedupe parameters without a comparison of fingerprints. It counts as a missing feature.
const DEDUPE_WITHOUT_FINGERPRINT: i64 = 1;
const DEDUPE_VERSION: i64 = 2;
const VERSION: i64 = 1;

/// What a daemon needs of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureNeeds {
    pub require: Vec<String>,
    pub optional: Vec<String>,
    /// A shorter window is refused.
    pub dedupe_days_min: u32,
}

impl Default for FeatureNeeds {
    fn default() -> Self {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Self {
            require: owned(REQUIRED),
            optional: owned(OPTIONAL),
            dedupe_days_min: crate::limits::DEDUPE_DAYS_MIN,
        }
    }
}

/// What was agreed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// The features that both have, required or optional.
    pub features: Vec<String>,
    /// `None` if the daemon does not require it and the broker does not offer it.
    pub dedupe_window: Option<DedupeWindow>,
    pub inline_bytes: Option<u64>,
    pub blob_bytes: Option<u64>,
    pub warnings: Vec<ParameterWarning>,
}

/// Why a daemon cannot work with a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiationFailure {
    pub code: MeshCloseCode,
    pub feature: String,
    pub detail: String,
}

impl NegotiationFailure {
    pub(crate) fn unavailable(feature: &str, detail: &str) -> Self {
        Self::new(MeshCloseCode::FeatureUnavailable, feature, detail)
    }

    pub(crate) fn invalid(feature: &str, detail: impl Into<String>) -> Self {
        Self::new(MeshCloseCode::FeatureParamInvalid, feature, detail)
    }

    fn new(code: MeshCloseCode, feature: &str, detail: impl Into<String>) -> Self {
        Self {
            code,
            feature: feature.to_owned(),
            detail: detail.into(),
        }
    }

    /// No answer in time: the broker does not know the request.
    pub fn no_answer(needs: &FeatureNeeds) -> Self {
        let feature = needs.require.first().map_or(DEDUPE, String::as_str);
        Self::unavailable(feature, "no answer to the negotiation")
    }

    pub fn reason(&self) -> MeshCloseReason {
        MeshCloseReason {
            kind: self.code.reason().to_owned(),
            feature: self.feature.clone(),
            detail: self.detail.clone(),
        }
    }
}

/// Validates the answer of a broker.
pub fn negotiate(
    needs: &FeatureNeeds,
    response: &FeatureResponse,
) -> Result<Negotiated, NegotiationFailure> {
    let mut negotiated = Negotiated {
        features: Vec::new(),
        dedupe_window: None,
        inline_bytes: None,
        blob_bytes: None,
        warnings: Vec::new(),
    };
    for feature in &needs.require {
        let offered = response.supported.get(feature);
        let offered = offered.filter(|_| !response.missing_required.contains(feature));
        let Some(offer) = offered else {
            return Err(NegotiationFailure::unavailable(
                feature,
                "the broker does not have it",
            ));
        };
        let mut parameters = FeatureParameters::new(feature, &offer.params);
        take(&mut negotiated, &mut parameters, needs.dedupe_days_min)?;
        negotiated.warnings.extend(parameters.into_warnings());
    }
    let optional = needs
        .optional
        .iter()
        .filter(|feature| !needs.require.contains(*feature));
    for feature in optional {
        let Some(offer) = response.supported.get(feature) else {
            continue;
        };
        let mut parameters = FeatureParameters::new(feature, &offer.params);
        // An optional feature with invalid parameters is not used, and reported.
        match take(&mut negotiated, &mut parameters, needs.dedupe_days_min) {
            Ok(()) => negotiated.warnings.extend(parameters.into_warnings()),
            Err(failure) => negotiated.warnings.push(ParameterWarning {
                feature: feature.clone(),
                param: "params".to_owned(),
                reason: failure.detail,
            }),
        }
    }
    Ok(negotiated)
}

/// Validates the parameters of one feature and stores what they say.
fn take(
    negotiated: &mut Negotiated,
    parameters: &mut FeatureParameters<'_>,
    days_min: u32,
) -> Result<(), NegotiationFailure> {
    match parameters.feature() {
        DEDUPE => {
            parameters.require_dedupe_version(DEDUPE_WITHOUT_FINGERPRINT, DEDUPE_VERSION)?;
            parameters.require_true("request_fingerprint")?;
            negotiated.dedupe_window = Some(parameters.dedupe_window(days_min)?);
            parameters.optional_integer("tombstone_history_pruned_window_days", 0);
        }
        CONCURRENT => {
            parameters.require_version(VERSION)?;
            parameters.optional_policy("default_policy");
        }
        KEY_EPOCH => {
            parameters.require_version(VERSION)?;
            parameters.require_integer("max_concurrent_epochs", 1)?;
        }
        MAX_PAYLOAD => {
            parameters.require_version(VERSION)?;
            let inline_bytes = parameters.require_integer("inline_bytes", 1_024)?;
            let blob_bytes = parameters.require_integer("blob_bytes", 1_024)?;
            negotiated.inline_bytes = Some(inline_bytes);
            negotiated.blob_bytes = Some(blob_bytes);
        }
        _ => parameters.require_version(VERSION)?,
    }
    negotiated.features.push(parameters.feature().to_owned());
    Ok(())
}
