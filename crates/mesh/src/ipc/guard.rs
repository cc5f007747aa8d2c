//! Who may call the local interface: the checks before a request is routed, in their order.

use std::net::{Ipv4Addr, Ipv6Addr};

use consign_kernel::plant::{self, Plant};

use super::{IpcRefusal, LocalToken};
use crate::query::QueryPairs;

/// The path that `public_health_check` opens.
const HEALTH: &str = "/v1/health";

/// How a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpcTransport {
    /// The socket file, which only its owner can open.
    Unix,
    /// The loopback listener, which every user of the machine can reach.
    Tcp,
}

/// What the checks read of a request.
#[derive(Debug, Clone, Copy)]
pub struct IpcHead<'a> {
    pub transport: IpcTransport,
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    pub authorization: Option<&'a str>,
}

/// What the settings allow.
#[derive(Debug, Clone, Copy)]
pub struct IpcPolicy<'a> {
    /// The current token, and the previous one for a minute after a rotation.
    pub tokens: &'a [&'a LocalToken],
    pub origin_allowlist: &'a [String],
    pub public_health_check: bool,
    /// The listener has another address than loopback, so callers may name it by its address.
    pub is_external: bool,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpcCaller<'a> {
    /// The user who runs the daemon.
    User,
    /// A program that names itself a hook, with its token. Whether a hook holds the token is not checked here.
    Hook(&'a str),
}

/// Checks a request in the order of the protocol: token in the query, host, origin, credential.
pub fn check_head<'a>(
    head: &IpcHead<'a>,
    policy: &IpcPolicy<'_>,
) -> Result<IpcCaller<'a>, IpcRefusal> {
    if QueryPairs::parse(head.query).has("token") && !plant::on(Plant::TokenInQuery) {
        return Err(IpcRefusal::bad_request(
            "token must be in Authorization header, not query string",
        ));
    }
    let is_own = |host: &str| is_local(host) || (policy.is_external && is_address(host));
    if !head.host.is_none_or(is_own) {
        return Err(IpcRefusal::new(403, "forbidden host"));
    }
    let is_foreign = |origin: &str| {
        !policy
            .origin_allowlist
            .iter()
            .any(|allowed| allowed == origin)
    };
    if head.origin.is_some_and(is_foreign) || head.method.eq_ignore_ascii_case("OPTIONS") {
        return Err(IpcRefusal::new(403, "forbidden origin"));
    }
    check_credential(head, policy)
}

fn check_credential<'a>(
    head: &IpcHead<'a>,
    policy: &IpcPolicy<'_>,
) -> Result<IpcCaller<'a>, IpcRefusal> {
    let credential = head.authorization.and_then(|value| value.split_once(' '));
    if let Some(value) = head.authorization {
        let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
        if scheme.eq_ignore_ascii_case("Capability") {
            return Ok(IpcCaller::Hook(token.trim()));
        }
    }
    let is_public = policy.public_health_check && head.path == HEALTH && head.method == "GET";
    if head.transport == IpcTransport::Unix || is_public || plant::on(Plant::LoopbackWithoutToken) {
        return Ok(IpcCaller::User);
    }
    match credential {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("Bearer") => {
            // All tokens are compared, so that the time does not depend on which one matched.
            let matches = policy.tokens.iter().map(|own| own.matches(token.trim()));
            if matches.fold(false, |found, one| found | one) {
                Ok(IpcCaller::User)
            } else {
                Err(IpcRefusal::new(401, "invalid bearer token"))
            }
        }
        _ => Err(IpcRefusal::new(401, "missing bearer token")),
    }
}

/// Whether a `Host` names this machine: no other name can be the caller's own, so a browser was led here by a foreign page.
fn is_local(host: &str) -> bool {
    let name = name_of(host);
    name.is_empty() && host.trim().is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name == "127.0.0.1"
        || name == "[::1]"
}

/// Whether a `Host` is an address. A foreign page can lead a browser here by a name that it owns, and not by an address.
fn is_address(host: &str) -> bool {
    let name = name_of(host);
    let in_brackets = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    match in_brackets {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    }
}

/// A `Host` without its port.
fn name_of(host: &str) -> &str {
    let host = host.trim();
    match host.rsplit_once(':') {
        Some((name, port))
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            name
        }
        _ => host,
    }
}

/// The header for a log line.
pub fn redacted_authorization(value: &str) -> String {
    let scheme = value.split(' ').next().unwrap_or_default();
    match scheme {
        "Bearer" | "Capability" => format!("{scheme} ***"),
        _ => "***".to_owned(),
    }
}
