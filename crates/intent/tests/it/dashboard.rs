//! `GET /admin/dashboard`: one page without scripts, with all untrusted text escaped.

use serde_json::json;

use crate::world::{Answer, Call, MAIN, World};

const EVIL: &str = "<script>alert('x')</script>\"&";
const TAMED: &str = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;";

async fn page(world: &World) -> Answer {
    let answer = world.admin_get("/admin/dashboard").await;
    assert_eq!(answer.status, 200);
    answer
}

#[tokio::test]
async fn ip_135_the_page_has_queue_stats_recent_intents_tester_keys_and_dead_letters() {
    let world = World::new();
    world.tester("anna-the-tester").await;
    let dead = world.dead_letter("failed-goal", "the-reason").await;
    world.fulfilled("done-goal", json!(1)).await;
    world
        .leased(json!({"goal": "running-goal", "payload": 1}))
        .await;
    let body = json!({"goal": "waiting-goal", "payload": 1, "priority": 77, "namespace": "ns-1", "target_worker": "w-1",
        "required_capability": "cap-1"});
    let open = world.publish(body).await;
    world.publish(json!({"goal": "g", "payload": 1})).await;

    let answer = page(&world).await;
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    let html = answer.text();
    assert!(html.contains("<title>Intent Bus Dashboard</title>"));
    for (name, count) in [("Open", 2), ("Claimed", 1), ("Fulfilled", 1), ("Dead", 1)] {
        assert!(
            html.contains(&format!("<b>{count}</b><span>{name}</span>")),
            "{name}"
        );
    }
    for heading in ["Recent Intents", "Tester Keys", "Dead Letters"] {
        assert!(html.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    for word in [
        &dead,
        &open,
        "failed-goal",
        "the-reason",
        "waiting-goal",
        "running-goal",
        "done-goal",
        "ns-1",
        "w-1",
        "cap-1",
        "77",
        "anna-the-tester",
        "dead letters: 1",
    ] {
        assert!(html.contains(word), "{word}");
    }
}

#[tokio::test]
async fn ip_135_each_table_shows_the_twelve_that_matter() {
    let world = World::new();
    for number in 0..14 {
        world
            .dead_letter(
                &format!("goal-{number:02}-end"),
                &format!("reason-{number:02}-end"),
            )
            .await;
        world.tester(&format!("owner-{number:02}-end")).await;
        world.clock.advance_us(1_000);
    }
    let html = page(&world).await.text();
    for kind in ["reason", "owner"] {
        let shown = (0..14)
            .filter(|number| html.contains(&format!("{kind}-{number:02}-end")))
            .count();
        assert_eq!(shown, 12, "{kind}");
    }
    assert!(
        !html.contains("goal-00-end")
            && !html.contains("goal-01-end")
            && html.contains("goal-13-end")
    );
}

#[tokio::test]
async fn ip_136_a_visitor_without_credentials_is_challenged() {
    let world = World::new();
    for call in [
        Call::get("/admin/dashboard"),
        Call::get("/admin/dashboard").key(MAIN),
        Call::get("/admin/dashboard").header("authorization", "Basic YWRtaW46d3Jvbmc="),
    ] {
        let answer = world.send(call).await;
        answer.assert_refused(401, "unauthorized");
        assert_eq!(
            answer.headers["www-authenticate"],
            "Basic realm=\"Consign\""
        );
        let message = answer.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains("Authentication required"), "{message}");
    }
}

#[tokio::test]
async fn ip_135_goal_owner_and_reason_are_escaped() {
    let world = World::new();
    world.dead_letter(EVIL, EVIL).await;
    world.tester(EVIL).await;
    let html = page(&world).await.text();
    assert!(!html.contains("<script"));
    // The goal in two tables, the owner, the reason.
    assert_eq!(html.matches(TAMED).count(), 4, "{html}");
}

#[tokio::test]
async fn ip_135_no_key_no_token_and_no_payload_is_shown() {
    let world = World::new();
    let key = world.tester("anna").await;
    let (_, token) = world
        .leased(json!({"goal": "g", "payload": "the-payload"}))
        .await;
    let body = json!({"goal": "g", "payload": 1});
    world
        .send(Call::post("/intent").key(&key).json(&body))
        .await;
    let html = page(&world).await.text();
    for secret in [
        key.as_str(),
        &token,
        MAIN,
        crate::world::ADMIN,
        "the-payload",
    ] {
        assert!(!html.contains(secret));
    }
}

#[tokio::test]
async fn the_page_may_load_and_run_nothing() {
    let world = World::new();
    let answer = page(&world).await;
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("script-src"), "{policy}");
    let html = answer.text();
    assert!(!html.contains("http-equiv") && !html.contains("src=") && !html.contains("href="));
}
