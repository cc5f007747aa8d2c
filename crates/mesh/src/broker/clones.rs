//! Members whose daemon connects from another machine than before: an image, a backup or a home directory was copied.
//!
//! The broker reports it and admits the connection, because hardware is replaced as well; what happens to two daemons of one
//! member that are connected at the same time is decided by the policy of the mesh, see [`crate::concurrent`]. It is no
//! defence against an attacker, who can copy the fingerprint with the keys.

use serde_json::json;

use super::records::{MeshMember, MeshRecord};
use super::{Broker, BrokerMetric};

/// The event in the log, in the metrics and to the admins of the mesh.
const SUSPECTED: &str = "member_clone_suspected";
/// As much of a fingerprint as reports show.
const PREFIX_DIGITS: usize = 16;

impl Broker {
    /// Keeps the machine of a member's daemon, and reports a change.
    pub(super) async fn note_host(&self, mesh: &MeshRecord, member: &MeshMember, host: &str) {
        let host = host.to_ascii_lowercase();
        let last = member.last_seen_host_fingerprint.as_deref();
        if last == Some(host.as_str()) {
            return;
        }
        let now = self.wall_ms();
        let kept = self.change_member(&mesh.id, &member.id, |member| {
            let last = member.last_seen_host_fingerprint.replace(host.clone());
            if last.is_some_and(|last| last != host) {
                member.clone_suspected_at = Some(now);
            }
        });
        if let Err(error) = kept.await {
            tracing::warn!(%error, member = member.id, "the machine of a member was not stored");
        }
        if let Some(last) = last {
            self.report_clone(mesh, member, last, &host).await;
        }
    }

    async fn report_clone(&self, mesh: &MeshRecord, member: &MeshMember, last: &str, host: &str) {
        let prefix = |fingerprint: &str| fingerprint[..PREFIX_DIGITS].to_owned();
        let (last, host) = (prefix(last), prefix(host));
        tracing::warn!(
            event = SUSPECTED,
            mesh = mesh.id,
            member = member.id,
            name = member.display_name,
            policy = mesh.clone_policy.as_str(),
            last_host = last,
            host,
            "the daemon of a member connected from another machine than before"
        );
        self.counters()
            .count(BrokerMetric::CLONES_SUSPECTED, &[&mesh.id]);
        let data = json!({
            "member_id": member.id,
            "pubkey": member.pubkey,
            "name": member.display_name,
            "last_host_fingerprint_prefix": last,
            "host_fingerprint_prefix": host,
            "policy": mesh.clone_policy,
        });
        match self.roster(&mesh.id).await {
            Ok(roster) => self.tell_admins(&mesh.id, &roster, SUSPECTED, &data),
            Err(error) => tracing::warn!(%error, "the admins of a mesh were not told"),
        }
    }
}
