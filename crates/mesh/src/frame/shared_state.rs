//! Values that the members of a mesh share.

use serde::{Deserialize, Serialize};

use super::RawJson;
use crate::id::StateKey;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetState {
    pub key: StateKey,
    pub value: RawJson,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetState {
    pub key: StateKey,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListState {}

/// Another member set a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateChange {
    pub key: String,
    pub value: RawJson,
    pub updated_by: String,
}

/// The answer to [`GetState`]; a key that was never set has the value `null`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateResult {
    pub key: String,
    pub value: RawJson,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
}

/// The answer to [`ListState`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateList {
    pub entries: Vec<StateEntry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateEntry {
    pub key: String,
    pub value: RawJson,
    pub updated_at: String,
    pub updated_by: String,
}
