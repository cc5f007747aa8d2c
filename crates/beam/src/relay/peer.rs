//! Delivery to another directory.

use consign_kernel::intent::Intent;

use super::{Ingress, RelayError, details};
use crate::frame::IntentFrame;
use crate::service::Beam;

impl Beam {
    /// The key of an agent of another directory.
    pub(super) async fn federated_key(
        &self,
        _beam_id: &str,
        _source: &str,
    ) -> Result<Option<String>, RelayError> {
        Ok(None)
    }

    pub(super) async fn route_to_peer(
        &self,
        _frame: &IntentFrame,
        _ingress: &Ingress,
        row: Intent,
    ) -> Result<String, RelayError> {
        let error = RelayError::Offline;
        let details = details::failed("federation", "OFFLINE");
        self.fail_undelivered(&row, &details, &error).await?;
        Err(error)
    }
}
