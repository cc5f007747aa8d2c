//! Header parsers: no header grants a privilege that it must not, and parsed values match the sent ones.
//!
//! Input: lines `name: value`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use consign_web::credentials::{basic, bearer};
use consign_web::cross_site::is_cross_site;
use consign_web::proxy::Origin;
use consign_web::request_id::{LENGTH_MAX, RequestId};
use consign_web::server::Peer;
use http::header::{AUTHORIZATION, FORWARDED, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue};

pub(crate) fn run(bytes: &[u8]) {
    let headers = parse(bytes);
    origin(&headers);
    credentials(&headers);
    if let Some(id) = RequestId::presented(&headers) {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
        assert!((1..=LENGTH_MAX).contains(&id.as_str().len()));
        assert!(id.as_str().bytes().all(allowed));
    }
    let says_nothing = !headers.contains_key(ORIGIN) && !headers.contains_key("sec-fetch-site");
    assert!(!(says_nothing && is_cross_site(&headers)));
}

/// The lines that are valid headers; others never reach a handler.
pub(crate) fn parse(bytes: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn origin(headers: &HeaderMap) {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let remote = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    for (ip, tls) in [
        (local, false),
        (local, true),
        (remote, false),
        (remote, true),
    ] {
        let peer = Peer {
            addr: SocketAddr::new(ip, 5000),
            tls,
        };
        let direct = Origin::of(peer, headers, false);
        assert_eq!(
            (direct.client, direct.https),
            (ip, tls),
            "a header was believed"
        );
        if direct.loopback {
            let forwarded =
                |name: &HeaderName| name == FORWARDED || name.as_str().starts_with("x-forwarded-");
            assert_eq!(ip, local);
            assert!(!headers.keys().any(forwarded));
            assert_eq!(headers.get_all(HOST).iter().count(), 1);
        }
        let behind_proxy = Origin::of(peer, headers, true);
        assert!(!behind_proxy.loopback);
        if !headers.contains_key("x-forwarded-for") {
            assert_eq!(behind_proxy.client, ip);
        }
        if !headers.contains_key("x-forwarded-proto") {
            assert_eq!(behind_proxy.https, tls);
        }
    }
}

fn credentials(headers: &HeaderMap) {
    let sent = headers.get_all(AUTHORIZATION).iter().count();
    let (basic, bearer) = (basic(headers), bearer(headers));
    assert!(sent == 1 || (basic.is_none() && bearer.is_none()));
    assert!(
        basic.is_none() || bearer.is_none(),
        "one header, two schemes"
    );
    assert!(basic.is_none_or(|basic| !basic.user.contains(':')));
    assert!(bearer.is_none_or(|token| !token.is_empty() && token == token.trim()));
}
