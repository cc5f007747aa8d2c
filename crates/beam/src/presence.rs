//! To which node an agent is connected, for the other nodes of the ledger.

use std::time::Duration;

use consign_engine::Error;
use consign_web::websocket::SocketSender;
use tokio::sync::watch;

use crate::directory::records::BeamPresence;
use crate::service::Beam;

/// How often this node looks whether its agents have connected to another node.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// A connection of an agent to this node.
#[derive(Debug)]
pub(crate) struct AgentPresence {
    number: u64,
    /// Ends the claims for the agent.
    _left: watch::Sender<()>,
}

impl Beam {
    /// Connects an agent and greets it. `None` if it has left already.
    pub(crate) async fn connect_agent(
        &self,
        beam_id: &str,
        sender: SocketSender,
        greeting: String,
    ) -> Option<AgentPresence> {
        let sockets = &self.inner.sockets;
        let number = sockets.next();
        if self.inner.node.shared
            && let Err(error) = self.put_presence(beam_id, number).await
        {
            tracing::warn!(%error, beam_id, "other nodes do not know yet where an agent is connected");
        }
        sockets.connect(beam_id, number, sender, greeting).ok()?;
        let (left, mut leave) = watch::channel(());
        if self.inner.node.shared {
            let (beam, beam_id) = (self.clone(), beam_id.to_owned());
            tokio::spawn(async move {
                let leave = async { while leave.changed().await.is_ok() {} };
                beam.serve_lane(&beam_id, leave).await;
            });
        }
        Some(AgentPresence {
            number,
            _left: left,
        })
    }

    pub(crate) async fn disconnect_agent(&self, beam_id: &str, connection: AgentPresence) {
        let was_current = self.inner.sockets.disconnect(beam_id, connection.number);
        if self.inner.node.shared
            && was_current
            && let Err(error) = self.remove_presence(beam_id, connection.number).await
        {
            tracing::warn!(%error, beam_id, "an agent that left is still recorded as connected");
        }
    }

    async fn put_presence(&self, beam_id: &str, connection: u64) -> Result<(), Error> {
        let presence = BeamPresence {
            node: self.inner.node.id,
            connection,
        };
        let key = BeamPresence::key(beam_id);
        self.engine()
            .put(consign_engine::new_put(key, &presence))
            .await?;
        Ok(())
    }

    async fn remove_presence(&self, beam_id: &str, connection: u64) -> Result<(), Error> {
        let own = BeamPresence {
            node: self.inner.node.id,
            connection,
        };
        let key = BeamPresence::key(beam_id);
        self.engine()
            .update(key, |presence: &mut BeamPresence| -> Result<(), Error> {
                if *presence == own {
                    *presence = BeamPresence::default();
                }
                Ok(())
            })
            .await
    }

    /// Closes sockets whose agents have connected to another node since. Runs until the process ends.
    pub async fn watch_presence(self) {
        if !self.inner.node.shared {
            return;
        }
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            for (beam_id, connection) in self.inner.sockets.connections() {
                let key = BeamPresence::key(&beam_id);
                let Ok(Some(presence)) = self.engine().load::<BeamPresence>(key).await else {
                    continue;
                };
                let is_elsewhere =
                    presence.value.node != 0 && presence.value.node != self.inner.node.id;
                if is_elsewhere {
                    let sockets = &self.inner.sockets;
                    sockets.replace_by_other_node(&beam_id, connection);
                }
            }
        }
    }
}
