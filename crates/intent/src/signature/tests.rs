//! The vectors were made with the signing functions of the published Python client.

use super::*;

const KEY: &str = "tk_0123456789abcdef0123456789abcdef01234567";
const TIMESTAMP: &str = "1700000000";
const NOW: f64 = 1_700_000_000.5;
const NONCE: &str = "00112233445566778899aabbccddeeff";

/// A request with the fixed timestamp and nonce of the vectors.
fn signed<'a>(
    method: &'a str,
    target: &'a str,
    body: &'a str,
    signature: &'a str,
) -> SignedRequest<'a> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    SignedRequest {
        method,
        path,
        query,
        timestamp: Some(TIMESTAMP.as_bytes()),
        nonce: Some(NONCE.as_bytes()),
        signature: Some(signature.as_bytes()),
        body: body.as_bytes(),
    }
}

#[track_caller]
fn accepts(method: &str, target: &str, body: &str, signature: &str) {
    let verified = verify(&signed(method, target, body, signature), KEY, NOW);
    assert_eq!(verified, Ok(Nonce(NONCE.to_owned())), "{method} {target}");
}

#[track_caller]
fn refuses(method: &str, target: &str, body: &str, signature: &str) {
    let verified = verify(&signed(method, target, body, signature), KEY, NOW);
    assert_eq!(
        verified,
        Err(SignatureError::BadSignature),
        "{method} {target}"
    );
}

/// What a client signs that puts exactly this path (and query) into its message.
fn sign(method: &str, canonical_path: &str, timestamp: &str, nonce: &str, body: &str) -> String {
    let parts = [method, canonical_path, timestamp, nonce, body].map(str::as_bytes);
    String::from_utf8(hex_digest(parts, KEY).to_vec()).unwrap()
}

fn at(timestamp: &str) -> Result<Nonce, SignatureError> {
    let signature = sign("POST", "/intent", timestamp, NONCE, "{}");
    let request = SignedRequest {
        timestamp: Some(timestamp.as_bytes()),
        ..signed("POST", "/intent", "{}", &signature)
    };
    verify(&request, KEY, NOW)
}

const STATUS: &str = "/status/0123456789abcdef0123456789abcdef";
const STATUS_SIGNATURE: &str = "3407767576657f63a98b74d4b2223f55a5b0596694528986bda218f34a46d110";
const INTENT_BODY: &str =
    r#"{"goal":"g","payload":{"a":"\u00e9","b":[1,2.5,null,true]},"priority":100}"#;
const INTENT_SIGNATURE: &str = "368e26d2d719e9ecb9d0151b8955fc0882dbacf3d45c8f78bb73126035270264";

#[test]
fn ip_058_ip_062_vectors_of_the_real_client_verify() {
    accepts("GET", STATUS, "", STATUS_SIGNATURE);
    accepts(
        "POST",
        "/claim?goal=send%20email%2Fnow&namespace=default",
        "",
        "8db617b785de475718f84356562034a19b4d738e0a3a6439c7812e000ee88c20",
    );
    accepts(
        "POST",
        "/claim?goal=a%20b%2Fc%26d%3D%C3%A9~%2B%25&namespace=n1&publisher=tk_1",
        "",
        "dc1c7693c6dbb0931c1287e331c5c0472a62ae8fe5f5b3d51d1c4224d73c4d02",
    );
    accepts("POST", "/intent", INTENT_BODY, INTENT_SIGNATURE);
    accepts(
        "POST",
        "/fulfill/0123456789abcdef0123456789abcdef",
        r#"{"claim_token":"ffeeddccbbaa99887766554433221100","result_type":"json"}"#,
        "8afbf438933d501900def982c39a8447e572536d14e06c37a58a3ea3a04f24d3",
    );
}

#[test]
fn ip_058_the_path_may_be_signed_decoded_or_as_sent() {
    let body = r#"{"ttl":5,"value":"v"}"#;
    accepts(
        "POST",
        "/set/my%20k%C3%A9",
        body,
        "cd67cdf64251772a2a8cff3b402af11594f09c2078e0f6d4c94bbb416456320f",
    );
    let as_sent = sign("POST", "/set/my%20k%C3%A9", TIMESTAMP, NONCE, body);
    accepts("POST", "/set/my%20k%C3%A9", body, &as_sent);
    let another_encoding = sign("POST", "/set/my%20k%c3%a9", TIMESTAMP, NONCE, body);
    refuses("POST", "/set/my%20k%C3%A9", body, &another_encoding);
}

#[test]
fn ip_063_ip_064_ip_065_ip_066_query_vectors_verify() {
    let vectors = [
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
    ];
    for (raw, canonical, signature) in vectors {
        assert_eq!(canonical_query(raw), canonical);
        accepts("POST", &format!("/claim?{raw}"), "", signature);
    }
}

#[test]
fn ip_063_ip_064_a_query_signed_in_another_order_is_refused() {
    let unsorted = sign("POST", "/claim?b=2&a=1", TIMESTAMP, NONCE, "");
    refuses("POST", "/claim?b=2&a=1", "", &unsorted);
    let swapped = sign("POST", "/claim?a=2&a=1", TIMESTAMP, NONCE, "");
    refuses("POST", "/claim?a=1&a=2", "", &swapped);
}

#[test]
fn ip_065_ip_066_odd_queries_have_one_canonical_form() {
    assert_eq!(canonical_query(""), "");
    assert_eq!(canonical_query("&&"), "");
    assert_eq!(canonical_query("a"), "a=");
    assert_eq!(canonical_query("=v"), "=v");
    assert_eq!(canonical_query("a=b=c"), "a=b%3Dc");
    assert_eq!(canonical_query("a=%2B+%20"), "a=%2B%20%20");
    assert_eq!(canonical_query("a=%zz%4"), "a=%25zz%254");
    assert_eq!(canonical_query("a=%FF"), "a=%EF%BF%BD");
    let paths = canonical_paths("/set/a%2Fb", "&");
    assert_eq!(paths.decoded.as_deref(), Some("/set/a/b"));
    assert_eq!(paths.raw, "/set/a%2Fb");
    let paths = canonical_paths("/claim", "b=1&a=/");
    assert_eq!(paths.decoded.as_deref(), Some("/claim?a=%2F&b=1"));
}

#[test]
fn ip_059_the_method_enters_in_upper_case() {
    accepts("get", STATUS, "", STATUS_SIGNATURE);
    let lower = sign("get", STATUS, TIMESTAMP, NONCE, "");
    refuses("GET", STATUS, "", &lower);
    refuses("POST", STATUS, "", STATUS_SIGNATURE);
}

#[test]
fn ip_060_ip_062_the_body_is_signed_byte_for_byte() {
    let odd = "{ \"b\" :1,\n\t\"a\":2 }\r\n";
    let signature = sign("POST", "/intent", TIMESTAMP, NONCE, odd);
    accepts("POST", "/intent", odd, &signature);
    refuses("POST", "/intent", odd.trim_end(), &signature);
    refuses("POST", "/intent", r#"{"a":2,"b":1}"#, &signature);
    let changed = INTENT_BODY.replace("100", "101");
    refuses("POST", "/intent", &changed, INTENT_SIGNATURE);
    refuses("GET", STATUS, "{}", STATUS_SIGNATURE);
}

#[test]
fn ip_057_ip_067_any_other_digest_is_refused() {
    refuses("GET", STATUS, "", &STATUS_SIGNATURE.to_uppercase());
    refuses("GET", STATUS, "", &STATUS_SIGNATURE.replace("3407", "3408"));
    refuses("GET", STATUS, "", &STATUS_SIGNATURE[..63]);
    refuses("GET", STATUS, "", &format!("{STATUS_SIGNATURE}0"));
    refuses("GET", STATUS, "", "x");
    let request = signed("GET", STATUS, "", STATUS_SIGNATURE);
    let other_key = verify(&request, "tk_other", NOW);
    assert_eq!(other_key, Err(SignatureError::BadSignature));
    let other_nonce = SignedRequest {
        nonce: Some(b"ffffffffffffffffffffffffffffffff"),
        ..request
    };
    let refused = verify(&other_nonce, KEY, NOW);
    assert_eq!(refused, Err(SignatureError::BadSignature));
}

#[test]
fn ip_053_timestamps_from_the_past_are_stale_beyond_300_seconds() {
    assert!(at("1699999701").is_ok());
    assert_eq!(at("1699999698"), Err(SignatureError::StaleTimestamp));
    assert_eq!(at("-1700000000"), Err(SignatureError::StaleTimestamp));
    assert_eq!(at("0"), Err(SignatureError::StaleTimestamp));
}

#[test]
fn ip_054_timestamps_from_the_future_are_stale_beyond_300_seconds() {
    assert!(at("1700000299").is_ok());
    assert_eq!(at("1700000302"), Err(SignatureError::StaleTimestamp));
    let beyond_any_clock = "9".repeat(400);
    assert_eq!(at(&beyond_any_clock), Err(SignatureError::StaleTimestamp));
}

#[test]
fn ip_008_no_signature_passes_without_a_valid_timestamp() {
    let invalid = [
        "1700000000.0",
        "+1700000000",
        " 1700000000",
        "17e8",
        "-",
        "x",
        "1_7",
    ];
    for timestamp in invalid {
        assert_eq!(
            at(timestamp),
            Err(SignatureError::InvalidTimestamp),
            "{timestamp}"
        );
    }
    let request = signed("GET", STATUS, "", STATUS_SIGNATURE);
    let lacking = [
        SignedRequest {
            timestamp: None,
            ..request
        },
        SignedRequest {
            timestamp: Some(b""),
            ..request
        },
        SignedRequest {
            nonce: None,
            ..request
        },
        SignedRequest {
            nonce: Some(b""),
            ..request
        },
        SignedRequest {
            signature: None,
            ..request
        },
    ];
    for request in lacking {
        let refused = verify(&request, KEY, NOW);
        assert_eq!(refused, Err(SignatureError::MissingHeaders));
    }
}

#[test]
fn the_messages_are_those_clients_know() {
    let expected = [
        (
            SignatureError::MissingHeaders,
            "Missing required signature headers.",
        ),
        (SignatureError::InvalidTimestamp, "Invalid timestamp"),
        (SignatureError::StaleTimestamp, "Stale timestamp"),
        (SignatureError::BadSignature, "Bad signature"),
    ];
    for (error, message) in expected {
        assert_eq!(error.message(), message);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_request_is_taken_apart_as_it_came() {
    let (parts, ()) = http::Request::post("http://bus/set/a%20b?x=1")
        .header("X-Signature", "s")
        .header("X-Nonce", "")
        .body(())
        .unwrap()
        .into_parts();
    let signed = SignedRequest::new(&parts, b"b");
    assert_eq!((signed.path, signed.query), ("/set/a%20b", "x=1"));
    assert_eq!(signed.signature, Some(b"s".as_slice()));
    assert_eq!((signed.nonce, signed.timestamp), (None, None));
    assert!(is_signed(&parts.headers));
    assert!(!is_signed(&HeaderMap::new()));
}

#[test]
fn s15_a_decoded_path_that_could_be_another_raw_one_is_not_accepted() {
    for raw in [
        "/set/a%252Fb",
        "/set/100%2525",
        // No two digits follow the first one, and the second one makes them.
        "/set/a%%32Fb",
        // Otherwise the same as `/set/a` with a query.
        "/set/a%3Fb=1",
        // Not UTF-8: many of them look alike.
        "/set/a%FF",
    ] {
        let paths = canonical_paths(raw, "");
        assert_eq!((paths.decoded, &*paths.raw), (None, raw));
    }
    // Raw and decoded, this is the same key, and the published client signs it decoded.
    for raw in ["/set/100%", "/set/100%25", "/set/100%25zz"] {
        let paths = canonical_paths(raw, "");
        assert_eq!(
            paths.decoded.as_deref(),
            Some(raw.replace("%25", "%").as_str())
        );
    }
}

#[test]
fn s15_a_control_character_in_a_path_is_refused_however_it_is_signed() {
    for (raw, refused) in [
        ("/set/k%0A17", true),
        ("/set/k%0D", true),
        ("/set/k%00", true),
        ("/set/k%7F", true),
        ("/set/k%C2%85", true),
        ("/set/k%20", false),
    ] {
        let paths = canonical_paths(raw, "");
        assert_eq!(paths.has_control_character, refused, "{raw}");
    }
}
