//! URLs of agents and peers: a URL has one reading, and the address guard lets no private address pass.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use consign_beam::outbound::{AddressGuard, AllowedTargets, TargetHost, TargetUrl};
use http::Uri;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let guard = AddressGuard::new(AllowedTargets::default());
    let checked = guard.check_text(text);
    let _ = AllowedTargets::parse(text);
    match TargetUrl::parse(text) {
        Ok(url) => {
            one_reading(&url);
            let shown = url.to_string();
            assert_eq!(guard.check_text(&shown), checked, "{shown}");
            let allowed = AllowedTargets::parse(&url.authority().to_string());
            let allowed = allowed.expect("a printed authority is one");
            assert_eq!(AddressGuard::new(allowed).check_text(text), Ok(url));
        }
        Err(_) => assert!(checked.is_err()),
    }
    if let Ok(url) = checked {
        assert!(url.is_https(), "{url}");
        match &url.authority().host {
            TargetHost::Ip(IpAddr::V4(ip)) => assert!(!is_private_v4(*ip), "{url}"),
            TargetHost::Ip(IpAddr::V6(ip)) => assert!(!is_private_v6(*ip), "{url}"),
            TargetHost::Name(name) => assert!(!is_private_name(name), "{url}"),
        }
    }
}

fn one_reading(url: &TargetUrl) {
    let shown = url.to_string();
    assert_eq!(TargetUrl::parse(&shown).as_ref(), Ok(url), "{shown}");
    assert!(url.path_and_query().starts_with('/'));
    // The reader of the HTTP client.
    let uri: Uri = shown.parse().expect("the client reads it too");
    assert_eq!(uri.host(), Some(&*url.authority().host.to_string()));
    let default = if url.is_https() { 443 } else { 80 };
    assert_eq!(uri.port_u16().unwrap_or(default), url.authority().port);
    let path = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
    assert_eq!(path, Some(url.path_and_query()));
    if let Ok(route) = url.join("/route?x=1") {
        assert_eq!(route.authority(), url.authority());
        assert!(route.path_and_query().ends_with("/route?x=1"));
    }
    if let TargetHost::Name(name) = &url.authority().host {
        assert!(name.parse::<IpAddr>().is_err(), "{name}");
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        assert!(
            name.bytes()
                .all(|byte| allowed(byte) || b"-._".contains(&byte))
        );
    }
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_unspecified()
        || ip.is_broadcast()
        || ip.is_multicast()
        || ip.is_documentation()
}

fn is_private_v6(ip: Ipv6Addr) -> bool {
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_unique_local()
        || ip.is_unicast_link_local()
        || ip.to_ipv4().is_some_and(is_private_v4)
}

fn is_private_name(name: &str) -> bool {
    let last = name.rsplit('.').next();
    !name.contains('.') || matches!(last, Some("localhost" | "local" | "internal"))
}
