//! `POST /join`: a signed invite and the key that joins.

use serde::{Deserialize, Serialize};

use super::InvalidBody;
use crate::id::{DisplayName, MemberId};
use crate::invite::{InvitePayload, JoinRefusal};
use crate::keys::MeshPublicKey;

/// A request to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinRequest {
    pub token: String,
    pub payload: InvitePayload,
    pub pubkey: MeshPublicKey,
    pub display_name: DisplayName,
}

#[derive(Deserialize)]
struct JoinBody {
    invite_token: String,
    #[serde(default)]
    invite_payload: Option<InvitePayload>,
    peer_pubkey: MeshPublicKey,
    display_name: DisplayName,
}

impl JoinRequest {
    /// Reads the body. The payload beside the token counts; the broker compares it with the one inside of the token.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidBody> {
        let read: JoinBody =
            serde_json::from_slice(body).map_err(|error| InvalidBody(error.to_string()))?;
        let inside = InvitePayload::parse(&read.invite_token).ok();
        let payload = read.invite_payload.or(inside);
        let payload = payload.ok_or_else(|| InvalidBody("missing invite_payload".to_owned()))?;
        Ok(Self {
            token: read.invite_token,
            payload,
            pubkey: read.peer_pubkey,
            display_name: read.display_name,
        })
    }
}

/// The answer: 200 with `ok`, or 400 with the word of the refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinAnswer {
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub already_member: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl JoinAnswer {
    pub fn joined(member: &MemberId, already: bool) -> Self {
        Self {
            ok: true,
            member_id: Some(member.to_string()),
            already_member: already.then_some(true),
            error: None,
        }
    }

    pub fn refused(refusal: JoinRefusal) -> Self {
        Self {
            ok: false,
            member_id: None,
            already_member: None,
            error: Some(refusal.as_str().to_owned()),
        }
    }

    pub const fn status(&self) -> u16 {
        if self.ok { 200 } else { 400 }
    }
}
