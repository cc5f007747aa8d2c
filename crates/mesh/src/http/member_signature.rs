//! Requests that a member signs with its key, for programs that have no API key: the daemon above all.
//!
//! The signature covers mesh, key, method, path and time, and holds for a minute. It may be repeated in that time, so it is
//! accepted only where a repetition does nothing else than the first request.

use consign_kernel::error::Code;
use consign_web::reject::Reject;
use http::request::Parts;

use super::face::MeshFace;
use super::operators::rejection;
use crate::broker::KeyHolder;
use crate::keys::MeshPublicKey;
use crate::limits::HELLO_SKEW_MS_MAX;
use crate::role::{ApiCapability, ApiScope};
use crate::signed_text::MeshSignedText;

const MESH: &str = "x-mesh-id";
const MEMBER: &str = "x-mesh-member";
const TIMESTAMP: &str = "x-mesh-timestamp";
pub(super) const SIGNATURE: &str = "x-mesh-signature";

impl MeshFace {
    /// The member that signed a request.
    pub(super) async fn signing_member(&self, parts: &Parts) -> Result<KeyHolder, Reject> {
        let refused = |text: &'static str| Reject::new(Code::Unauthorized, text);
        let header = |name: &str| {
            let value = parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok());
            value.ok_or_else(|| refused("A signed request needs four headers X-Mesh-*."))
        };
        let (mesh_id, member) = (header(MESH)?, header(MEMBER)?);
        let timestamp: Result<u64, _> = header(TIMESTAMP)?.parse();
        let timestamp = timestamp.map_err(|_| refused("X-Mesh-Timestamp is milliseconds."))?;
        let now = u64::try_from(self.broker.wall().0 / 1_000).unwrap_or(0);
        if now.abs_diff(timestamp) > HELLO_SKEW_MS_MAX {
            return Err(refused(
                "The time of the signature is more than a minute off.",
            ));
        }
        let key = MeshPublicKey::parse(member).map_err(|_| refused("X-Mesh-Member is a key."))?;
        let text = MeshSignedText::http(
            mesh_id,
            &key.to_string(),
            parts.method.as_str(),
            parts.uri.path(),
            timestamp,
        );
        let wrong = || refused("The signature is not that of a member.").of_wrong_credential();
        if !text.verify(key, header(SIGNATURE)?) {
            return Err(wrong());
        }
        let member = self.broker.active_member(mesh_id, key).await;
        let (mesh, member) = member.map_err(rejection)?.ok_or_else(wrong)?;
        Ok(KeyHolder {
            mesh,
            member,
            scope: ApiScope {
                capabilities: ApiCapability::ALL.to_vec(),
                topics: None,
            },
        })
    }
}
