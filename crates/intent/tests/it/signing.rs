//! Signed requests. The signer is written from the text of the protocol and not from the code of the server.

use consign_engine::Operator;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde_json::json;
use sha2::Sha256;

use crate::world::{Answer, Call, MAIN, World};

/// The signature parameters of a client.
pub(crate) struct Signer<'a> {
    pub(crate) key: &'a str,
    pub(crate) timestamp: String,
    pub(crate) nonce: String,
}

impl<'a> Signer<'a> {
    pub(crate) fn new(world: &World, key: &'a str, nonce: &str) -> Self {
        Self {
            key,
            timestamp: world.clock.unix_s().to_string(),
            nonce: nonce.to_owned(),
        }
    }

    pub(crate) fn at(world: &World, offset_s: i64, nonce: &str) -> Self {
        let timestamp = (world.clock.unix_s() + offset_s).to_string();
        Self {
            timestamp,
            ..Self::new(world, MAIN, nonce)
        }
    }

    /// HMAC-SHA256 in lowercase hex over method, path, timestamp, nonce and body, joined by newlines.
    fn digest(&self, method: &str, path: &str, body: &[u8]) -> String {
        let head = [method, path, &self.timestamp, &self.nonce].join("\n");
        let message = [head.as_bytes(), body].join(&b'\n');
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.as_bytes()).unwrap();
        mac.update(&message);
        HEXLOWER.encode(&mac.finalize().into_bytes())
    }

    /// The call with its key and signature headers. `path` is the path that is signed.
    pub(crate) fn sign(&self, call: Call, path: &str) -> Call {
        let digest = self.digest(call.method.as_str(), path, &call.body);
        self.stamp(call, &digest)
    }

    fn stamp(&self, call: Call, digest: &str) -> Call {
        let call = call.key(self.key).header("x-timestamp", &self.timestamp);
        call.header("x-nonce", &self.nonce)
            .header("x-signature", digest)
    }
}

pub(crate) fn publish() -> Call {
    Call::post("/intent").json(&json!({"goal": "g", "payload": 1}))
}

#[track_caller]
pub(crate) fn assert_unsigned(answer: &Answer, message: &str) {
    answer.assert_refused(403, "invalid_signature");
    assert_eq!(answer.json()["error"]["message"], message);
}

const VECTOR_KEY: &str = "tk_0123456789abcdef0123456789abcdef01234567";

/// Sends a request with a digest of the existing client, at the time when that digest was computed.
async fn vector(method: Method, uri: &str, body: &str, digest: &str) -> Answer {
    let world = World::new();
    world.clock.advance_s(1_700_000_000 - world.clock.unix_s());
    world
        .engine
        .adopt_key(
            Operator::vouched(),
            VECTOR_KEY,
            "vector",
            world.engine.now(),
            0,
        )
        .await
        .unwrap();
    let signer = Signer::new(&world, VECTOR_KEY, "00112233445566778899aabbccddeeff");
    assert_eq!(signer.timestamp, "1700000000");
    world
        .send(signer.stamp(Call::new(method, uri).raw(body), digest))
        .await
}

#[tokio::test]
async fn ip_058_ip_062_digests_made_by_the_existing_client_are_right() {
    let id = "0123456789abcdef0123456789abcdef";
    let publish = r#"{"goal":"g","payload":{"a":"\u00e9","b":[1,2.5,null,true]},"priority":100}"#;
    let fulfil = r#"{"claim_token":"ffeeddccbbaa99887766554433221100","result_type":"json"}"#;
    let status = format!("/status/{id}");
    let fulfil_uri = format!("/fulfill/{id}");
    let cases = [
        (
            "GET",
            &*status,
            "",
            "3407767576657f63a98b74d4b2223f55a5b0596694528986bda218f34a46d110",
            404,
        ),
        (
            "POST",
            "/claim?goal=send%20email%2Fnow&namespace=default",
            "",
            "8db617b785de475718f84356562034a19b4d738e0a3a6439c7812e000ee88c20",
            204,
        ),
        (
            "POST",
            "/claim?goal=a%20b%2Fc%26d%3D%C3%A9~%2B%25&namespace=n1&publisher=tk_1",
            "",
            "dc1c7693c6dbb0931c1287e331c5c0472a62ae8fe5f5b3d51d1c4224d73c4d02",
            403,
        ),
        (
            "POST",
            "/intent",
            publish,
            "368e26d2d719e9ecb9d0151b8955fc0882dbacf3d45c8f78bb73126035270264",
            201,
        ),
        (
            "POST",
            &fulfil_uri,
            fulfil,
            "8afbf438933d501900def982c39a8447e572536d14e06c37a58a3ea3a04f24d3",
            404,
        ),
        (
            "POST",
            "/set/my%20k%C3%A9",
            r#"{"ttl":5,"value":"v"}"#,
            "cd67cdf64251772a2a8cff3b402af11594f09c2078e0f6d4c94bbb416456320f",
            200,
        ),
    ];
    for (method, uri, body, digest, status) in cases {
        let method: Method = method.parse().unwrap();
        let answer = vector(method.clone(), uri, body, digest).await;
        assert_eq!(answer.status, status, "{uri}: {}", answer.text());
        if status == 403 {
            assert_eq!(
                answer.code(),
                "forbidden",
                "the signature is right, the publisher is not theirs"
            );
        }
        let wrong = format!(
            "{}{}",
            &digest[..63],
            if digest.ends_with('0') { '1' } else { '0' }
        );
        assert_unsigned(&vector(method, uri, body, &wrong).await, "Bad signature");
    }
}

#[tokio::test]
async fn ip_063_ip_064_ip_065_ip_066_the_query_is_signed_sorted_whole_and_strictly_encoded() {
    let cases = [
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
    for (wire, _, digest) in cases {
        let answer = vector(Method::POST, &format!("/claim?{wire}"), "", digest).await;
        assert_eq!(answer.status, 204, "{wire}: {}", answer.text());
    }
    // Refused: signed as sent, in another order, without a repeated or empty parameter, or with another encoding.
    let world = World::new();
    let wrong = [
        ("b=2&a=&b=1&a=x", "b=2&a=&b=1&a=x"),
        ("b=2&a=&b=1&a=x", "a=&a=x&b=1&b=2"),
        ("b=2&a=&b=1&a=x", "a=x&b=1"),
        ("b=2&a=&b=1&a=x", "a=x&b=2&b=1"),
        ("z&goal=a+b", "goal=a+b&z="),
        ("goal=a%2fb", "goal=a/b"),
        ("goal=a%2fb", "goal=a%2fb"),
        ("b=%C3%A9&&a=%7E", "a=%7E&b=%C3%A9"),
    ];
    for (nth, (wire, signed)) in cases
        .iter()
        .map(|case| (case.0, case.1))
        .chain(wrong)
        .enumerate()
    {
        let signer = Signer::new(&world, MAIN, &format!("n{nth}"));
        let call = signer.sign(
            Call::post(&format!("/claim?{wire}")),
            &format!("/claim?{signed}"),
        );
        let answer = world.send(call).await;
        if nth < cases.len() {
            assert_eq!(answer.status, 204, "{wire}: {}", answer.text());
        } else {
            assert_unsigned(&answer, "Bad signature");
        }
    }
    let empty = Signer::new(&world, MAIN, "e").sign(Call::post("/claim?&&"), "/claim");
    assert_eq!(
        world.send(empty).await.status,
        204,
        "an empty query is no query"
    );
}

#[tokio::test]
async fn ip_059_the_method_is_signed_in_upper_case() {
    let world = World::new();
    for (nth, (method, status)) in [("POST", 204), ("post", 403), ("Post", 403), ("GET", 403)]
        .iter()
        .enumerate()
    {
        let signer = Signer::new(&world, MAIN, &format!("n{nth}"));
        let digest = signer.digest(method, "/claim", b"");
        assert_eq!(
            world
                .send(signer.stamp(Call::post("/claim"), &digest))
                .await
                .status,
            *status,
            "{method}"
        );
    }
}

#[tokio::test]
async fn ip_060_ip_057_the_body_is_signed_byte_for_byte() {
    let world = World::new();
    let odd = " {\t\"payload\" : [ 1.0 ,2e1 ] ,\r\n \"goal\":\"\\u0067\" , \"goal\": \"g\" } ";
    let signer = Signer::new(&world, MAIN, "n1");
    let signed = signer.sign(Call::post("/intent").raw(odd), "/intent");
    let (mut respaced, mut longer, mut key) = (signed.clone(), signed.clone(), signed.clone());
    respaced.body.pop();
    longer.body.push(b'\n');
    key.headers
        .iter_mut()
        .find(|(name, _)| name == "x-nonce")
        .unwrap()
        .1 = "n2".to_owned();
    for changed in [respaced, longer, key] {
        assert_unsigned(&world.send(changed).await, "Bad signature");
    }
    let other_path = Call {
        uri: "/intents".to_owned(),
        ..signed.clone()
    };
    assert_unsigned(&world.send(other_path).await, "Bad signature");
    assert_eq!(
        world.send(signed).await.status,
        201,
        "failures burnt no nonce"
    );
}

#[tokio::test]
async fn ip_057_ip_067_any_other_digest_is_refused() {
    let world = World::new();
    let signer = Signer::new(&world, MAIN, "n");
    let right = signer.digest("POST", "/intent", &publish().body);
    let foreign = Signer {
        key: "another key",
        ..Signer::new(&world, MAIN, "n")
    };
    let wrong = [
        right.to_uppercase(),
        right[..63].to_owned(),
        format!("{right}0"),
        format!("0x{right}"),
        "0".repeat(64),
        "é".repeat(32),
        "x".repeat(100_000),
        foreign.digest("POST", "/intent", &publish().body),
    ];
    for digest in wrong {
        assert_unsigned(
            &world.send(signer.stamp(publish(), &digest)).await,
            "Bad signature",
        );
    }
    assert!(world.claim().await.is_none(), "nothing was published");
    assert_eq!(
        world.send(signer.stamp(publish(), &right)).await.status,
        201
    );
}

#[tokio::test]
async fn ip_058_a_path_may_be_signed_as_meant_or_as_sent() {
    let world = World::new();
    let cases = [
        ("/set/my%20k%C3%A9", "/set/my ké", true),
        ("/set/my%20k%C3%A9", "/set/my%20k%C3%A9", true),
        // This signature would also match `/set/a%20b` as sent.
        ("/set/a%2520b", "/set/a%20b", false),
        ("/set/a%2520b", "/set/a%2520b", true),
        ("/set/a%2520b", "/set/a b", false),
        ("/set/my%20k%C3%A9", "/set/my%20k%c3%a9", false),
        ("/set/a%zzb", "/set/a%zzb", true),
    ];
    for (nth, (wire, signed, fits)) in cases.into_iter().enumerate() {
        let call = Call::post(wire).json(&json!({"value": "v"}));
        let call = Signer::new(&world, MAIN, &format!("n{nth}")).sign(call, signed);
        let answer = world.send(call).await;
        let bad = answer.status == 403;
        assert_eq!(!bad, fits, "{wire} signed as {signed}: {}", answer.text());
    }
}
