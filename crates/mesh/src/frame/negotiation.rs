//! Which features a daemon needs and a broker has; [`crate::features`] decides what follows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The features that a daemon cannot run without, and those that it would use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureRequest {
    #[serde(default)]
    pub require: Vec<String>,
    #[serde(default)]
    pub optional: Vec<String>,
}

/// The features of a broker with their parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FeatureResponse {
    #[serde(default)]
    pub supported: BTreeMap<String, FeatureOffer>,
    #[serde(default)]
    pub missing_required: Vec<String>,
}

/// One feature of a broker. The daemon validates the parameters itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FeatureOffer {
    #[serde(default)]
    pub params: Map<String, Value>,
}
