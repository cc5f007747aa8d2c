//! A rotation of the key whose answer was lost: the broker says at the next hello which key it knows.

use serde_json::json;

use super::identity::{DaemonIdentity, IdentityError};
use super::shared::{DaemonShared, MemberKeys};

impl DaemonShared {
    /// The broker knows the current key, so a rotation that was interrupted has not happened.
    pub(super) async fn keep_current_key(&self) {
        let mut identity = self.keys().identity.clone();
        if identity.next.is_some() {
            let kept = identity.discard_next();
            self.store_identity(kept.map(|()| identity)).await;
        }
    }

    /// The broker does not know the current key. Returns whether there is another one to try.
    pub(super) async fn adopt_next_key(&self) -> bool {
        let keys = self.keys();
        if keys.identity.next.is_none() {
            return false;
        }
        self.store_identity(keys.identity.adopt_next()).await
    }

    async fn store_identity(&self, identity: Result<DaemonIdentity, IdentityError>) -> bool {
        match identity {
            Ok(identity) => {
                let archive = self.archive.lock().await;
                let _sealing = self.sealing.write().await;
                let fields = json!({"pubkey": identity.key.public_key()});
                self.log.info("key_rotation_resolved", &fields);
                self.set_keys(MemberKeys::new(identity, &archive));
                true
            }
            Err(error) => {
                let fields = json!({"error": error.to_string()});
                self.log.error("key_rotation_unresolved", &fields);
                false
            }
        }
    }
}
