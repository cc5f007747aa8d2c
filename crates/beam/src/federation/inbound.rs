//! Intents that another directory relays to this one.

use consign_kernel::plant::{self, Plant};

use crate::frame::IntentFrame;
use crate::relay::{HOPS_MAX, Ingress, RelayError};
use crate::service::Beam;

/// A directory may relay as much in a minute as so many senders.
pub(crate) const SENDERS_PER_SOURCE: u32 = 10;

impl Beam {
    /// Relays an intent of an agent of another directory, which must be an active peer. `address` is where the request
    /// came from: all directories share one secret, so none can use up the allowance of another one.
    pub async fn relay_from_peer(
        &self,
        frame: IntentFrame,
        source: &str,
        hops: u32,
        address: &str,
    ) -> Result<String, RelayError> {
        if hops > HOPS_MAX && !plant::on(Plant::EndlessRelay) {
            let text = format!("Federation hop limit exceeded ({HOPS_MAX})");
            return Err(RelayError::BadRequest(text));
        }
        let Some(peer) = self.active_peer(source).await? else {
            let text = "The source directory is not a registered peer";
            return Err(RelayError::Forbidden(text.to_owned()));
        };
        let source = peer.directory_url;
        if !self
            .inner
            .source_rate
            .charge(&format!("{address} {source}"))
        {
            return Err(RelayError::RateLimited(source));
        }
        self.relay(frame, Ingress::Federation { source, hops })
            .await
    }
}
