//! The fields of an intent in responses: ids, times, errors, the type of the result.

use serde_json::{Value, json};

use crate::steps::text;
use crate::world::World;

#[tokio::test]
async fn ip_043_ip_044_ip_045_ids_are_hex_and_times_are_unix_seconds() {
    let world = World::new();
    world.clock.advance_us(250_000);
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    assert!(
        id.len() == 32
            && id
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        "{id}"
    );
    let base = 1_800_000_000.25;
    let detail = world.detail(&id).await;
    for (field, at) in [
        ("created_at", base),
        ("run_at", base),
        ("expires_at", base + 86_400.0),
        ("claimed_at", base),
        ("claim_expires_at", base + 60.0),
    ] {
        assert_eq!(detail[field].as_f64(), Some(at), "{field}");
    }
    assert_eq!(detail["completed_at"], Value::Null);
    world.clock.advance_s(5);
    world.act("fulfill", &id, &token).await;
    for uri in [format!("/result/{id}"), format!("/status/{id}")] {
        let seen = world.main_get(&uri).await.json();
        assert_eq!(seen["run_at"].as_f64(), Some(base));
        assert_eq!(seen["completed_at"].as_f64(), Some(base + 5.0));
    }
}

#[tokio::test]
async fn ip_047_the_result_type_is_always_json_or_text() {
    let world = World::new();
    let cases = [
        (json!({}), "json"),
        (json!({"result": {"a": 1}}), "json"),
        (json!({"result": "t", "result_type": "text"}), "text"),
        (json!({"result": "t", "result_type": "json"}), "json"),
        (json!({"result_type": "text"}), "json"),
    ];
    for (mut body, kind) in cases {
        let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
        let uri = format!("/result/{id}");
        assert_eq!(
            world.main_get(&uri).await.json()["result_type"],
            "json",
            "before the end"
        );
        body["claim_token"] = json!(token);
        assert_eq!(
            world
                .main_post(&format!("/fulfill/{id}"), &body)
                .await
                .status,
            200
        );
        assert_eq!(
            world.main_get(&uri).await.json()["result_type"],
            kind,
            "{body}"
        );
        assert_eq!(world.detail(&id).await["result_type"], kind, "{body}");
    }
}

#[tokio::test]
async fn ip_046_the_last_error_is_the_message_of_the_last_failure() {
    let cases = [
        (json!("disk full"), "disk full".to_owned()),
        (json!("  trimmed \n"), "trimmed".to_owned()),
        (json!("ü".repeat(4_096)), "ü".repeat(4_096)),
        (json!(null), "unknown".to_owned()),
        (json!(""), "unknown".to_owned()),
        (json!({"code": 5}), r#"{"code":5}"#.to_owned()),
        (json!(5), "5".to_owned()),
        (
            json!("nul \u{0} <b>\"quoted\"\\"),
            "nul \u{0} <b>\"quoted\"\\".to_owned(),
        ),
    ];
    let world = World::new();
    let id = world
        .publish(json!({"goal": "g", "payload": 1, "max_attempts": 20, "backoff_base": 1}))
        .await;
    assert_eq!(world.status(&id).await["last_error"], Value::Null);
    for (error, expected) in cases {
        let token = text(&world.claim().await.unwrap()["claim_token"]);
        let body = json!({"claim_token": token, "error": error});
        assert_eq!(
            world.main_post(&format!("/fail/{id}"), &body).await.status,
            200
        );
        assert_eq!(world.status(&id).await["last_error"], expected.as_str());
        assert_eq!(
            world.main_get(&format!("/result/{id}")).await.json()["error"],
            expected.as_str()
        );
        assert_eq!(world.detail(&id).await["last_error"], expected.as_str());
        world.skip_pause(&id).await;
    }
    let token = text(&world.claim().await.unwrap()["claim_token"]);
    assert_eq!(world.act("fulfill", &id, &token).await.status, 200);
    assert_eq!(
        world.status(&id).await["last_error"],
        Value::Null,
        "success clears it"
    );
}
