//! The URL of a server that this process may call, in one spelling.
//!
//! Invariant: two readers of a parsed URL agree on its host. Every form that URL parsers and resolvers read in different
//! ways is refused: user parts, fragments, back slashes, percent signs and letters beyond ASCII in the host, numbers as
//! IPv4 addresses (`127.1`, `0x7f.0.0.1`, `017700000001`), zones, a final dot. Scheme and host become lower case, and an
//! IPv6 address takes its canonical form. Whether the host may be called is decided in the address guard.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longer URLs are not used in practice, and they are stored with agents and peers.
const URL_BYTES_MAX: usize = 2048;

const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// An absolute `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetUrl {
    is_https: bool,
    authority: TargetAuthority,
    /// Begins with a slash.
    path_and_query: String,
}

/// Host and port, the key of the list of allowed targets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetAuthority {
    pub host: TargetHost,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetHost {
    /// A DNS name in lower case, without a final dot.
    Name(String),
    Ip(IpAddr),
}

/// Why a text is not a URL that can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("the URL is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the URL contains a character that it must not contain")]
    Character,
    #[error("the URL does not begin with http:// or https://")]
    Scheme,
    #[error("the URL contains a user part")]
    UserPart,
    #[error("the URL contains a fragment")]
    Fragment,
    #[error("the URL has no host")]
    NoHost,
    #[error("the host is not a DNS name or an IP address")]
    Host,
    #[error("the host is a number that is not an IPv4 address of four decimal parts")]
    AmbiguousIpv4,
    #[error("the host is not an IPv6 address in brackets without a zone")]
    Ipv6,
    #[error("the host ends with a dot")]
    FinalDot,
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

impl TargetUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        if !text.bytes().all(is_url_byte) {
            return Err(UrlError::Character);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(UrlError::Scheme),
        };
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::UserPart);
        }
        let default_port = if is_https { 443 } else { 80 };
        Ok(Self {
            is_https,
            authority: TargetAuthority::parse(authority, Some(default_port))?,
            path_and_query: if path.starts_with('/') {
                path.to_owned()
            } else {
                format!("/{path}")
            },
        })
    }

    pub fn is_https(&self) -> bool {
        self.is_https
    }

    pub fn authority(&self) -> &TargetAuthority {
        &self.authority
    }

    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }

    /// The URL of a route below this one, which has no query: `https://a/base/` and `/route?x` give
    /// `https://a/base/route?x`.
    pub fn join(&self, route: &str) -> Result<Self, UrlError> {
        if !route.starts_with('/') || !route.bytes().all(is_url_byte) {
            return Err(UrlError::Character);
        }
        if route.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (base, _) = self
            .path_and_query
            .split_once('?')
            .unwrap_or((&self.path_and_query, ""));
        let path_and_query = format!("{}{route}", base.trim_end_matches('/'));
        if path_and_query.len() > URL_BYTES_MAX {
            return Err(UrlError::TooLong);
        }
        Ok(Self {
            path_and_query,
            ..self.clone()
        })
    }

    /// Scheme, host and port for the client.
    pub(super) fn server(&self) -> consign_client::Address {
        consign_client::Address {
            tls: self.is_https,
            host: match &self.authority.host {
                TargetHost::Name(name) => name.clone(),
                TargetHost::Ip(ip) => ip.to_string(),
            },
            port: self.authority.port,
            // The path of a request is whole already.
            prefix: String::new(),
        }
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.server(), self.path_and_query)
    }
}

impl TargetAuthority {
    /// Reads `host:port`; the port may be absent if there is a default.
    pub(super) fn parse(text: &str, default_port: Option<u16>) -> Result<Self, UrlError> {
        let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
            let (host, after) = bracketed.split_once(']').ok_or(UrlError::Ipv6)?;
            let ip: Ipv6Addr = host.parse().map_err(|_| UrlError::Ipv6)?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err(UrlError::Ipv6),
            };
            (TargetHost::Ip(ip.into()), port)
        } else {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            (TargetHost::parse(host)?, port)
        };
        let port = match port {
            Some(digits) => parse_port(digits)?,
            None => default_port.ok_or(UrlError::Port)?,
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for TargetAuthority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl TargetHost {
    /// Reads a DNS name or an IPv4 address.
    fn parse(text: &str) -> Result<Self, UrlError> {
        if text.is_empty() {
            return Err(UrlError::NoHost);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(UrlError::Host);
        }
        let lower = text.to_ascii_lowercase();
        if lower.ends_with('.') {
            return Err(UrlError::FinalDot);
        }
        if !lower.split('.').all(is_label) {
            return Err(UrlError::Host);
        }
        if !is_numeric(&lower) {
            return Ok(Self::Name(lower));
        }
        // The standard library takes four decimal parts without leading zeros and nothing else.
        let ip: Ipv4Addr = lower.parse().map_err(|_| UrlError::AmbiguousIpv4)?;
        Ok(Self::Ip(ip.into()))
    }
}

impl fmt::Display for TargetHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(formatter),
            Self::Ip(IpAddr::V6(ip)) => write!(formatter, "[{ip}]"),
        }
    }
}

/// Printable ASCII without the characters that RFC 3986 excludes everywhere.
fn is_url_byte(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(
            byte,
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
        )
}

/// Underscores occur in names of private networks.
fn is_label(label: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(is_letter)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether resolvers may read a name in lower case as an IPv4 address: its last label is a decimal, octal or hexadecimal
/// number.
fn is_numeric(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// `parse` alone would accept a sign and any number of leading zeros.
fn parse_port(digits: &str) -> Result<u16, UrlError> {
    let is_plain = digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(port) if is_plain && port != 0 => Ok(port),
        _ => Err(UrlError::Port),
    }
}

#[cfg(test)]
mod tests;
