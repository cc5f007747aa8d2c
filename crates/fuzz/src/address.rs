//! Server addresses: an accepted address can be connected to and printed back, and no password is repeated.

use std::net::Ipv6Addr;

use consign_client::Address;
use http::HeaderValue;
use http::uri::Authority;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    match Address::parse(text) {
        Ok(address) => {
            assert!(!address.host.is_empty() && address.port != 0);
            assert!(!address.host.contains(':') || address.host.parse::<Ipv6Addr>().is_ok());
            let shown = address.to_string();
            let again = Address::parse(&shown).expect("an address that was printed is one");
            assert_eq!(again, address, "{shown}");
            let host = address.authority();
            assert!(HeaderValue::from_str(&host).is_ok());
            let authority: Authority = host.parse().expect("a Host header holds an authority");
            assert_eq!(authority.port_u16().unwrap_or(address.port), address.port);
        }
        Err(error) => {
            let shown = error.to_string();
            // The text before the last `@` may be a password; the dots that replace it are not secret.
            let hidden = text.rsplit_once('@').map(|(before, _)| before);
            if let Some(hidden) = hidden.filter(|text| !"server address ...".ends_with(text)) {
                assert!(!shown.contains(&format!("{hidden}@")), "{shown}");
            }
        }
    }
}
