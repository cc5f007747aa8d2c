//! The address of a server: scheme, host, port and the path that it is served below, parsed from a base URL.
//!
//! Invariant: an address that parsed can be put into a `Host` header and connected to. User names and queries are refused
//! rather than ignored. A path is the prefix under which a reverse proxy serves the server; the proxy removes it, so
//! signatures do not cover it.

use std::fmt;
use std::net::Ipv6Addr;

use crate::Error;

/// The base URL of a server, such as `http://127.0.0.1:7070` or `https://bus.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether the connection is wrapped in TLS.
    pub tls: bool,
    /// A name or an IP address; IPv6 without its brackets.
    pub host: String,
    pub port: u16,
    /// The path before every path of the server: empty, or with a slash at its beginning and none at its end.
    pub prefix: String,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |why| Error::Address {
            given: without_credentials(text),
            why,
        };
        let trimmed = text.trim();
        let (scheme, rest) = trimmed
            .split_once("://")
            .ok_or_else(|| refuse("it has no scheme"))?;
        let (tls, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(refuse("the scheme is neither http nor https")),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(refuse("it holds a user name; pass the key separately"));
        }
        if rest.contains(['?', '#']) {
            return Err(refuse("it holds a query or a fragment"));
        }
        let prefix = path.trim_end_matches('/');
        if !is_prefix(prefix) {
            return Err(refuse("its path cannot be the beginning of other paths"));
        }
        let (host, port) =
            split_port(authority).ok_or_else(|| refuse("the brackets do not match"))?;
        let port = match port {
            None => default_port,
            // `parse` for a number would accept a sign, which a port must not have.
            Some(digits) => Some(digits)
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| refuse("the port is not a number from 1 to 65535"))?,
        };
        if port == 0 {
            return Err(refuse("the port is not a number from 1 to 65535"));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(plain) {
            return Err(refuse("it has no usable host name"));
        }
        if authority.starts_with('[') && host.parse::<Ipv6Addr>().is_err() {
            return Err(refuse("the brackets do not hold an IPv6 address"));
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
            prefix: prefix.to_owned(),
        })
    }

    /// The value of the `Host` header; default ports are left out, as clients do.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        let default_port = if self.tls { 443 } else { 80 };
        if self.port == default_port {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Scheme, host and port, without the path.
    pub fn origin(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.origin(), self.prefix)
    }
}

/// Whether every segment of the path has a name. Dots alone would be resolved on the way, and an empty segment is usually a
/// mistake.
fn is_prefix(path: &str) -> bool {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~' | '%' | '+' | ':');
    let mut segments = path.split('/').skip(1);
    segments.all(|segment| !matches!(segment, "" | "." | "..") && segment.chars().all(is_plain))
}

/// Host and optional port of `host`, `host:port`, `[v6]` or `[v6]:port`.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, after) = bracketed.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None if after.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((authority, None)),
    }
}

/// The text for an error message, cut so that a password typed into the URL is not repeated.
fn without_credentials(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, after)) => format!("...@{after}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    fn check(text: &str, expected: &str) {
        let shown = match Address::parse(text) {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "for {text}");
    }

    #[test]
    fn a_base_url_is_read_and_printed_back() {
        check("http://127.0.0.1:7070", "http://127.0.0.1:7070");
        check("http://127.0.0.1:7070/\n", "http://127.0.0.1:7070");
        check("HTTPS://bus.example.org", "https://bus.example.org");
        check("https://bus.example.org:443", "https://bus.example.org");
        check("http://[::1]:7070", "http://[::1]:7070");
        check("http://[::1]", "http://[::1]");
    }

    #[test]
    fn the_path_of_a_reverse_proxy_is_kept_without_its_last_slash() {
        check("https://x.org/bus", "https://x.org/bus");
        check("https://x.org:8443/a/bus/", "https://x.org:8443/a/bus");
        let refused = "its path cannot be the beginning of other paths";
        for text in [
            "http://x/a//b",
            "http://x/../b",
            "http://x/a b",
            "http://x/./",
        ] {
            check(
                text,
                &format!("server address {text} cannot be used: {refused}"),
            );
        }
        check(
            "http://x/a?b",
            "server address http://x/a?b cannot be used: it holds a query or a fragment",
        );
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_with_the_reason() {
        let begin = "server address";
        check(
            "127.0.0.1:7070",
            &format!("{begin} 127.0.0.1:7070 cannot be used: it has no scheme"),
        );
        check(
            "ftp://x",
            &format!("{begin} ftp://x cannot be used: the scheme is neither http nor https"),
        );
        check(
            "http://x:0",
            &format!("{begin} http://x:0 cannot be used: the port is not a number from 1 to 65535"),
        );
        check(
            "http://",
            &format!("{begin} http:// cannot be used: it has no usable host name"),
        );
        check(
            "http://a b",
            &format!("{begin} http://a b cannot be used: it has no usable host name"),
        );
        check(
            "http://[::1",
            &format!("{begin} http://[::1 cannot be used: the brackets do not match"),
        );
        let not_six = "the brackets do not hold an IPv6 address";
        for text in ["http://[:::]", "http://[bus]", "http://[t::::1]:80"] {
            check(text, &format!("{begin} {text} cannot be used: {not_six}"));
        }
        check(
            "http://x:+80",
            &format!(
                "{begin} http://x:+80 cannot be used: the port is not a number from 1 to 65535"
            ),
        );
    }

    #[test]
    fn a_password_in_the_url_is_not_repeated() {
        let error = Address::parse("http://me:hunter2@host")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
