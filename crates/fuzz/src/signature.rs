//! Request signatures: client and server sign the same bytes, and only those bytes pass.
//!
//! Input: a line with the request target, then the body.

use consign_client::{SecretKey, canonical_query as client_query, signature};
use consign_intent::signature::{
    SignatureError, SignedRequest, canonical_paths, canonical_query, verify,
};
use http::Uri;

const KEY: &str = "tk_0123456789abcdef";
const TIMESTAMP: &str = "1800000000";
const NONCE: &str = "00112233445566778899aabbccddeeff";

pub(crate) fn run(bytes: &[u8]) {
    let line_end = bytes.iter().position(|byte| *byte == b'\n');
    let (target, body) = bytes.split_at(line_end.unwrap_or(bytes.len()));
    let Ok(target) = str::from_utf8(target) else {
        return;
    };
    query_form(target);
    let Ok(uri) = target.parse::<Uri>() else {
        return;
    };
    // A client sends origin form; of any other form the server sees another target than the client signed.
    if uri.path_and_query().map(http::uri::PathAndQuery::as_str) == Some(target) {
        round_trip(&uri, target, body);
    }
}

fn query_form(text: &str) {
    let form = canonical_query(text);
    assert_eq!(canonical_query(&form), form, "not its own fixed point");
    assert_eq!(client_query(text), form, "client and server disagree");
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-~%=&".contains(&byte);
    assert!(form.bytes().all(allowed), "{form}");
}

fn round_trip(uri: &Uri, target: &str, body: &[u8]) {
    let made = signature(&SecretKey::new(KEY), "POST", target, TIMESTAMP, NONCE, body);
    let signed = SignedRequest {
        method: "POST",
        path: uri.path(),
        query: uri.query().unwrap_or_default(),
        timestamp: Some(TIMESTAMP.as_bytes()),
        nonce: Some(NONCE.as_bytes()),
        signature: Some(made.as_bytes()),
        body,
    };
    let now = 1_800_000_000.5;
    if canonical_paths(signed.path, signed.query).has_control_character {
        let refused = verify(&signed, KEY, now).expect_err("a control character passed");
        assert_eq!(refused, SignatureError::BadSignature);
        return;
    }
    assert_eq!(
        verify(&signed, KEY, now).map(|nonce| nonce.0).as_deref(),
        Ok(NONCE)
    );
    let longer = [body, b"x"].concat();
    let altered = [
        SignedRequest {
            body: &longer,
            ..signed
        },
        SignedRequest {
            method: "PUT",
            ..signed
        },
        SignedRequest {
            nonce: Some(b"another"),
            ..signed
        },
        SignedRequest {
            timestamp: Some(b"1800000001"),
            ..signed
        },
    ];
    for altered in altered {
        let refused = verify(&altered, KEY, now).expect_err("an altered request passed");
        assert_eq!(refused, SignatureError::BadSignature);
    }
    assert!(verify(&signed, "another key", now).is_err());
    let stale = verify(&signed, KEY, now + 301.0);
    assert_eq!(stale, Err(SignatureError::StaleTimestamp));
}
