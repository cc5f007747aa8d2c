//! The intents that an earlier start of this node left open.

use consign_engine::Error;
use consign_kernel::command::Recover;
use consign_kernel::profile::Face;

use crate::service::Beam;

/// Rows of one commit of the recovery.
const RECOVER_ROWS: u32 = 500;

impl Beam {
    /// Fails intents that were dispatched, and queues messages of the bus again. A delivered intent stays open until its
    /// timeout, which is the end of its lease; a late result may still end it.
    pub async fn recover(&self) -> Result<usize, Error> {
        let node = &self.inner.node;
        let recover = Recover {
            face: Face::Beam,
            node: node.name.clone(),
            start: node.start.clone(),
            limit: RECOVER_ROWS,
        };
        let recovered = self.engine().recover(&recover).await?.len();
        Ok(recovered + self.recover_received().await?)
    }
}
