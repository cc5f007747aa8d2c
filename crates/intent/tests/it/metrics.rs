//! `GET /metrics`.

use base64::Engine as _;
use serde_json::json;

use crate::world::{ADMIN, Call, MAIN, METRICS, PASSWORD, World};

fn basic(user: &str, password: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {encoded}")
}

fn scrape() -> Call {
    Call::get("/metrics")
}

#[tokio::test]
async fn ip_148_ip_149_the_bearer_token_and_admin_credentials_open_the_metrics() {
    let world = World::new();
    for call in [
        scrape().header("authorization", &format!("Bearer {METRICS}")),
        scrape().header("x-admin-token", ADMIN),
        scrape().header("authorization", &basic("admin", PASSWORD)),
    ] {
        assert_eq!(world.send(call).await.status, 200);
    }
}

#[tokio::test]
async fn ip_150_nothing_else_opens_the_metrics() {
    let world = World::new();
    let tester = world.tester("anna").await;
    for call in [
        scrape(),
        scrape().key(MAIN),
        scrape().key(&tester),
        scrape().header("authorization", "Bearer"),
        scrape().header("authorization", "Bearer wrong"),
        scrape().header("authorization", &format!("Bearer {ADMIN}")),
        scrape().header("authorization", METRICS),
        scrape().header("authorization", &basic("root", PASSWORD)),
        scrape().header("authorization", &basic("admin", METRICS)),
        scrape().header("x-admin-token", METRICS),
    ] {
        world.send(call).await.assert_refused(401, "unauthorized");
    }
}

#[tokio::test]
async fn ip_150_a_token_that_is_not_configured_never_matches() {
    for token in [None, Some(String::new())] {
        let world = World::with(|options| {
            options.operators.metrics_token =
                token.map(consign_web::credentials::SecretDigest::new);
        });
        for bearer in ["Bearer ", "Bearer", "Bearer null"] {
            let call = scrape().header("authorization", bearer);
            world.send(call).await.assert_refused(401, "unauthorized");
        }
        assert_eq!(world.admin_get("/metrics").await.status, 200);
    }
}

#[tokio::test]
async fn ip_151_the_three_gauges_count_by_status_and_namespace() {
    let world = World::new();
    world.tester("anna").await;
    world.dead_letter("g", "x").await;
    world.fulfilled("g", json!(1)).await;
    world.leased(json!({"goal": "g", "payload": 1})).await;
    for namespace in ["default", "a.b-c_1", "a.b-c_1"] {
        world
            .publish(json!({"goal": "g", "payload": 1, "namespace": namespace}))
            .await;
    }
    let answer = world.admin_get("/metrics").await;
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    let text = answer.text();
    let lines: Vec<_> = text.lines().collect();
    for line in [
        "# TYPE intent_bus_intents_total gauge",
        "# TYPE intent_bus_dead_letters_total gauge",
        "# TYPE intent_bus_tester_keys_total gauge",
        r#"intent_bus_intents_total{status="open",namespace="default"} 1"#,
        r#"intent_bus_intents_total{status="claimed",namespace="default"} 1"#,
        r#"intent_bus_intents_total{status="fulfilled",namespace="default"} 1"#,
        r#"intent_bus_intents_total{status="dead",namespace="default"} 1"#,
        r#"intent_bus_intents_total{status="open",namespace="a.b-c_1"} 2"#,
        "intent_bus_dead_letters_total 1",
        "intent_bus_tester_keys_total 1",
    ] {
        assert!(lines.contains(&line), "{line} is not in\n{text}");
    }
    assert!(
        !text.contains(r#"status="claimed",namespace="a.b-c_1""#),
        "only pairs that exist"
    );
}

#[tokio::test]
async fn ip_151_the_text_is_well_formed_with_and_without_intents() {
    let world = World::new();
    for _ in 0..2 {
        let text = world.admin_get("/metrics").await.text();
        assert!(text.ends_with('\n'));
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest
                    .split_once(' ')
                    .expect("a family has its help")
                    .0
                    .to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, family, "HELP and TYPE belong together");
                assert!(["gauge", "counter", "histogram"].contains(&kind));
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                let suffix = name.strip_prefix(family.as_str());
                assert!(
                    suffix.is_some_and(|it| ["", "_bucket", "_sum", "_count"].contains(&it)),
                    "samples follow their family: {line}"
                );
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        for name in [
            "intent_bus_intents_total",
            "intent_bus_dead_letters_total",
            "intent_bus_tester_keys_total",
        ] {
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
        }
        world.publish(json!({"goal": "g", "payload": 1})).await;
    }
}

#[tokio::test]
async fn ip_151_a_lease_that_ran_out_on_its_last_attempt_counts_as_dead_without_a_cleanup() {
    let world = World::new();
    world
        .leased(json!({"goal": "g", "payload": 1, "max_attempts": 1}))
        .await;
    world.clock.advance_s(61);
    let text = world.admin_get("/metrics").await.text();
    assert!(text.contains("intent_bus_dead_letters_total 1\n"), "{text}");
    assert!(!text.contains(r#"status="claimed""#), "{text}");
}

#[tokio::test]
async fn steps_are_counted_by_namespace_and_goal_and_waits_in_histograms() {
    let world = World::new();
    world.dead_letter("doomed", "x").await;
    world.fulfilled("done", json!(1)).await;
    world
        .publish(json!({"goal": "wait", "payload": 1, "namespace": "n1"}))
        .await;
    world.clock.advance_s(90);
    let text = world.admin_get("/metrics").await.text();
    for line in [
        r#"consign_published_total{face="intent",namespace="n1",goal="wait"} 1"#,
        r#"consign_claimed_total{face="intent",namespace="n1",goal="wait"} 0"#,
        r#"consign_fulfilled_total{face="intent",namespace="default",goal="done"} 1"#,
        r#"consign_dead_total{face="intent",namespace="default",goal="doomed"} 1"#,
        r#"consign_rows{face="intent",state="dead_letter"} 1"#,
        r#"consign_settle_wait_seconds_bucket{face="intent",le="+Inf"} 2"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let oldest = r#"consign_oldest_waiting_seconds{face="intent"} "#;
    let age = text.lines().find_map(|line| line.strip_prefix(oldest));
    let age: f64 = age.unwrap().parse().unwrap();
    assert!((90.0..100.0).contains(&age), "{age}");
}
