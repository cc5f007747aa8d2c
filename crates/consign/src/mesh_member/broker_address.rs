//! The address of a broker: the WebSocket of invites and `config.json`, and the HTTP routes beside it.

use crate::failure::Failure;

/// A WebSocket URL that ends in `/ws`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerAddress {
    is_tls: bool,
    authority: String,
    /// What stands before `ws`, from the first slash to the last.
    prefix: String,
}

impl BrokerAddress {
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        let wrong = || {
            let message = format!("{url:?} is not the address of a broker");
            Failure::usage(message).hint("it has the form wss://HOST/ws or ws://HOST:PORT/ws")
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "wss" => true,
            "ws" => false,
            _ => return Err(wrong().into()),
        };
        let (authority, path) = rest.split_once('/').ok_or_else(wrong)?;
        let prefix = path.strip_suffix("ws").ok_or_else(wrong)?;
        let is_prefix = prefix.is_empty() || prefix.ends_with('/');
        if authority.is_empty() || authority.contains('@') || !is_prefix {
            return Err(wrong().into());
        }
        Ok(Self {
            is_tls,
            authority: authority.to_owned(),
            prefix: format!("/{prefix}"),
        })
    }

    /// The URL of the server, without a path.
    pub(crate) fn base_url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// The path of a route beside the WebSocket.
    pub(crate) fn path(&self, route: &str) -> String {
        format!("{}{route}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_beside_the_socket() {
        let plain = BrokerAddress::parse("ws://127.0.0.1:7900/ws").unwrap();
        assert_eq!(plain.base_url(), "http://127.0.0.1:7900");
        assert_eq!(plain.path("join"), "/join");
        let behind = BrokerAddress::parse("wss://ic.example.org/mesh/ws").unwrap();
        assert_eq!(behind.base_url(), "https://ic.example.org");
        assert_eq!(behind.path("join"), "/mesh/join");
        for wrong in [
            "http://a/ws",
            "ws://a",
            "ws:///ws",
            "ws://u@a/ws",
            "ws://a/news",
        ] {
            assert!(BrokerAddress::parse(wrong).is_err(), "{wrong}");
        }
    }
}
