//! Who sends a request: a program on this machine, an agent with its API key, or an operator with a session.

use std::net::IpAddr;

use consign_web::credentials::{self, SecretDigest};
use consign_web::cross_site::is_cross_site;
use consign_web::proxy::Origin;
use consign_web::rate_limit::counted_address;
use consign_web::secret_text::SecretText;
use consign_web::server::Peer;
use http::HeaderMap;
use http::header::COOKIE;
use http::request::Parts;

use super::BeamFace;
use crate::api_key;
use crate::directory::AgentProof;
use crate::directory::records::Agent;
use crate::problem::BeamProblem;
use crate::sessions::{OperatorSession, Role};

/// The cookie that holds the token of a session.
pub(crate) const SESSION_COOKIE: &str = "beam_admin_session";

const FEDERATION_SECRET: &str = "x-beam-federation-secret";

/// The credentials of a request, not yet checked.
#[derive(Clone, Debug)]
pub(crate) struct BeamAccess {
    /// The routes that the protocol leaves open are open to this request.
    pub(crate) local: bool,
    /// The request comes from a program on this machine. No setting extends this to others.
    pub(crate) loopback: bool,
    pub(crate) cookie: CookieRule,
    /// The text of `x-api-key`, or of `Authorization: Bearer`.
    key: Option<String>,
    /// The token of a session: the bearer token, or the cookie. A page of another site can make a browser send the
    /// cookie, so its requests have none.
    session_token: Option<String>,
}

/// How the response to a request may set the cookie of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieRule {
    /// A browser sent the request for a page of another site.
    Never,
    Plain,
    /// The connection of the client is encrypted, and the cookie must not be sent over another one.
    Secure,
}

/// Whose intents a request may read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum IntentReader {
    All,
    /// Those that this agent sent or received.
    Only(Box<Agent>),
}

impl BeamAccess {
    pub(crate) fn of(face: &BeamFace, parts: &Parts) -> Self {
        let trust_proxy = face.policy.trust_proxy;
        let peer = parts.extensions.get::<Peer>();
        let origin = peer.map(|peer| Origin::of(*peer, &parts.headers, trust_proxy));
        // A request without an address came over the Unix socket of this server, which checks its peer.
        let loopback = origin.is_none_or(|origin| origin.loopback);
        let bearer = credentials::bearer(&parts.headers).map(str::to_owned);
        let cross_site = is_cross_site(&parts.headers);
        let cookie = || session_cookie(&parts.headers).filter(|_| !cross_site);
        Self {
            local: loopback || face.beam.settings().open,
            loopback,
            cookie: match origin {
                _ if cross_site => CookieRule::Never,
                Some(origin) if origin.https => CookieRule::Secure,
                _ => CookieRule::Plain,
            },
            key: header(&parts.headers, "x-api-key").or_else(|| bearer.clone()),
            session_token: bearer.or_else(cookie),
        }
    }

    /// An API key from the query of a socket.
    pub(crate) fn set_key(&mut self, key: &str) {
        self.key = Some(key.to_owned());
    }

    /// Whose intents the request may read.
    pub(crate) async fn intent_reader(&self, face: &BeamFace) -> Result<IntentReader, BeamProblem> {
        if self.local || self.session(face).await?.is_some() {
            return Ok(IntentReader::All);
        }
        match self.agent(face).await? {
            Some(agent) => Ok(IntentReader::Only(Box::new(agent))),
            None => Err(BeamProblem::unauthorized()),
        }
    }

    /// The session of an operator.
    pub(crate) async fn session(
        &self,
        face: &BeamFace,
    ) -> Result<Option<OperatorSession>, BeamProblem> {
        match &self.session_token {
            Some(token) => face.beam.session_of(token).await,
            None => Ok(None),
        }
    }

    /// An operator with at least this role.
    pub(crate) async fn require_role(
        &self,
        face: &BeamFace,
        role: Role,
    ) -> Result<OperatorSession, BeamProblem> {
        let session = self.session(face).await?;
        face.beam.settings().roles.require(session, role)
    }

    /// Whether an administrator sends the request.
    pub(crate) async fn is_admin(&self, face: &BeamFace) -> Result<bool, BeamProblem> {
        let session = self.session(face).await?;
        Ok(session.is_some_and(|session| session.role == Role::Admin))
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

/// The address that a request came from. It has none if it came over the Unix socket.
pub(super) fn client(face: &BeamFace, parts: &Parts) -> Option<IpAddr> {
    let peer = parts.extensions.get::<Peer>()?;
    Some(Origin::of(*peer, &parts.headers, face.policy.trust_proxy).client)
}

/// The address under which a request is counted.
pub(crate) fn client_address(face: &BeamFace, parts: &Parts) -> String {
    let client = client(face, parts).map(counted_address);
    client.map_or_else(String::new, |address| address.to_string())
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

/// The value of the only session cookie. Of two, one may have been set by another service on this host.
fn session_cookie(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(COOKIE).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let mut values = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == SESSION_COOKIE)
        .map(|(_, value)| value.to_owned());
    values.next().filter(|_| values.next().is_none())
}
