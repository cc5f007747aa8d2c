//! Request signing: HMAC-SHA256 over method, canonical path, timestamp, nonce and body.
//!
//! Invariant: the five parts are joined by newlines. The path is percent-decoded (or as sent, if decoding would be ambiguous).
//! The query is re-encoded and sorted by key; repeated keys keep their order. The body is signed as the exact bytes that are
//! sent, so it must not be serialised again afterwards.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::query::{decode, encode};
use crate::{Error, SecretKey};

/// The values of the three signature headers.
#[derive(Debug)]
pub(crate) struct Stamp {
    pub(crate) timestamp: String,
    pub(crate) nonce: String,
    pub(crate) signature: String,
}

/// A new timestamp and nonce with their signature. Every attempt needs its own, because a nonce can be used once.
pub(crate) fn stamp(
    key: &SecretKey,
    method: &str,
    path_and_query: &str,
    body: &[u8],
) -> Result<Stamp, Error> {
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|_| Error::Request("the clock of this machine is before 1970".to_owned()))?;
    let mut nonce = [0_u8; 16];
    getrandom::fill(&mut nonce).map_err(|error| Error::Entropy(error.to_string()))?;
    let timestamp = since_epoch.as_secs().to_string();
    let nonce = HEXLOWER.encode(&nonce);
    let signature = signature(key, method, path_and_query, &timestamp, &nonce, body);
    Ok(Stamp {
        timestamp,
        nonce,
        signature,
    })
}

/// The signature as 64 lower-case hexadecimal digits; `path_and_query` is that of the request line.
pub fn signature(
    key: &SecretKey,
    method: &str,
    path_and_query: &str,
    timestamp: &str,
    nonce: &str,
    body: &[u8],
) -> String {
    let (path, query) = path_and_query
        .split_once('?')
        .unwrap_or((path_and_query, ""));
    let mut mac = Hmac::<Sha256>::new_from_slice(key.reveal().as_bytes())
        .expect("HMAC takes keys of any length");
    mac.update(method.to_ascii_uppercase().as_bytes());
    mac.update(b"\n");
    let decoded = decode(path, false);
    // A decoded path with these characters could also be another path as sent, so the server accepts only the sent form.
    let is_ambiguous = decoded.contains(['%', '?', char::REPLACEMENT_CHARACTER]);
    mac.update(if is_ambiguous { path } else { &decoded }.as_bytes());
    let query = canonical_query(query);
    if !query.is_empty() {
        mac.update(b"?");
        mac.update(query.as_bytes());
    }
    for part in [timestamp, nonce] {
        mac.update(b"\n");
        mac.update(part.as_bytes());
    }
    mac.update(b"\n");
    mac.update(body);
    HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// The query in signing form: empty segments removed, decoded, sorted by key, strictly encoded again.
pub fn canonical_query(raw: &str) -> String {
    let mut pairs: Vec<(String, String)> = raw
        .split('&')
        .filter(|segment| !segment.is_empty())
        .map(|segment| {
            let (name, value) = segment.split_once('=').unwrap_or((segment, ""));
            (decode(name, true), decode(value, true))
        })
        .collect();
    // The sort is stable, so repeated keys keep their order.
    pairs.sort_by(|left, right| left.0.cmp(&right.0));
    let encoded: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name.as_bytes()), encode(value.as_bytes())))
        .collect();
    encoded.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path_and_query: &str, body: &str, expected: &str) {
        let key = SecretKey::new("tk_0123456789abcdef0123456789abcdef01234567");
        let made = signature(
            &key,
            method,
            path_and_query,
            "1700000000",
            "00112233445566778899aabbccddeeff",
            body.as_bytes(),
        );
        assert_eq!(made, expected, "for {method} {path_and_query}");
    }

    #[test]
    fn ip_058_signatures_match_the_published_vectors() {
        check(
            "GET",
            "/status/0123456789abcdef0123456789abcdef",
            "",
            "3407767576657f63a98b74d4b2223f55a5b0596694528986bda218f34a46d110",
        );
        check(
            "POST",
            "/claim?goal=send%20email%2Fnow&namespace=default",
            "",
            "8db617b785de475718f84356562034a19b4d738e0a3a6439c7812e000ee88c20",
        );
        check(
            "POST",
            "/claim?goal=a%20b%2Fc%26d%3D%C3%A9~%2B%25&namespace=n1&publisher=tk_1",
            "",
            "dc1c7693c6dbb0931c1287e331c5c0472a62ae8fe5f5b3d51d1c4224d73c4d02",
        );
        check(
            "post",
            "/intent",
            r#"{"goal":"g","payload":{"a":"\u00e9","b":[1,2.5,null,true]},"priority":100}"#,
            "368e26d2d719e9ecb9d0151b8955fc0882dbacf3d45c8f78bb73126035270264",
        );
        check(
            "POST",
            "/fulfill/0123456789abcdef0123456789abcdef",
            r#"{"claim_token":"ffeeddccbbaa99887766554433221100","result_type":"json"}"#,
            "8afbf438933d501900def982c39a8447e572536d14e06c37a58a3ea3a04f24d3",
        );
    }

    #[test]
    fn ip_058_the_path_is_signed_in_decoded_form() {
        check(
            "POST",
            "/set/my%20k%C3%A9",
            r#"{"ttl":5,"value":"v"}"#,
            "cd67cdf64251772a2a8cff3b402af11594f09c2078e0f6d4c94bbb416456320f",
        );
    }

    #[test]
    fn ip_063_to_066_queries_are_sorted_kept_whole_and_strictly_encoded() {
        for (raw, canonical, signature) in [
            (
                "b=2&a=&b=1&a=x",
                "a=&a=x&b=2&b=1",
                "964aae4b86aec3e21d3c4d0734d0d985e4d0e50fa2aae695232588e4036879e4",
            ),
            (
                "z&goal=a+b",
                "goal=a%20b&z=",
                "0977bc5fedd894730ec9436dce95442117520b11677238a317ba4e31c030b0a2",
            ),
            (
                "goal=a%2fb",
                "goal=a%2Fb",
                "2a997935260c698db7d3613e0ee79f47d64175beaa4d62becb83de7fe0406088",
            ),
            (
                "b=%C3%A9&&a=%7E",
                "a=~&b=%C3%A9",
                "2e562066245e5861bdba80b5614fa64968e6de28ca876ac42ca3d4f3c23e3243",
            ),
            (
                "A=1&a=2&_=3",
                "A=1&_=3&a=2",
                "480562425628738ec7b35e603a9ace46b3492211bce14875ddfa871fc9fb63bc",
            ),
        ] {
            assert_eq!(canonical_query(raw), canonical);
            check("POST", &format!("/claim?{raw}"), "", signature);
        }
    }
}
