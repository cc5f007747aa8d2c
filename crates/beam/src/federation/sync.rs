//! The list of agents of a peer.

use consign_kernel::error::Code;
use serde::Deserialize;
use serde_json::Value;

use super::calls::LIST_BYTES_MAX;
use super::known_agents::DescribedFor;
use super::remote_agent::Description;
use crate::outbound::OutboundError;
use crate::problem::BeamProblem;
use crate::service::Beam;

/// Agents of one list that are read; the others are found when they are asked for.
const AGENTS_MAX: usize = 1_000;

#[derive(Deserialize)]
struct PeerAgentList {
    agents: Vec<Value>,
}

impl Beam {
    /// Reads the agents that a peer lists.
    pub(super) async fn sync_peer(&self, peer_url: &str) -> Result<(), BeamProblem> {
        let failed = |why: String| {
            let text = format!("Failed to sync agents from {peer_url}: {why}");
            BeamProblem::new(Code::FederationError, text)
        };
        let response = self
            .read_peer(peer_url, "/directory/agents", LIST_BYTES_MAX)
            .await
            .map_err(|error| {
                tracing::debug!(%error, peer_url, "the agents of a peer cannot be read");
                if let OutboundError::TooLarge { limit_bytes } = error {
                    failed(format!(
                        "its list of agents is larger than {limit_bytes} bytes"
                    ))
                } else {
                    failed("it did not respond".to_owned())
                }
            })?;
        if !response.status.is_success() {
            return Err(failed(response.status.as_u16().to_string()));
        }
        let list: PeerAgentList = serde_json::from_slice(&response.body)
            .map_err(|_| failed("the response is not a list of agents".to_owned()))?;
        let described: Vec<Description> = list
            .agents
            .iter()
            .take(AGENTS_MAX)
            .filter_map(|agent| Description::parse(agent).ok())
            .collect();
        self.remember_agents(peer_url, &described, DescribedFor::Binding)
            .await?;
        self.note_peer_synced(peer_url).await?;
        Ok(())
    }
}
