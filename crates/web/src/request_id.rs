//! Request ids, which connect a log line, an error body and a bug report.
//!
//! Invariant: an id is 1 to 128 characters of `A-Z a-z 0-9 _ . : -`, so it is safe in a header, a
//! log line and a JSON string without escaping. Ids are unique within a process and unlikely to
//! repeat across processes; they are not secrets and must never be used as one.

use std::sync::atomic::{AtomicU64, Ordering};

use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries the id in both directions.
pub static HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// A longer client id is replaced.
pub const LENGTH_MAX: usize = 128;

/// The id of one request; found in the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The id that the client sent, if it is valid.
    pub fn presented(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(&HEADER)?;
        let bytes = value.as_bytes();
        let fits = (1..=LENGTH_MAX).contains(&bytes.len());
        (fits && bytes.iter().copied().all(is_allowed)).then(|| Self(value.clone()))
    }

    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("only visible ASCII becomes an id")
    }

    pub(super) fn into_header(self) -> HeaderValue {
        self.0
    }
}

const fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-')
}

/// Generates ids for requests without one.
#[derive(Debug)]
pub(super) struct RequestIds {
    /// The first half of each id, the same for the whole process.
    process: [u8; 16],
    start: u64,
    made: AtomicU64,
}

impl RequestIds {
    pub(super) fn new(seed: u128) -> Self {
        let bytes = seed.to_be_bytes();
        let (halves, _none_left) = bytes.as_chunks::<8>();
        let [high, low] = [halves[0], halves[1]].map(u64::from_be_bytes);
        Self {
            process: hex(scattered(high)),
            start: low,
            made: AtomicU64::new(0),
        }
    }

    pub(super) fn next(&self) -> RequestId {
        let nth = self.made.fetch_add(1, Ordering::Relaxed);
        let mut id = [0; 32];
        id[..16].copy_from_slice(&self.process);
        id[16..].copy_from_slice(&hex(scattered(self.start.wrapping_add(nth))));
        RequestId(HeaderValue::from_bytes(&id).expect("hex digits are a valid header value"))
    }
}

fn hex(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    HEXLOWER.encode_mut(&number.to_be_bytes(), &mut digits);
    digits
}

/// A bijection on 64 bits (the finaliser of SplitMix64): different inputs never collide.
const fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presented(value: &[u8]) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(&HEADER, HeaderValue::from_bytes(value).unwrap());
        RequestId::presented(&headers).map(|id| id.as_str().to_owned())
    }

    #[test]
    fn a_well_formed_id_is_kept_and_any_other_dropped() {
        assert_eq!(presented(b"aZ0_.:-").as_deref(), Some("aZ0_.:-"));
        assert!(presented(&[b'x'; 128]).is_some());
        assert_eq!(presented(&[b'x'; 129]), None);
        assert_eq!(presented(b""), None);
        assert_eq!(presented(b"a b"), None);
        assert_eq!(presented(b"a\"b"), None);
        assert_eq!(presented("\u{e9}".as_bytes()), None);
        assert_eq!(RequestId::presented(&HeaderMap::new()), None);
    }

    #[test]
    fn made_ids_differ_and_are_32_hex_digits() {
        let ids = RequestIds::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let [first, second] = [ids.next(), ids.next()];

        assert_ne!(first, second);
        assert_eq!(first.as_str()[..16], second.as_str()[..16]);
        assert_eq!(first.as_str().len(), 32);
        assert!(first.as_str().bytes().all(|b| b.is_ascii_hexdigit()));
        assert_ne!(RequestIds::new(1).next(), RequestIds::new(2).next());
    }
}
