//! Retention and the check for orphans.

use consign_kernel::ids::{DAY_US, FactSeq, Micros};
use consign_testkit::ledger::Backend;
use serde_json::{Value, json};

use crate::world::World;

async fn world(settings: Value) -> (World, String, String) {
    let world = World::new();
    let mesh = world.mesh(&settings).await;
    world.member(1, "alice").await;
    world.member(2, "bob").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    (world, api_key, mesh)
}

fn post(id: Option<&str>) -> Value {
    json!({"topic": "general", "body": "hello", "client_message_id": id})
}

fn in_days(world: &World, days: i64) -> Value {
    let at = Micros(world.engine.wall().0 + days * DAY_US);
    let at = jiff::Timestamp::from_microsecond(at.0).unwrap();
    json!({"as_of": at.to_string()})
}

/// The name of the table of ids.
fn table() -> &'static str {
    match crate::backend() {
        Backend::Postgres => "mesh.client_message_dedupe",
        Backend::Sqlite | Backend::Memory => "client_message_dedupe",
    }
}

#[tokio::test]
async fn cm_141_the_end_of_a_message_is_noted_with_its_id() {
    let (world, api_key, _) = world(json!({"message_days": 30})).await;
    world.send(&api_key, &post(Some("m-1"))).await.of(201);
    // Without an id there is nothing to note.
    world.send(&api_key, &post(None)).await.of(201);
    let mut dry = in_days(&world, 31);
    dry["dry_run"] = json!(true);
    let counted = world.post("/v1/mesh/sweep", &dry).await.of(200);
    assert_eq!(counted["messages_pruned"], json!(2));
    assert_eq!(counted["dedupe_expired"], json!(0));
    let kept = world.send(&api_key, &post(Some("m-1"))).await.of(200);
    assert_eq!(kept["history_available"], json!(true));

    let early = in_days(&world, 1);
    let swept = world.post("/v1/mesh/sweep", &early).await.of(200);
    assert_eq!(swept["messages_pruned"], json!(0));
    let late = in_days(&world, 31);
    let swept = world.post("/v1/mesh/sweep", &late).await.of(200);
    assert_eq!(swept["messages_pruned"], json!(2));
    let pruned = world.send(&api_key, &post(Some("m-1"))).await.of(200);
    assert_eq!(pruned["history_available"], json!(false));
    assert_eq!(pruned["broker_message_id"], kept["broker_message_id"]);
    let messages = world.get("/v1/meshes/acme/messages").await.of(200);
    assert_eq!(messages["messages"], json!([]));
    let again = world.post("/v1/mesh/sweep", &late).await.of(200);
    assert_eq!(again["messages_pruned"], json!(0));
}

#[tokio::test]
async fn cm_142_cm_043_ids_end_after_their_retention_and_never_in_permanent_mode() {
    let (scoped, api_key, _) = world(json!({"dedupe_days": 3, "message_days": 30})).await;
    scoped.send(&api_key, &post(Some("m-1"))).await.of(201);
    let count = format!("SELECT CAST(COUNT(*) AS TEXT) FROM {}", table());
    let early = in_days(&scoped, 2);
    let swept = scoped.post("/v1/mesh/sweep", &early).await.of(200);
    assert_eq!(swept["dedupe_expired"], json!(0));
    let late = in_days(&scoped, 4);
    let swept = scoped.post("/v1/mesh/sweep", &late).await.of(200);
    assert_eq!(swept["dedupe_expired"], json!(1));
    assert_eq!(scoped.ledger.sql(&count), ["0"]);
    // A retry after that is a new message.
    scoped.send(&api_key, &post(Some("m-1"))).await.of(201);

    let (permanent, api_key, _) = world(json!({"dedupe_mode": "permanent"})).await;
    permanent.send(&api_key, &post(Some("m-1"))).await.of(201);
    let without_end = format!(
        "SELECT CAST(COUNT(*) AS TEXT) FROM {} WHERE expires_at IS NULL",
        table()
    );
    assert_eq!(permanent.ledger.sql(&without_end), ["1"]);
    let late = in_days(&permanent, 30_000);
    let swept = permanent.post("/v1/mesh/sweep", &late).await.of(200);
    assert_eq!(swept["dedupe_expired"], json!(0));
    assert_eq!(permanent.ledger.sql(&count), ["1"]);
    let known = permanent.send(&api_key, &post(Some("m-1"))).await.of(200);
    assert_eq!(known["history_available"], json!(false));
}

#[tokio::test]
async fn a_sweep_for_a_later_time_leaves_invites_and_members() {
    let (world, ..) = world(json!({})).await;
    let token = world.invite(&json!({"valid_for_s": 60})).await;
    let late = in_days(&world, 3_000);
    world.post("/v1/mesh/sweep", &late).await.of(200);
    world.join(&token, 3, "carol").await.of(200);
    let members = world.get("/v1/meshes/acme/members").await.of(200);
    assert_eq!(members["members"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn cm_142_the_daily_run_happens_once_a_day_on_any_node() {
    let (world, api_key, _) = world(json!({"dedupe_days": 3, "message_days": 30})).await;
    world.send(&api_key, &post(Some("m-1"))).await.of(201);
    let mut seen = FactSeq(0);
    let none = world.get("/v1/mesh/upkeep").await.of(200);
    assert_eq!(none["last_run"], json!(null));
    let first = world.broker.run_if_due(&mut seen).await.unwrap();
    assert_eq!(first.unwrap().dedupe_expired, 0);
    let second = world.broker.run_if_due(&mut seen).await.unwrap();
    assert_eq!(second, None, "it ran today");
    for _ in 0..4 {
        world.clock.advance_s(86_400);
    }
    let due = world.broker.run_if_due(&mut seen).await.unwrap();
    assert_eq!(due.unwrap().dedupe_expired, 1);
    let last = world.get("/v1/mesh/upkeep").await.of(200);
    assert_eq!(last["last_run"]["dedupe_expired"], json!(1));
    assert!(last["last_run"]["finished_at"].is_string(), "{last}");
}

#[tokio::test]
async fn cm_075_a_planted_orphan_is_found_and_marked() {
    let (world, api_key, mesh) = world(json!({"message_days": 30})).await;
    world.send(&api_key, &post(Some("kept"))).await.of(201);
    world.send(&api_key, &post(Some("pruned"))).await.of(201);
    let check = async |body: Value| {
        let answer = world.post("/v1/mesh/orphan-check", &body).await;
        answer.of(200)
    };
    let sound = check(json!({})).await;
    assert_eq!((&sound["checked"], &sound["found"]), (&json!(2), &json!(0)));
    let as_of = in_days(&world, 31);
    world.post("/v1/mesh/sweep", &as_of).await.of(200);
    let pruned = check(json!({})).await;
    assert_eq!(pruned["found"], json!(0), "a pruned message is no orphan");

    // An edit by hand says that the message exists.
    let set = format!(
        "UPDATE {} SET history_available = TRUE WHERE client_message_id = 'pruned'",
        table()
    );
    world.ledger.edit(&set);
    let orphan = json!([{"mesh_id": mesh, "client_message_id": "pruned"}]);
    for body in [json!({}), json!({"repair": true, "dry_run": true})] {
        let found = check(body).await;
        assert_eq!(found["orphans"], orphan);
        assert_eq!(found["repaired"], json!(0));
    }
    let repaired = check(json!({"repair": true})).await;
    assert_eq!(
        (&repaired["orphans"], &repaired["repaired"]),
        (&orphan, &json!(1))
    );
    assert_eq!(check(json!({})).await["found"], json!(0));
    let known = world.send(&api_key, &post(Some("pruned"))).await.of(200);
    assert_eq!(known["history_available"], json!(false));
    let metrics = crate::metrics::read(&world).await;
    assert_eq!(metrics["cm_broker_dedupe_orphan_check_total"], 6);
    let found = format!("cm_broker_dedupe_orphan_found{{mesh_id=\"{mesh}\"}}");
    assert_eq!(metrics[&found], 3);
}

#[tokio::test]
async fn cm_075_a_message_that_was_deleted_by_hand_leaves_its_id_and_its_deliveries() {
    let (world, api_key, _) = world(json!({})).await;
    world.send(&api_key, &post(Some("m-1"))).await.of(201);
    let check = async || {
        let answer = world.post("/v1/mesh/orphan-check", &json!({})).await;
        answer.of(200)
    };
    let sound = check().await;
    assert_eq!(sound["deliveries_without_message"], json!(0));
    // Deliveries have a priority as their goal.
    world
        .ledger
        .edit("DELETE FROM intents WHERE goal = 'topic'");
    let broken = check().await;
    assert_eq!(broken["found"], json!(1));
    assert_eq!(broken["deliveries_without_message"], json!(1));
    let metrics = crate::metrics::read(&world).await;
    assert_eq!(metrics["cm_broker_atomicity_violation_found"], 1);
}

#[tokio::test]
async fn a_time_that_is_none_is_refused() {
    let (world, ..) = world(json!({})).await;
    for as_of in ["yesterday", "", "2027-13-01T00:00:00Z"] {
        let answer = world.post("/v1/mesh/sweep", &json!({"as_of": as_of})).await;
        assert_eq!(
            answer.error(),
            (400, "invalid_request".to_owned()),
            "{as_of}"
        );
    }
}
