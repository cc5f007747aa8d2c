//! Nodes: their listing, and the requests that a draining node still serves.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Heartbeat, NodeIdentity};
use serde_json::{Value, json};

use crate::world::{Answer, Call, MAIN, World};

fn heart(world: &World, id: i64, name: &str) -> Heartbeat {
    let identity = NodeIdentity {
        id,
        name: name.to_owned(),
        address: format!("http://10.0.0.{id}:7070"),
        version: "9.8.7".to_owned(),
        alone: false,
    };
    Heartbeat::new(world.engine.clone(), identity)
}

async fn nodes(world: &World) -> Value {
    let answer = world.admin_get("/admin/nodes").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn wish(world: &World, id: &str, what: &str) -> Answer {
    let path = format!("/admin/nodes/{id}/{what}");
    world.send(Call::post(&path).admin()).await
}

/// A world whose only node is drained and leases no intents.
async fn drained_world() -> (World, Heartbeat) {
    let world = World::new();
    let mut heart = heart(&world, 1, "web-1");
    heart.beat().await.unwrap();
    assert_eq!(wish(&world, "1", "drain").await.status, 200);
    heart.beat().await.unwrap();
    (world, heart)
}

fn claim(path: &str) -> Call {
    Call::post(path).key(MAIN)
}

fn assert_elsewhere(answer: &Answer) {
    answer.assert_refused(503, "node_draining");
    assert_eq!(answer.headers["retry-after"], "1");
    assert!(answer.text().contains("claim at another one"));
}

#[tokio::test]
async fn an_operator_sees_every_node_and_nobody_else_does() {
    let world = World::new();
    assert_eq!(nodes(&world).await, json!([]));
    heart(&world, 1, "web-1").beat().await.unwrap();
    world.clock.advance_s(1);
    heart(&world, 8, "web-2").beat().await.unwrap();
    world.leased(json!({"goal": "g", "payload": 1})).await;
    let listed = nodes(&world).await;
    assert_eq!(
        listed[0],
        json!({"id": 1, "name": "web-1", "address": "http://10.0.0.1:7070", "version": "9.8.7",
            "started_at": 1_800_000_000.0, "seen_at": 1_800_000_001.0, "state": "serving", "leases": 1, "here": true})
    );
    assert_eq!(
        (&listed[1]["id"], &listed[1]["here"]),
        (&json!(8), &json!(false))
    );
    for path in ["/admin/nodes/1/drain", "/admin/nodes/1/resume"] {
        let unknown = world.send(Call::post(path).key(MAIN)).await;
        unknown.assert_refused(401, "unauthorized");
    }
    let unknown = world.send(Call::get("/admin/nodes").key(MAIN)).await;
    unknown.assert_refused(401, "unauthorized");
    assert_eq!(nodes(&world).await[0]["state"], "serving");
}

#[tokio::test]
async fn a_wish_for_nobody_is_not_found() {
    let world = World::new();
    heart(&world, 1, "web-1").beat().await.unwrap();
    for id in ["8", "web-1", "-1", "01x", "99999999999999999999", "%FF"] {
        for what in ["drain", "resume"] {
            wish(&world, id, what)
                .await
                .assert_refused(404, "not_found");
        }
    }
}

#[tokio::test]
async fn a_draining_node_refuses_claims_and_does_everything_else() {
    let world = World::new();
    let mut heart = heart(&world, 1, "web-1");
    heart.beat().await.unwrap();
    let (held, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let (more, more_token) = world.leased(json!({"goal": "g", "payload": 2})).await;
    let open = world.publish(json!({"goal": "g", "payload": 3})).await;
    let wished = wish(&world, "1", "drain").await.json();
    assert_eq!(
        (&wished["state"], &wished["leases"]),
        (&json!("draining"), &json!(2))
    );
    heart.beat().await.unwrap();
    for path in [
        "/claim",
        "/claim?max=5",
        "/claim?wait=30",
        "/claim?goal=g&wait=1&max=2",
    ] {
        assert_elsewhere(&world.send(claim(path)).await);
    }
    assert_eq!(world.status(&open).await["status"], "open");

    // Publishing, extending and settling continue. The claim inside a settle request is skipped.
    let late = world.publish(json!({"goal": "g", "payload": 4})).await;
    let extend = Call::post(&format!("/extend_claim/{held}"));
    let extend = extend
        .key(MAIN)
        .json(&json!({"claim_token": token, "seconds": 120}));
    assert_eq!(world.send(extend).await.status, 200);
    let item = json!({"id": held, "claim_token": token, "action": "fulfill"});
    let settle = json!({"items": [item], "claim": {"max": 2}});
    let answer = world
        .send(Call::post("/settle").key(MAIN).json(&settle))
        .await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["intents"]),
        (200, &json!([]))
    );
    assert_eq!(answer.json()["items"][0]["ok"], true);
    heart.beat().await.unwrap();
    assert_eq!(nodes(&world).await[0]["state"], "draining");
    let fulfil = Call::post(&format!("/fulfill/{more}"));
    let fulfil = fulfil.key(MAIN).json(&json!({"claim_token": more_token}));
    assert_eq!(world.send(fulfil).await.status, 200);
    assert_eq!(nodes(&world).await[0]["state"], "drained");

    wish(&world, "1", "resume").await;
    heart.beat().await.unwrap();
    assert_eq!(world.claim().await.unwrap()["id"], open.as_str());
    assert_eq!(world.claim().await.unwrap()["id"], late.as_str());
}

#[tokio::test]
async fn a_refused_claim_counts_and_burns_no_more_than_any_other() {
    let (world, _heart) = drained_world().await;
    let anna = world.tester("anna").await;
    for _ in 0..60 {
        assert_elsewhere(&world.send(Call::post("/claim?max=60").key(&anna)).await);
    }
    let spent = world.send(Call::post("/claim").key(&anna)).await;
    spent.assert_refused(429, "rate_limited");
    let bad = world.send(claim("/claim?max=0")).await;
    bad.assert_refused(400, "invalid_max");
}

#[tokio::test]
async fn a_claim_that_waits_is_sent_elsewhere_when_its_node_drains() {
    let world = Arc::new(World::new());
    let mut heart = heart(&world, 1, "web-1");
    heart.beat().await.unwrap();
    let waiter = Arc::clone(&world);
    let waiting = tokio::spawn(async move { waiter.send(claim("/claim?wait=30")).await });
    while world.engine.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    wish(&world, "1", "drain").await;
    assert!(!waiting.is_finished());
    heart.beat().await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(5), waiting).await;
    assert_elsewhere(&answer.expect("the wait ends").unwrap());
}

#[tokio::test]
async fn health_tells_a_balancer_whether_workers_should_go_elsewhere() {
    let (world, mut heart) = drained_world().await;
    let health = async || {
        let answer = world.send(Call::get("/health")).await;
        assert_eq!(answer.status, 200);
        answer.json()["draining"].clone()
    };
    assert_eq!(health().await, true);
    wish(&world, "1", "resume").await;
    heart.beat().await.unwrap();
    assert_eq!(health().await, false);
    world.drain.send(true).unwrap();
    assert_eq!(health().await, true, "a process that ends drains too");
}

#[tokio::test]
async fn the_metrics_tell_of_this_node_and_of_all() {
    let world = World::new();
    heart(&world, 1, "web \"1\"").beat().await.unwrap();
    let mut second = heart(&world, 8, "web-2");
    second.beat().await.unwrap();
    wish(&world, "8", "drain").await;
    world.leased(json!({"goal": "g", "payload": 1})).await;
    let text = world.admin_get("/metrics").await.text();
    for line in [
        r#"consign_node_info{node="1",name="web \"1\"",version="9.8.7"} 1"#,
        r#"consign_node_leases{node="1"} 1"#,
        r#"consign_node_leases{node="8"} 0"#,
        r#"consign_nodes{state="serving"} 1"#,
        r#"consign_nodes{state="draining"} 1"#,
        r#"consign_nodes{state="drained"} 0"#,
        r#"consign_nodes{state="wrong-clock"} 0"#,
        r#"consign_nodes{state="silent"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains(r#"consign_node_info{node="8""#));
}

#[tokio::test]
async fn the_dashboard_shows_nodes_when_there_is_something_to_tell() {
    let world = World::new();
    let page = async || world.admin_get("/admin/dashboard").await.text();
    let mut first = heart(&world, 1, "<b>one");
    first.beat().await.unwrap();
    assert!(!page().await.contains("<h2>Nodes</h2>"), "one that serves");
    wish(&world, "1", "drain").await;
    let html = page().await;
    assert!(html.contains("<h2>Nodes</h2>"), "one that drains");
    assert!(html.contains("&lt;b&gt;one") && !html.contains("<b>one"));
    assert!(html.contains("<span class=\"status draining\">draining</span>"));
    wish(&world, "1", "resume").await;
    heart(&world, 8, "two").beat().await.unwrap();
    let html = page().await;
    assert!(html.contains("<h2>Nodes</h2>") && html.contains("<td>two</td>"));
    assert!(html.contains("http://10.0.0.8:7070") && html.contains("0 s ago"));
}
