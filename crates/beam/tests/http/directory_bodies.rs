//! Bodies of any shape on every route of the directory.

use serde_json::json;

use super::world::{Identity, World};

const ROUTES: [(&str, &str); 13] = [
    ("POST", "/agents/register"),
    ("POST", "/acl"),
    ("DELETE", "/acl/7"),
    ("POST", "/agents/alice@acme.beam.directory/heartbeat"),
    ("POST", "/agents/alice@acme.beam.directory/keys/rotate"),
    ("POST", "/agents/alice@acme.beam.directory/keys/revoke"),
    ("POST", "/agents/alice@acme.beam.directory/delegate"),
    ("DELETE", "/agents/alice@acme.beam.directory/delegations/1"),
    ("PATCH", "/agents/alice@acme.beam.directory/profile"),
    ("PATCH", "/agents/alice@acme.beam.directory/visibility"),
    ("PATCH", "/agents/alice@acme.beam.directory/config"),
    ("DELETE", "/agents/alice@acme.beam.directory"),
    ("POST", "/agents/nobody@acme.beam.directory/keys/rotate"),
];

#[tokio::test]
async fn a_body_of_any_shape_is_refused_with_an_error_object() {
    let world = World::new().await;
    world.add_agent(&Identity::alice()).await;
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let deep_object = format!("{}1{}", r#"{"a":"#.repeat(8_000), "}".repeat(8_000));
    let long = json!({"x": "y".repeat(60_000)}).to_string();
    let odd = json!({
        "beamId": ["a"], "displayName": {"a": 1}, "capabilities": {"0": "a"}, "publicKey": true,
        "signature": 7, "timestamp": [], "new_public_key": {}, "public_key": 1e300,
        "targetBeamId": null, "intentType": [], "allowedFrom": {}, "grantee_beam_id": 1, "scope": [],
        "expires_at": {}, "visibility": 3, "httpEndpoint": {"a": 1}, "description": [], "website": 1,
    });
    let lone = r#"{"displayName":"\ud800","capabilities":["\ud800"],"publicKey":"\udfff"}"#;
    let nul = r#"{"displayName":"\u0000","capabilities":["\u0000"],"publicKey":"\u0000","beamId":"\u0000",
        "targetBeamId":"\u0000","intentType":"\u0000","allowedFrom":"\u0000","signature":"\u0000",
        "timestamp":"\u0000","grantee_beam_id":"\u0000","scope":"\u0000","expires_at":4102444800000}"#;
    let odd = odd.to_string();
    let bodies = [
        "null",
        "[]",
        "[[]]",
        "7",
        "-0",
        "\"text\"",
        "true",
        "{}",
        "{",
        "\u{7f}",
        "{\"a\":1}{}",
        "nul",
        &deep,
        &deep_object,
        &long,
        &odd,
        lone,
        nul,
    ];
    for (method, path) in ROUTES {
        for body in bodies {
            for local in [true, false] {
                let sent = Some(body.to_owned());
                let answer = if local {
                    world.request(method, path, &[], sent).await
                } else {
                    world.from_elsewhere(method, path, &[], sent).await
                };
                let shown: String = body.chars().take(40).collect();
                assert!(
                    (400..500).contains(&answer.status),
                    "{method} {path} {shown}: {}",
                    answer.status
                );
                answer.error();
            }
        }
        let huge = Some("x".repeat(65_537));
        let answer = world.request(method, path, &[], huge).await;
        assert_eq!(
            answer.error(),
            (413, "SHIELD_PAYLOAD_TOO_LARGE".to_owned()),
            "{method} {path}"
        );
        assert_eq!(
            world.request(method, path, &[], None).await.error().0 / 100,
            4,
            "no body"
        );
    }
    let found = world.get("/agents/alice@acme.beam.directory").await;
    assert_eq!(found.status, 200, "nothing changed");
}
