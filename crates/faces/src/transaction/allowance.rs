//! How often one address may ask the routes that need no credential, and those that write.
//!
//! A window of a minute for each address; of IPv6 the network of a customer (/64) counts as one. Invariant: the memory is
//! bounded; when it is full of addresses that asked within their window, further ones share one window among them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::extract::Request;

use crate::web::proxy::Origin;
use crate::web::server::Peer;

const WINDOW: Duration = Duration::from_mins(1);
const ADDRESSES_MAX: usize = 10_000;
/// Whoever finds no place of its own.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(super) struct Allowance {
    per_minute: u32,
    windows: Mutex<HashMap<IpAddr, Window>>,
}

struct Window {
    began: Instant,
    asked: u32,
}

impl Allowance {
    pub(super) fn new(per_minute: u32) -> Self {
        Self {
            per_minute,
            windows: Mutex::default(),
        }
    }

    /// Counts a request, or says after how many seconds to come back.
    pub(super) fn take(&self, request: &Request, trust_proxy: bool) -> Result<(), u32> {
        if self.per_minute == 0 {
            return Ok(());
        }
        let peer = request.extensions().get::<Peer>();
        let origin = peer.map(|peer| Origin::of(*peer, request.headers(), trust_proxy));
        let address = origin.map_or(OTHERS, |origin| counted(origin.client));
        self.count(address, Instant::now())
    }

    fn count(&self, address: IpAddr, now: Instant) -> Result<(), u32> {
        let windows = self.windows.lock();
        let mut windows = windows.unwrap_or_else(std::sync::PoisonError::into_inner);
        if windows.len() >= ADDRESSES_MAX && !windows.contains_key(&address) {
            windows.retain(|_, window| now.duration_since(window.began) < WINDOW);
        }
        let full = windows.len() >= ADDRESSES_MAX && !windows.contains_key(&address);
        let address = if full { OTHERS } else { address };
        let fresh = Window {
            began: now,
            asked: 0,
        };
        let window = windows.entry(address).or_insert(fresh);
        let passed = now.duration_since(window.began);
        if passed >= WINDOW {
            (window.began, window.asked) = (now, 0);
        } else if window.asked >= self.per_minute {
            let left = WINDOW.saturating_sub(passed).as_millis().div_ceil(1_000);
            return Err(u32::try_from(left).unwrap_or(60).max(1));
        }
        window.asked += 1;
        Ok(())
    }
}

/// Whoever has one address of a /64 has all of them.
fn counted(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn at_097_an_address_is_told_when_to_come_back() {
        let allowance = Allowance::new(2);
        let now = Instant::now();
        assert_eq!(allowance.count(HERE, now), Ok(()));
        assert_eq!(allowance.count(HERE, now), Ok(()));
        assert_eq!(allowance.count(HERE, now), Err(60));
        let later = now + Duration::from_secs(45);
        assert_eq!(allowance.count(HERE, later), Err(15));
        assert_eq!(allowance.count(HERE, now + WINDOW), Ok(()));
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let counted = |text: &str| counted(text.parse().unwrap()).to_string();
        assert_eq!(
            counted("2001:db8:1:2:aaaa:bbbb:cccc:dddd"),
            "2001:db8:1:2::"
        );
        assert_eq!(counted("2001:db8:1:3::1"), "2001:db8:1:3::");
        assert_eq!(counted("192.0.2.7"), "192.0.2.7");
        assert_eq!(counted("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn strangers_beyond_the_memory_share_what_one_has() {
        let allowance = Allowance::new(1);
        let now = Instant::now();
        let address = |n: u32| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
        for n in 0..u32::try_from(ADDRESSES_MAX).unwrap() {
            assert_eq!(allowance.count(address(n), now), Ok(()));
        }
        assert_eq!(allowance.count(address(20_000), now), Ok(()));
        assert!(allowance.count(address(20_001), now).is_err());
        let later = now + WINDOW;
        assert_eq!(allowance.count(address(20_001), later), Ok(()));
        assert!(allowance.windows.lock().unwrap().len() <= ADDRESSES_MAX + 1);
    }
}
