//! What the handlers share: the broker, the credentials of operators, and the policy of the listener.

use std::fmt;

use axum::extract::Request;
use consign_engine::Operator;
use consign_web::body::{self, ReceivedBody};
use consign_web::body_budget::BodySender;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::OperatorCredentials;
use consign_web::operator_guard::{OperatorGuard, admin_caller};
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
    pub(super) operator_guard: OperatorGuard,
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
        let engine = broker.engine().clone();
        Self {
            broker,
            policy,
            operator_guard: OperatorGuard::new(engine, operators, policy.trust_proxy),
            blob_transfers: BlobTransfers::default(),
        }
    }

    /// The operator whom the guard of the routes let in, and the body, which is received only now.
    pub(super) async fn authenticate_operator(
        &self,
        request: Request,
    ) -> Result<(Operator, Parts, ReceivedBody), Reject> {
        let (parts, body) = request.into_parts();
        let operator = admin_caller(&parts)?.operator;
        let sender = BodySender::Trusted;
        let body = body::receive(body, HTTP_BODY_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await?;
        Ok((operator, parts, body))
    }
}
