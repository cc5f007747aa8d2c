//! What a member lets others do.

use serde::{Deserialize, Serialize};

use crate::keys::MeshPublicKey;
use crate::role::{PeerGrant, PeerGrants};

/// Replaces what one member may do. An empty list blocks it; without a list it may do what members may by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetGrants {
    /// The key of the member, present or former.
    pub member: MeshPublicKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<PeerGrant>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListGrants {}

/// The answer to both: the members for which there is a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantsList {
    pub grants: PeerGrants,
}
