//! Announces the name of the daemon: the broker changes it for all connections of the member, and tells peers.
//!
//! Invariant: a name is announced once. Until the broker has answered, a file says that it is still to be announced, so a
//! daemon that ends before its first connection does it at the next start.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::identity::KEYPAIR_FILE;
use super::line::{BrokerLine, LineError};
use super::shared::{DaemonShared, LinkState, MemberKeys};
use crate::frame::{ClientFrame, ListPeers, SetProfile};
use crate::id::DisplayName;

/// The pause after a question that the broker has not answered.
const AGAIN: Duration = Duration::from_mins(1);

/// Runs until the name is announced or the daemon ends.
pub(super) async fn announce(shared: Arc<DaemonShared>) {
    let mut lines = shared.line.subscribe();
    while shared.keys().identity.announces_name {
        let line = tokio::select! {
            opened = lines.wait_for(|state| matches!(state, LinkState::Open(_))) => match opened {
                Ok(state) => match &*state {
                    LinkState::Open(line) => Arc::clone(line),
                    LinkState::Connecting | LinkState::Closed => continue,
                },
                Err(_) => return,
            },
            _ = shared.until_end() => return,
        };
        if shared.announce_over(&line).await {
            return;
        }
        tokio::select! {
            () = line.until_closed() => {}
            () = tokio::time::sleep(AGAIN) => {}
            _ = shared.until_end() => return,
        }
    }
}

impl DaemonShared {
    /// Returns whether the broker has answered.
    async fn announce_over(&self, line: &BrokerLine) -> bool {
        let name = self.keys().identity.display_name.clone();
        let name = name.as_deref().map(DisplayName::parse);
        let Some(Ok(name)) = name else {
            self.log
                .warn("rename_refused", &json!({"error": "invalid name"}));
            self.name_is_announced().await;
            return true;
        };
        if name.as_str() == line.terms.display_name {
            self.name_is_announced().await;
            return true;
        }
        let rename = SetProfile {
            display_name: Some(name.clone()),
            ..SetProfile::default()
        };
        let rename = ClientFrame::from(rename);
        match line
            .ask_after(Some(rename), ListPeers::default().into())
            .await
        {
            Ok(_) => {
                line.rename(name.as_str());
                self.log.info("renamed", &json!({"name": name.as_str()}));
            }
            Err(LineError::Refused(refusal)) => {
                let fields = json!({"code": refusal.code, "error": refusal.message});
                self.log.warn("rename_refused", &fields);
            }
            Err(LineError::Closed | LineError::NoAnswer) => return false,
        }
        self.name_is_announced().await;
        true
    }

    async fn name_is_announced(&self) {
        // A change of the key holds the archive from its first step to its last.
        let archive = self.archive.lock().await;
        let mut identity = self.keys().identity.clone();
        identity.announces_name = false;
        if let Err(error) = identity.store(KEYPAIR_FILE) {
            // It is announced once more at the next start, which changes nothing.
            let fields = json!({"error": error.to_string()});
            self.log.warn("keypair_not_written", &fields);
        }
        self.set_keys(MemberKeys::new(identity, &archive));
    }
}
