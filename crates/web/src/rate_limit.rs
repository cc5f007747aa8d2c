//! Rate limits per address, for routes without credentials and for those that write.
//!
//! Each address has a window of one minute; for IPv6, a /64 network counts as one address. Invariant: memory is bounded; when
//! it is full of active windows, further addresses share one window.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use http::{Extensions, HeaderMap};

use super::proxy::Origin;
use super::server::Peer;

const WINDOW: Duration = Duration::from_mins(1);
const ADDRESSES_MAX: usize = 10_000;
/// The key of the shared window.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

#[derive(Debug)]
pub struct RateLimit {
    per_minute: u32,
    bytes_per_minute: u64,
    windows: Mutex<HashMap<IpAddr, RateWindow>>,
}

#[derive(Clone, Copy, Debug)]
struct RateWindow {
    began: Instant,
    asked: u32,
    bytes: u64,
}

impl RateLimit {
    /// Limits on requests and bytes per address and minute; zero for no limit.
    pub fn new(per_minute: u32, bytes_per_minute: u64) -> Self {
        Self {
            per_minute,
            bytes_per_minute,
            windows: Mutex::default(),
        }
    }

    /// Counts a request and the announced bytes of its body, or returns the seconds to wait. Unused bytes are returned later.
    pub fn take(
        &self,
        extensions: &Extensions,
        headers: &HeaderMap,
        trust_proxy: bool,
        bytes: usize,
    ) -> Result<RateCharge<'_>, u32> {
        if self.per_minute == 0 && self.bytes_per_minute == 0 {
            return Ok(RateCharge(None));
        }
        let peer = extensions.get::<Peer>();
        let origin = peer.map(|peer| Origin::of(*peer, headers, trust_proxy));
        self.take_of(origin.map_or(OTHERS, |origin| origin.client), bytes)
    }

    /// The same for a message of a client with this address.
    pub fn take_of(&self, client: IpAddr, bytes: usize) -> Result<RateCharge<'_>, u32> {
        if self.per_minute == 0 && self.bytes_per_minute == 0 {
            return Ok(RateCharge(None));
        }
        let address = self.count(counted_address(client), bytes as u64, Instant::now())?;
        Ok(RateCharge(Some((self, address))))
    }

    /// Returns the address under which the request was counted.
    fn count(&self, address: IpAddr, bytes: u64, now: Instant) -> Result<IpAddr, u32> {
        let windows = self.windows.lock();
        let mut windows = windows.unwrap_or_else(std::sync::PoisonError::into_inner);
        if windows.len() >= ADDRESSES_MAX && !windows.contains_key(&address) {
            windows.retain(|_, window| now.duration_since(window.began) < WINDOW);
        }
        let full = windows.len() >= ADDRESSES_MAX && !windows.contains_key(&address);
        let address = if full { OTHERS } else { address };
        let fresh = RateWindow {
            began: now,
            asked: 0,
            bytes: 0,
        };
        let window = windows.entry(address).or_insert(fresh);
        let passed = now.duration_since(window.began);
        if passed >= WINDOW {
            *window = fresh;
        } else if self.is_used_up(window, bytes) {
            let left = WINDOW.saturating_sub(passed).as_millis().div_ceil(1_000);
            return Err(u32::try_from(left).unwrap_or(60).max(1));
        }
        window.asked += 1;
        window.bytes = window.bytes.saturating_add(bytes);
        Ok(address)
    }

    /// Whether the window has no room for another request of this size. The first request of a window may exceed the limit,
    /// because it could never be sent otherwise.
    fn is_used_up(&self, window: &RateWindow, bytes: u64) -> bool {
        let (asked_max, bytes_max) = (self.per_minute, self.bytes_per_minute);
        let too_many = asked_max > 0 && window.asked >= asked_max;
        let too_long = bytes_max > 0 && window.bytes.saturating_add(bytes) > bytes_max;
        too_many || too_long && window.bytes > 0
    }

    fn give_back(&self, address: IpAddr, bytes: u64) {
        let windows = self.windows.lock();
        let mut windows = windows.unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(window) = windows.get_mut(&address) {
            window.bytes = window.bytes.saturating_sub(bytes);
        }
    }
}

/// A counted request, for returning unused bytes.
#[derive(Debug)]
pub struct RateCharge<'a>(Option<(&'a RateLimit, IpAddr)>);

impl RateCharge<'_> {
    pub fn give_back(&self, bytes: usize) {
        if let RateCharge(Some((allowance, address))) = self
            && bytes > 0
        {
            allowance.give_back(*address, bytes as u64);
        }
    }
}

/// The address under which a client is counted: an IPv6 client usually controls its whole /64 network.
pub fn counted_address(address: IpAddr) -> IpAddr {
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
        let allowance = RateLimit::new(2, 0);
        let now = Instant::now();
        assert!(allowance.count(HERE, 0, now).is_ok());
        assert!(allowance.count(HERE, 0, now).is_ok());
        assert_eq!(allowance.count(HERE, 0, now), Err(60));
        let later = now + Duration::from_secs(45);
        assert_eq!(allowance.count(HERE, 0, later), Err(15));
        assert!(allowance.count(HERE, 0, now + WINDOW).is_ok());
    }

    #[test]
    fn s6_an_address_may_send_so_many_bytes_in_a_minute() {
        let allowance = RateLimit::new(0, 1_000);
        let now = Instant::now();
        assert!(allowance.count(HERE, 600, now).is_ok());
        assert_eq!(allowance.count(HERE, 401, now), Err(60));
        assert!(allowance.count(HERE, 400, now).is_ok());
        assert_eq!(allowance.count(HERE, 1, now), Err(60));
        allowance.give_back(HERE, 300);
        assert!(allowance.count(HERE, 300, now).is_ok());
        let next = now + WINDOW;
        assert!(allowance.count(HERE, 5_000, next).is_ok(), "the first");
        assert!(allowance.count(HERE, 1, next).is_err());
        let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert!(allowance.count(other, 1_000, next).is_ok());
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_as_one() {
        let counted = |text: &str| counted_address(text.parse().unwrap()).to_string();
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
        let allowance = RateLimit::new(1, 0);
        let now = Instant::now();
        let address = |n: u32| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n));
        for n in 0..u32::try_from(ADDRESSES_MAX).unwrap() {
            assert!(allowance.count(address(n), 0, now).is_ok());
        }
        assert!(allowance.count(address(20_000), 0, now).is_ok());
        assert!(allowance.count(address(20_001), 0, now).is_err());
        let later = now + WINDOW;
        assert!(allowance.count(address(20_001), 0, later).is_ok());
        assert!(allowance.windows.lock().unwrap().len() <= ADDRESSES_MAX + 1);
    }
}
