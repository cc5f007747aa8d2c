//! Size limits of payloads, bodies and batches.

use serde_json::json;

use crate::world::{Answer, Call, MAIN, World};

pub(crate) async fn post(world: &World, uri: &str, key: &str, body: impl Into<Vec<u8>>) -> Answer {
    world.send(Call::post(uri).key(key).raw(body)).await
}

pub(crate) fn with_payload(payload: &str) -> String {
    format!("{{\"goal\":\"g\",\"payload\":{payload}}}")
}

/// The text, padded with trailing spaces.
fn padded(text: &str, bytes: usize) -> String {
    text.to_owned() + &" ".repeat(bytes - text.len())
}

#[tokio::test]
async fn ip_034_a_payload_has_at_most_7168_bytes_of_compact_utf_8() {
    let world = World::new();
    let text = |content: &str| format!("\"{content}\"");
    let spaced = format!("[{}\"{}\"\n]", " ".repeat(800), "x".repeat(7_164));
    let cases = [
        (text(&"x".repeat(7_166)), true),
        (text(&"x".repeat(7_167)), false),
        (text(&"é".repeat(3_583)), true),
        (text(&format!("{}x", "é".repeat(3_583))), false),
        (text(&"😀".repeat(1_791)), true),
        // An escaped character counts as its UTF-8 bytes.
        (text(&"\\u00e9".repeat(1_300)), true),
        (text(&format!("{}\\u00e9", "x".repeat(7_164))), true),
        (text(&format!("{}\\u00e9", "x".repeat(7_165))), false),
        (text(&format!("{}\\ud83d\\ude00", "x".repeat(7_162))), true),
        (text(&format!("{}\\ud83d\\ude00", "x".repeat(7_163))), false),
        (text(&format!("{}\\/\\u0041", "x".repeat(7_164))), true),
        // A character that JSON must escape counts with its escape.
        (text(&format!("{}\\n", "x".repeat(7_164))), true),
        (text(&format!("{}\\n", "x".repeat(7_165))), false),
        (text(&format!("{}\\u0000", "x".repeat(7_160))), true),
        (text(&format!("{}\\u0000", "x".repeat(7_161))), false),
        (text(&format!("{}\\ud800", "x".repeat(7_160))), true),
        (text(&format!("{}\\ud800", "x".repeat(7_161))), false),
        // White space between tokens is neither stored nor counted.
        (spaced.clone(), true),
        (spaced.replace('x', "xx").replace("xx\"", "x\""), false),
        (format!("[{}0]", "1,".repeat(3_583)), false),
        (format!("[{}0]", "1,".repeat(3_582)), true),
    ];
    for (payload, fits) in cases {
        let (shown, length) = (&payload[..1], payload.len());
        let answer = post(&world, "/intent", MAIN, with_payload(&payload)).await;
        if fits {
            assert_eq!(answer.status, 201, "{shown} {length}: {}", answer.text());
        } else {
            assert_eq!(answer.status, 413, "{shown} {length}");
            answer.assert_refused(413, "payload_too_large");
        }
    }
}

#[tokio::test]
async fn ip_090_a_request_body_has_at_most_8192_bytes_white_space_included() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let routes = [
        (
            "/intent".to_owned(),
            r#"{"goal":"g","payload":1}"#.to_owned(),
            201,
        ),
        ("/set/k".to_owned(), r#"{"value":"v"}"#.to_owned(), 200),
        (
            format!("/extend_claim/{id}"),
            format!("{{\"claim_token\":\"{token}\"}}"),
            200,
        ),
        (
            format!("/fulfill/{id}"),
            format!("{{\"claim_token\":\"{token}\"}}"),
            200,
        ),
        ("/claim".to_owned(), String::new(), 200),
    ];
    for (uri, body, status) in routes {
        let body = |bytes: usize| padded(&body, bytes);
        for bytes in [8_193, 100_000] {
            post(&world, &uri, MAIN, body(bytes))
                .await
                .assert_refused(413, "payload_too_large");
        }
        let answer = post(&world, &uri, MAIN, body(8_192)).await;
        assert_eq!(answer.status, status, "{uri}: {}", answer.text());
    }
    let admin = Call::post("/admin/cleanup").admin().raw(vec![b' '; 8_193]);
    world
        .send(admin)
        .await
        .assert_refused(413, "payload_too_large");
    post(&world, "/nowhere", MAIN, vec![b' '; 8_193])
        .await
        .assert_refused(413, "payload_too_large");
}

#[tokio::test]
async fn ip_034_ip_090_in_a_batch_each_item_has_the_bounds_of_a_request() {
    let world = World::new();
    let small = with_payload("1");
    let item = |bytes: usize| format!("{{\"goal\":\"g\",{}\"payload\":1}}", " ".repeat(bytes - 24));
    assert_eq!(item(8_192).len(), 8_192);
    let big = with_payload(&format!("\"{}\"", "x".repeat(7_167)));
    for (items, refused) in [
        (vec![small.clone(), item(8_192)], None),
        (
            vec![small.clone(), item(8_193)],
            Some((413, "payload_too_large", 1)),
        ),
        (
            vec![big, small.clone()],
            Some((413, "payload_too_large", 0)),
        ),
        (
            vec![small.clone(), "5".to_owned()],
            Some((400, "invalid_payload", 1)),
        ),
        (
            vec![small.clone(), "{\"goal\":\"g\"}".to_owned()],
            Some((400, "invalid_request", 1)),
        ),
    ] {
        let answer = post(
            &world,
            "/intents",
            MAIN,
            format!("{{\"intents\":[{}]}}", items.join(",")),
        )
        .await;
        match refused {
            None => assert_eq!(answer.status, 201, "{}", answer.text()),
            Some((status, code, index)) => {
                answer.assert_refused(status, code);
                assert_eq!(answer.json()["error"]["index"], index);
            }
        }
    }
    for count in [0, 101] {
        let items = vec![small.clone(); count].join(",");
        let answer = post(
            &world,
            "/intents",
            MAIN,
            format!("{{\"intents\":[{items}]}}"),
        )
        .await;
        answer.assert_refused(400, "invalid_request");
    }
    let full = vec![small; 100].join(",");
    assert_eq!(
        post(
            &world,
            "/intents",
            MAIN,
            format!("{{\"intents\":[{full}]}}")
        )
        .await
        .status,
        201
    );
    let mib = padded("{\"intents\":[]}", (1 << 20) + 1);
    post(&world, "/intents", MAIN, mib)
        .await
        .assert_refused(413, "payload_too_large");
}
