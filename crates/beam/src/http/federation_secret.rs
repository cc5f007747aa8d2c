//! The secret that directories share. No other header proves that a request comes from a directory.

use consign_kernel::error::Code;
use consign_kernel::plant::{self, Plant};
use consign_web::throttle::{STRONG_CHARS_MIN, Throttled};
use http::{Extensions, HeaderMap};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::BeamFace;
use super::problem_response::BeamProblemResponse;
use crate::problem::BeamProblem;

const HEADER: &str = "x-beam-federation-secret";

/// What a request proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FederationProof {
    Directory,
    /// The request has no secret.
    Absent,
    /// The request has a wrong secret, or several.
    Wrong,
}

impl FederationProof {
    pub(super) fn of(face: &BeamFace, headers: &HeaderMap, extensions: &Extensions) -> Self {
        let mut all = headers.get_all(HEADER).iter();
        let Some(presented) = all.next() else {
            return Self::Absent;
        };
        let secret = face.beam.settings().federation_secret.as_ref();
        let secret = secret.map(|secret| secret.reveal().as_bytes());
        let matches = secret.is_some_and(|secret| is_equal(secret, presented.as_bytes()));
        // After too many wrong secrets, a right guess must look like a wrong one.
        let may_be_guess =
            presented.len() < STRONG_CHARS_MIN && extensions.get::<Throttled>().is_some();
        if matches && !may_be_guess && all.next().is_none() {
            Self::Directory
        } else {
            Self::Wrong
        }
    }

    /// Refuses a request that does not come from a directory.
    pub(super) fn require(self) -> Result<(), BeamProblemResponse> {
        let problem = || {
            let text = "Federation authentication required";
            BeamProblem::new(Code::FederationUnauthorized, text)
        };
        match self {
            Self::Directory => Ok(()),
            Self::Absent if plant::on(Plant::OpenFederation) => Ok(()),
            Self::Absent => Err(problem().into()),
            Self::Wrong => Err(BeamProblemResponse::wrong_credential(problem())),
        }
    }
}

/// Compares digests, so that the time reveals neither a byte nor the length. An empty secret matches nothing.
fn is_equal(secret: &[u8], presented: &[u8]) -> bool {
    let is_same = Sha256::digest(secret).ct_eq(&Sha256::digest(presented));
    !secret.is_empty() && bool::from(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_matches_itself_only_and_an_empty_one_nothing() {
        assert!(is_equal(b"secret", b"secret"));
        assert!(!is_equal(b"secret", b"secre"));
        assert!(!is_equal(b"secret", b""));
        assert!(!is_equal(b"", b""));
    }
}
