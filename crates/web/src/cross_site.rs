//! Detection of cross-site requests of browsers.
//!
//! A browser adds a stored password to any request that a page triggers, so for requests with side effects a valid
//! password is not enough: the page must be ours too. Browsers name the page in headers that the page cannot change.
//! Other programs do not send these headers and are not affected.

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

/// Whether a browser reports a cross-site request. A repeated header, or one that cannot be decoded, counts as
/// cross-site.
pub fn is_cross_site(headers: &HeaderMap) -> bool {
    is_cross_site_to(headers, |_| false)
}

/// The same, with further own origins.
pub fn is_cross_site_to(headers: &HeaderMap, is_own: impl Fn(&str) -> bool) -> bool {
    let stranger_asked = headers
        .get_all("sec-fetch-site")
        .iter()
        .any(|site| site != "same-origin" && site != "none");
    let is_ours = |origin: &str| is_own(origin) || is_ours(origin, headers);
    stranger_asked
        || headers
            .get_all(ORIGIN)
            .iter()
            .any(|origin| !origin.to_str().is_ok_and(is_ours))
}

fn is_ours(origin: &str, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    host.to_str().is_ok_and(|host| is_origin_of(origin, host))
}

/// Whether an `Origin` and a `Host` value name the same host and port. The default port is that of the origin's
/// scheme; our own may differ behind a proxy with TLS.
pub(super) fn is_origin_of(origin: &str, host: &str) -> bool {
    let (authority, implied_port) = if let Some(authority) = origin.strip_prefix("https://") {
        (authority, ":443")
    } else if let Some(authority) = origin.strip_prefix("http://") {
        (authority, ":80")
    } else {
        return false;
    };
    let explicit = |value: &str| value.strip_suffix(implied_port).map(str::len);
    let authority = &authority[..explicit(authority).unwrap_or(authority.len())];
    let host = &host[..explicit(host).unwrap_or(host.len())];
    !host.is_empty() && authority.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_ours_if_host_and_port_are_the_same() {
        for (origin, host) in [
            ("http://127.0.0.1:7070", "127.0.0.1:7070"),
            ("http://[::1]:7070", "[::1]:7070"),
            ("https://bus.example", "bus.example"),
            ("https://bus.example", "Bus.Example:443"),
            ("http://bus.example:80", "bus.example"),
        ] {
            assert!(is_origin_of(origin, host), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "null"),
            ("", ""),
            ("http://", ""),
            ("bus.example", "bus.example"),
            ("ftp://bus.example", "bus.example"),
            ("https://bus.example", "bus.example:80"),
            ("https://bus.example:8443", "bus.example"),
            ("https://bus.example.evil.example", "bus.example"),
            ("https://evil.example", "bus.example"),
            ("http://[::1]:7070", "[::1]:7071"),
        ] {
            assert!(!is_origin_of(origin, host), "{origin} {host}");
        }
    }

    #[test]
    fn one_bad_header_among_good_ones_is_enough() {
        let cross_site = |lines: &[(&'static str, &'static [u8])]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, http::HeaderValue::from_bytes(value).unwrap());
            }
            is_cross_site(&headers)
        };
        let ours: (_, &[u8]) = ("origin", b"http://a:1");
        assert!(!cross_site(&[]));
        assert!(!cross_site(&[("host", b"a:1"), ours]));
        assert!(cross_site(&[ours]), "no host to compare with");
        assert!(cross_site(&[("host", b"a:1"), ("host", b"a:1"), ours]));
        assert!(cross_site(&[("host", b"a:1"), ours, ("origin", b"null")]));
        assert!(cross_site(&[("host", b"a:1"), ("origin", b"http://a\xff")]));
        assert!(cross_site(&[
            ("sec-fetch-site", b"same-origin"),
            ("sec-fetch-site", b"cross-site"),
        ]));
    }
}
