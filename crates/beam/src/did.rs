//! Decentralised identifiers of agents and keys, and their documents.
//!
//! `did:beam:<org>:<agent>` names an agent of an organisation, `did:beam:<agent>` a consumer, and
//! `did:beam:z…` a key itself. A document is built from its input alone; callers look agents up.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use consign_kernel::ids::Micros;

use crate::keys::BeamPublicKey;
use crate::text::{BeamObject, BeamValue};
use crate::timestamp;

const METHOD: &str = "did:beam:";
const DOMAIN: &str = "beam.directory";

/// What a DID names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DidSubject {
    /// The agent with this Beam-ID.
    Agent(String),
    Key(BeamPublicKey),
}

/// A key in a document.
#[derive(Debug, Clone, Copy)]
pub struct DidKey<'a> {
    pub key: &'a BeamPublicKey,
    /// `None` while the key is active.
    pub revoked_at: Option<Micros>,
}

/// The content of the document of an agent.
#[derive(Debug, Clone, Copy)]
pub struct DidAgent<'a> {
    pub beam_id: &'a str,
    /// In the order in which the document lists them.
    pub keys: &'a [DidKey<'a>],
    /// The address of the directory that serves the agent.
    pub directory_url: &'a str,
    pub created_at: Option<Micros>,
    pub updated_at: Option<Micros>,
}

/// The DID of a Beam-ID; `None` if it is malformed.
pub fn of_agent(beam_id: &str) -> Option<String> {
    let (agent, domain) = beam_id.split_once('@')?;
    let org = match domain.strip_suffix(DOMAIN)? {
        "" => None,
        org => Some(org.strip_suffix('.')?),
    };
    if !is_label(agent) || !org.is_none_or(is_label) {
        return None;
    }
    Some(match org {
        Some(org) => format!("{METHOD}{org}:{agent}"),
        None => format!("{METHOD}{agent}"),
    })
}

/// The DID of a key.
pub fn of_key(key: &BeamPublicKey) -> String {
    format!("{METHOD}{}", key.to_multibase())
}

/// What a DID names; `None` if it is malformed.
///
/// A text that is a key is never read as an agent: multibase of a key has upper-case letters,
/// which no Beam-ID has.
pub fn parse(did: &str) -> Option<DidSubject> {
    let name = did.strip_prefix(METHOD)?;
    if let Ok(key) = BeamPublicKey::parse_multibase(name) {
        return Some(DidSubject::Key(key));
    }
    let (org, agent) = match name.split_once(':') {
        Some((org, agent)) => (Some(org), agent),
        None => (None, name),
    };
    if !is_label(agent) || !org.is_none_or(is_label) {
        return None;
    }
    Some(DidSubject::Agent(match org {
        Some(org) => format!("{agent}@{org}.{DOMAIN}"),
        None => format!("{agent}@{DOMAIN}"),
    }))
}

/// The document of an agent; `None` if its Beam-ID is malformed.
pub fn agent_document(agent: &DidAgent<'_>) -> Option<BeamValue> {
    let did = of_agent(agent.beam_id)?;
    let directory = agent.directory_url.trim_end_matches('/');
    let agent_url = format!("{directory}/agents/{}", url_component(agent.beam_id));
    let services = vec![
        service(&did, "directory", "BeamDirectoryService", &agent_url),
        resolution_service(&did, "did-resolution", directory),
        service(
            &did,
            "keys",
            "BeamKeyStateService",
            &format!("{agent_url}/keys"),
        ),
    ];
    let aliases = vec![agent.beam_id.into()];
    let mut document = document(&did, Some(aliases), agent.keys, services);
    for (name, at) in [("created", agent.created_at), ("updated", agent.updated_at)] {
        if let Some(at) = at {
            document.insert(name, timestamp::format(at));
        }
    }
    Some(document.into())
}

/// The document of a key, which follows from the key.
pub fn key_document(key: &BeamPublicKey, directory_url: &str) -> BeamValue {
    let did = of_key(key);
    let directory = directory_url.trim_end_matches('/');
    let services = vec![resolution_service(&did, "resolver", directory)];
    let revoked_at = None;
    document(&did, None, &[DidKey { key, revoked_at }], services).into()
}

fn document(
    did: &str,
    aliases: Option<Vec<BeamValue>>,
    keys: &[DidKey<'_>],
    services: Vec<BeamValue>,
) -> BeamObject {
    let contexts = [
        "https://www.w3.org/ns/did/v1",
        "https://w3id.org/security/suites/ed25519-2020/v1",
    ];
    let mut document = BeamObject::new();
    document.insert("@context", contexts.map(BeamValue::from).to_vec());
    document.insert("id", did);
    if let Some(aliases) = aliases {
        document.insert("alsoKnownAs", aliases);
    }
    let methods: Vec<_> = keys.iter().map(|key| method(did, key)).collect();
    document.insert("verificationMethod", methods);
    // Without an active key nothing is authorised.
    let active = keys.iter().find(|key| key.revoked_at.is_none());
    let active: Vec<BeamValue> = active
        .map(|key| method_id(did, key).into())
        .into_iter()
        .collect();
    for relationship in [
        "authentication",
        "assertionMethod",
        "capabilityInvocation",
        "capabilityDelegation",
    ] {
        document.insert(relationship, active.clone());
    }
    document.insert("service", services);
    document
}

fn method(did: &str, key: &DidKey<'_>) -> BeamValue {
    let mut method = BeamObject::new();
    method.insert("id", method_id(did, key));
    method.insert("type", "Ed25519VerificationKey2020");
    method.insert("controller", did);
    method.insert("publicKeyMultibase", key.key.to_multibase());
    match key.revoked_at {
        None => method.insert("beamStatus", "active"),
        Some(at) => {
            method.insert("beamStatus", "revoked");
            method.insert("beamRevokedAt", timestamp::format(at));
        }
    }
    method.into()
}

fn method_id(did: &str, key: &DidKey<'_>) -> String {
    format!("{did}#{}", key.key.to_multibase())
}

fn resolution_service(did: &str, name: &str, directory: &str) -> BeamValue {
    let url = format!("{directory}/did/{}", url_component(did));
    service(did, name, "DIDResolutionService", &url)
}

fn service(did: &str, name: &str, kind: &str, url: &str) -> BeamValue {
    BeamValue::object([
        ("id", format!("{did}#{name}").into()),
        ("type", kind.into()),
        ("serviceEndpoint", url.into()),
    ])
}

/// A label of a Beam-ID.
fn is_label(text: &str) -> bool {
    let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    !text.is_empty() && text.bytes().all(allowed)
}

/// Percent-encodes what ECMAScript's `encodeURIComponent` encodes.
fn url_component(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a String takes every write");
        }
    }
    out
}
