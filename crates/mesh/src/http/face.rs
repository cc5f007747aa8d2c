//! What the handlers share: the broker, the credentials of operators, and the policy of the listener.

use std::fmt;
use std::sync::Arc;

use axum::extract::Request;
use consign_engine::Operator;
use consign_web::body::{self, ReceivedBody};
use consign_web::body_budget::BodySender;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::reject::Reject;
use http::request::Parts;

use super::blob_transfers::BlobTransfers;
use crate::broker::Broker;
use crate::limits::HTTP_BODY_BYTES_MAX;

/// The state of every handler.
#[derive(Clone)]
pub(crate) struct MeshFace {
    pub(crate) broker: Broker,
    pub(crate) policy: ListenerPolicy,
    operators: Arc<OperatorCredentials>,
    /// Uploads and downloads of files at the same time.
    pub(super) blob_transfers: BlobTransfers,
}

impl fmt::Debug for MeshFace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeshFace")
    }
}

impl MeshFace {
    pub(super) fn new(
        broker: Broker,
        operators: OperatorCredentials,
        policy: ListenerPolicy,
    ) -> Self {
        Self {
            broker,
            policy,
            operators: Arc::new(operators),
            blob_transfers: BlobTransfers::default(),
        }
    }

    /// A request with an operator's credentials, which are checked before the body is received.
    pub(super) async fn authenticate_operator(
        &self,
        request: Request,
    ) -> Result<(Operator, Parts, ReceivedBody), Reject> {
        let (parts, body) = request.into_parts();
        let operator = self.operators.require(&parts)?;
        let sender = BodySender::Trusted;
        let body = body::receive(body, HTTP_BODY_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await?;
        Ok((operator, parts, body))
    }
}
