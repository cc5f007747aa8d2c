//! What handlers read from a request: the body within its limits, and the path.

use axum::extract::{FromRequestParts, Path, Request};
use consign_kernel::error::Code;
use consign_web::body::{self, BodyError};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem_response::BeamProblemResponse;
use crate::beam_id::BeamId;
use crate::text::{self, BeamValue};

/// The largest body of any request.
pub(crate) const BODY_BYTES_MAX: usize = 65_536;

/// The head of a request and its complete body.
pub(crate) async fn whole(request: Request) -> Result<(Parts, Vec<u8>), BeamProblemResponse> {
    let (head, body) = request.into_parts();
    let sender = body::sender(&head.extensions);
    let received = body::receive(body, BODY_BYTES_MAX, body::DEADLINE_DEFAULT, sender).await;
    match received {
        Ok(body) => Ok((head, body.to_vec())),
        Err(BodyError::TooLarge) => Err(BeamProblemResponse::new(
            Code::ShieldPayloadTooLarge,
            "Payload too large (max 64KB)",
        )),
        Err(BodyError::TooSlow) => Err(BeamProblemResponse::new(
            Code::RequestTimeout,
            BodyError::TooSlow.to_string(),
        )),
        Err(BodyError::NoRoom) => Err(BeamProblemResponse::new(
            Code::StoreUnavailable,
            BodyError::NoRoom.to_string(),
        )),
        Err(BodyError::Broken) => Err(BeamProblemResponse::new(
            Code::InvalidJson,
            BodyError::Broken.to_string(),
        )),
    }
}

/// A JSON body of any kind.
pub(crate) fn json(body: &[u8]) -> Result<BeamValue, BeamProblemResponse> {
    text::parse(body).map_err(|_| BeamProblemResponse::new(Code::InvalidJson, "Invalid JSON body"))
}

/// A JSON body that must be an object.
pub(crate) fn json_object(body: &[u8]) -> Result<BeamValue, BeamProblemResponse> {
    let value = json(body)?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(BeamProblemResponse::new(
            Code::InvalidBody,
            "Request body must be a JSON object",
        ))
    }
}

/// A Beam-ID in a path or in a body.
pub(crate) fn beam_id(text: &str) -> Result<BeamId, BeamProblemResponse> {
    let invalid = |_| BeamProblemResponse::new(Code::InvalidBeamId, "Invalid beamId format");
    text.parse().map_err(invalid)
}

/// The parameters of a path, percent-decoded. Bytes that are no text name nothing.
pub(crate) struct PathText<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathText<T> {
    type Rejection = BeamProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, BeamProblemResponse> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let path = path.map_err(|_| BeamProblemResponse::new(Code::NotFound, "Not found"))?;
        Ok(Self(path.0))
    }
}

/// The Beam-ID in a path, percent-decoded.
pub(crate) struct PathBeamId(pub(crate) BeamId);

impl<S: Send + Sync> FromRequestParts<S> for PathBeamId {
    type Rejection = BeamProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, BeamProblemResponse> {
        let invalid = || BeamProblemResponse::new(Code::InvalidBeamId, "Invalid beamId format");
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| invalid())?;
        beam_id(&text).map(Self)
    }
}
