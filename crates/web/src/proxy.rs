//! The origin of a request, with or without a proxy.
//!
//! Invariant: forwarding headers are trusted only if the operator configured a proxy, and then only the right-most
//! value, which that proxy added. *Loopback* is a privilege, so it needs more than a local socket: requests behind a
//! local proxy and requests of web pages in a local browser do not have it.

use std::net::{IpAddr, SocketAddr};

use http::{
    HeaderMap, HeaderName,
    header::{FORWARDED, HOST, ORIGIN, VIA},
};

use super::cross_site;
use super::server::Peer;

/// The origin of a request, as far as it can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The address for logs and counters.
    pub client: IpAddr,
    /// Whether the client's own connection is encrypted.
    pub https: bool,
    /// Whether the request has the privileges of programs on this machine.
    pub loopback: bool,
}

impl Origin {
    pub fn of(peer: Peer, headers: &HeaderMap, trust_proxy: bool) -> Self {
        let direct = Self {
            client: peer.addr.ip().to_canonical(),
            https: peer.tls,
            loopback: false,
        };
        if !trust_proxy {
            return Self {
                loopback: direct.client.is_loopback() && sent_locally(headers),
                ..direct
            };
        }
        let client = rightmost(headers, "x-forwarded-for").and_then(address);
        let scheme = rightmost(headers, "x-forwarded-proto");
        Self {
            client: client.unwrap_or(direct.client),
            https: scheme.map_or(direct.https, |scheme| scheme.eq_ignore_ascii_case("https")),
            loopback: false,
        }
    }
}

/// The last item of the last header of that name: each hop appends, so it belongs to the nearest hop.
fn rightmost<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let last = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    last.rsplit(',')
        .next()
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// An address as proxies write it: bare, with a port, or in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let parsed = bare.parse().ok();
    parsed
        .or_else(|| {
            text.parse()
                .ok()
                .map(|with_port: SocketAddr| with_port.ip())
        })
        .map(|address: IpAddr| address.to_canonical())
}

/// Whether the headers are those of a local program without a proxy.
fn sent_locally(headers: &HeaderMap) -> bool {
    if headers.keys().any(is_forwarding) {
        return false;
    }
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    // A foreign name in Host indicates DNS rebinding.
    names_loopback(host)
        && headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            cross_site::is_origin_of(origin, host)
        })
}

/// For a socket that has no proxy.
pub(super) fn remove_forwarding(headers: &mut HeaderMap) {
    while let Some(name) = headers.keys().find(|name| is_forwarding(name)).cloned() {
        headers.remove(name);
    }
}

/// Headers that a proxy adds and a program of this machine does not send. Some proxies send only one of the last two.
fn is_forwarding(name: &HeaderName) -> bool {
    name == FORWARDED
        || name == VIA
        || name.as_str() == "x-real-ip"
        || name.as_str().starts_with("x-forwarded-")
}

/// Whether a `Host` value names this machine; the port is ignored.
fn names_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost")
        || address(name).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:5000";
    const REMOTE: &str = "192.0.2.7:5000";

    fn origin(peer: &str, trust_proxy: bool, headers: &[(&'static str, &str)]) -> Origin {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let peer = Peer {
            addr: peer.parse().unwrap(),
            tls: false,
        };
        Origin::of(peer, &map, trust_proxy)
    }

    fn client(value: &str) -> String {
        origin(LOCAL, true, &[("x-forwarded-for", value)])
            .client
            .to_string()
    }

    #[test]
    fn a_trusted_proxy_is_believed_for_its_own_hop_only() {
        assert_eq!(client("203.0.113.9"), "203.0.113.9");
        assert_eq!(client("6.6.6.6, 203.0.113.9"), "203.0.113.9");
        assert_eq!(client("203.0.113.9:8080"), "203.0.113.9");
        assert_eq!(client("[2001:db8::1]:443"), "2001:db8::1");
        assert_eq!(client("[2001:db8::1]"), "2001:db8::1");
        assert_eq!(client("unknown"), "127.0.0.1");
        assert_eq!(client("203.0.113.9,"), "127.0.0.1");

        let lines = [
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-for", "198.51.100.1"),
        ];
        assert_eq!(
            origin(LOCAL, true, &lines).client.to_string(),
            "198.51.100.1"
        );
        assert!(origin(LOCAL, true, &[("x-forwarded-proto", "http, HTTPS")]).https);
        assert!(!origin(LOCAL, true, &[("x-forwarded-proto", "https, http")]).https);
    }

    #[test]
    fn without_trust_forwarding_headers_change_nothing_but_the_loopback_privilege() {
        let claimed = [
            ("host", "localhost"),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-proto", "https"),
        ];
        let seen = origin(REMOTE, false, &claimed);
        assert_eq!(seen.client.to_string(), "192.0.2.7");
        assert!(!seen.https && !seen.loopback);
        assert!(!origin(LOCAL, false, &claimed).loopback);
    }

    #[test]
    fn loopback_needs_a_local_peer_a_local_host_and_no_trace_of_a_proxy() {
        let local = |headers| origin(LOCAL, false, headers).loopback;
        assert!(local(&[("host", "127.0.0.1:7070")]));
        assert!(local(&[("host", "LOCALHOST:7070")]));
        assert!(local(&[("host", "[::1]:7070")]));
        assert!(origin("[::1]:1", false, &[("host", "[::1]")]).loopback);
        assert!(origin("[::ffff:127.0.0.1]:1", false, &[("host", "localhost")]).loopback);

        assert!(!origin(REMOTE, false, &[("host", "127.0.0.1:7070")]).loopback);
        assert!(!origin(LOCAL, true, &[("host", "127.0.0.1:7070")]).loopback);
        assert!(!local(&[]));
        assert!(!local(&[("host", "bus.example:7070")]));
        assert!(!local(&[("host", "localhost.evil.example")]));
        assert!(!local(&[("host", "localhost"), ("host", "localhost")]));
        assert!(!local(&[
            ("host", "localhost"),
            ("forwarded", "for=1.2.3.4")
        ]));
        assert!(!local(&[("host", "localhost"), ("x-forwarded-host", "a")]));
        assert!(!local(&[("host", "localhost"), ("x-real-ip", "1.2.3.4")]));
        assert!(!local(&[("host", "localhost"), ("via", "1.1 proxy")]));
    }

    #[test]
    fn a_foreign_web_page_is_not_local_but_our_own_is() {
        let from = |page| {
            origin(
                LOCAL,
                false,
                &[("host", "localhost:7070"), ("origin", page)],
            )
        };
        assert!(from("http://localhost:7070").loopback);
        assert!(!from("http://localhost:3000").loopback);
        assert!(!from("https://evil.example").loopback);
        assert!(!from("null").loopback);
    }
}
