//! Who sends a request: a program on this machine, an agent with its API key, or an operator with a session.

use consign_web::credentials::{self, SecretDigest};
use consign_web::proxy::Origin;
use consign_web::secret_text::SecretText;
use consign_web::server::Peer;
use http::HeaderMap;
use http::request::Parts;

use super::BeamFace;
use crate::api_key;
use crate::directory::AgentProof;
use crate::directory::records::Agent;
use crate::problem::BeamProblem;

const FEDERATION_SECRET: &str = "x-beam-federation-secret";

/// The credentials of a request, not yet checked.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The routes that the protocol leaves open are open to this request.
    pub(crate) local: bool,
    /// The text of `x-api-key`, or of `Authorization: Bearer`.
    key: Option<String>,
    bearer: Option<String>,
}

/// Whose intents a request may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IntentReader {
    All,
    /// Those that this agent sent or received.
    Only(String),
}

impl Access {
    pub(crate) fn of(face: &BeamFace, parts: &Parts) -> Self {
        let trust_proxy = face.policy.trust_proxy;
        let peer = parts.extensions.get::<Peer>();
        // A request without an address came over the Unix socket of this server, which checks its peer.
        let loopback =
            peer.is_none_or(|peer| Origin::of(*peer, &parts.headers, trust_proxy).loopback);
        let bearer = credentials::bearer(&parts.headers).map(str::to_owned);
        Self {
            local: loopback || face.beam.settings().open,
            key: header(&parts.headers, "x-api-key").or_else(|| bearer.clone()),
            bearer,
        }
    }

    /// An API key from the query of a socket.
    pub(crate) fn set_key(&mut self, key: &str) {
        self.key = Some(key.to_owned());
    }

    /// Whose intents the request may read.
    pub(crate) async fn intent_reader(&self, face: &BeamFace) -> Result<IntentReader, BeamProblem> {
        if self.local {
            return Ok(IntentReader::All);
        }
        match self.agent(face).await? {
            Some(agent) => Ok(IntentReader::Only(agent.beam_id)),
            None => Err(BeamProblem::unauthorized()),
        }
    }

    /// The bearer token, for sessions of operators.
    pub(crate) fn bearer(&self) -> Option<&str> {
        self.bearer.as_deref()
    }

    /// Whether the request has a session of an operator with the role admin.
    ///
    /// There are no sessions yet, so no bearer token is one.
    pub(crate) async fn is_admin(&self, _face: &BeamFace) -> Result<bool, BeamProblem> {
        let _session = self.bearer();
        std::future::ready(Ok(false)).await
    }

    /// Whether the request presents an API key or a bearer token, right or wrong.
    pub(crate) fn has_credential(&self) -> bool {
        self.key.is_some()
    }

    /// What the request proves by its credentials. A signature is added by routes that accept one.
    pub(crate) async fn proof(&self, face: &BeamFace) -> Result<AgentProof, BeamProblem> {
        Ok(AgentProof {
            api_key: self.key.clone().map(SecretText::new),
            is_admin: self.is_admin(face).await?,
            signature: None,
        })
    }

    /// Whether the request has the API key of this agent.
    pub(crate) fn is_agent(&self, agent: &Agent) -> bool {
        let (Some(key), Some(hash)) = (&self.key, &agent.api_key_hash) else {
            return false;
        };
        api_key::matches(hash, key)
    }

    /// The agent whose API key the request has.
    pub(crate) async fn agent(&self, face: &BeamFace) -> Result<Option<Agent>, BeamProblem> {
        let Some(beam_id) = self.key.as_deref().and_then(api_key::claimed_beam_id) else {
            return Ok(None);
        };
        let found = face.beam.agent(&beam_id).await?;
        Ok(found.filter(|agent| self.is_agent(agent)))
    }
}

/// Whether the request comes from another directory, which presents the shared secret.
pub(crate) fn is_federated(face: &BeamFace, headers: &HeaderMap) -> bool {
    let secret = face.beam.settings().federation_secret.as_ref();
    let presented = header(headers, FEDERATION_SECRET);
    let (Some(secret), Some(presented)) = (secret, presented) else {
        return false;
    };
    SecretDigest::new(secret.reveal().to_owned()).matches(&presented)
}

pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut all = headers.get_all(name).iter();
    let only = all.next().filter(|_| all.next().is_none())?;
    Some(only.to_str().ok()?.to_owned())
}
