//! How many bytes an address of another machine may send in a minute where they may be stored, because anyone may register an
//! agent and send intents. Operators, and programs on this machine, have no such limit.

use axum::body::HttpBody as _;
use axum::extract::Request;
use consign_kernel::error::Code;
use http::request::Parts;

use super::BeamFace;
use super::access::BeamAccess;
use super::problem_response::BeamProblemResponse;
use super::receive::{self, BODY_BYTES_MAX};

impl BeamFace {
    /// Whether a request is neither from this machine nor from an operator.
    pub(super) async fn is_stranger(
        &self,
        access: &BeamAccess,
    ) -> Result<bool, BeamProblemResponse> {
        Ok(!access.loopback && access.session(self).await?.is_none())
    }

    /// The head and the complete body of a request that may store it.
    pub(super) async fn receive_stored(
        &self,
        request: Request,
    ) -> Result<(Parts, Vec<u8>), BeamProblemResponse> {
        let (parts, body) = request.into_parts();
        let access = BeamAccess::of(self, &parts);
        if !self.is_stranger(&access).await? {
            return receive::whole(Request::from_parts(parts, body)).await;
        }
        // Without an announced length, the body may have the maximal length.
        let announced = body.size_hint().upper();
        let announced = announced.and_then(|bytes| usize::try_from(bytes).ok());
        let announced = announced.map_or(BODY_BYTES_MAX, |bytes| bytes.min(BODY_BYTES_MAX));
        let trust_proxy = self.policy.trust_proxy;
        let allowance = &self.beam.inner.stranger_bytes;
        let taken = allowance
            .take(&parts.extensions, &parts.headers, trust_proxy, announced)
            .map_err(|_| {
                let text = "This address has sent too many bytes in this minute";
                BeamProblemResponse::new(Code::RateLimited, text)
            })?;
        let received = receive::whole(Request::from_parts(parts, body)).await;
        if let Ok((_, body)) = &received {
            taken.give_back(announced.saturating_sub(body.len()));
        }
        received
    }
}
