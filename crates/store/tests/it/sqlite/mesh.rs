//! The tables of the mesh protocol in the file, as other programs read and edit them.

use consign_kernel::command::{Advance, Answer, Command, Forget};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::Face;
use consign_kernel::state::Verb;
use consign_store::TypedReads as _;
use consign_store::conformance::{self, mesh_message};

use super::World;

const MESH: &str = "mesh-1";

fn key(id: &str) -> OnceKey {
    OnceKey {
        scope: Scope::MeshMessage,
        owner: MESH.to_owned(),
        key: id.to_owned(),
    }
}

async fn accept(world: &conformance::World, number: u64, id: &str) -> IntentId {
    let begin = mesh_message(world, number, Some(id));
    match world.step(Command::Begin(Box::new(begin))).await {
        Ok(Answer::Begun(row)) => row.id,
        other => panic!("{other:?}"),
    }
}

fn hyphenated(id: IntentId) -> String {
    let hex = id.to_string();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

#[tokio::test]
async fn cm_042_cm_043_another_program_reads_the_printed_tables_while_the_store_is_open() {
    let world = World::new();
    let id = accept(&world.shared(), 1, "c-1").await;
    let mut forever = mesh_message(&world.shared(), 2, Some("forever"));
    forever.item.goal = "topic".to_owned();
    forever.item.payload =
        r#"{"topic_id":"t-1","nonce":"n","ciphertext":"c","mentions":["bob","carol"]}"#.to_owned();
    forever.item.once.as_mut().unwrap().lifetime_us = i64::MAX;
    let step = Command::Begin(Box::new(forever));
    world.shared().step(step).await.unwrap();

    let reader = world.meddler();
    let text = |sql: &str| {
        let found = reader.query_row(sql, [], |row| row.get::<_, Option<String>>(0));
        found.unwrap().unwrap_or_else(|| "NULL".to_owned())
    };
    let of = |column: &str, id: &str| {
        text(&format!(
            "SELECT {column} FROM client_message_dedupe WHERE client_message_id = '{id}'"
        ))
    };
    assert_eq!(of("broker_message_id", "c-1"), hyphenated(id));
    assert_eq!(of("first_seen_at", "c-1"), "2023-11-14T22:13:20.000000Z");
    assert_eq!(of("expires_at", "c-1"), "2024-11-13T22:13:20.000000Z");
    assert_eq!(of("expires_at", "forever"), "NULL");
    assert_eq!(of("hex(request_fingerprint)", "c-1"), "07".repeat(32));
    assert_eq!(of("history_available || destination_kind", "c-1"), "1dm");
    let queued = "SELECT id || client_message_id || sender_member_id FROM message_queue";
    assert_eq!(text(queued), format!("{}c-1alice", hyphenated(id)));
    let posted = "SELECT client_message_id || topic_id || ciphertext FROM topic_message";
    assert_eq!(text(posted), "forevert-1c");
    let mentioned = "SELECT group_concat(mentioned_member, ' ') FROM mention_index";
    assert_eq!(text(mentioned), "bob carol");
    let history = "SELECT group_concat(sender_member_id || mesh_id, ' ') FROM message_history";
    assert_eq!(text(history), "alicemesh-1 alicemesh-1");
}

#[tokio::test]
async fn cm_075_a_planted_orphan_is_found_and_the_repair_notes_that_its_message_is_gone() {
    let world = World::new();
    accept(&world.shared(), 1, "c-1").await;
    world.store.close();
    let planted = "INSERT INTO client_message_dedupe (mesh_id, client_message_id, broker_message_id, request_fingerprint, \
        destination_kind, destination_ref) VALUES ('mesh-1', 'orphan', 'no uuid', x'00', 'queue', 'q'), \
        ('mesh-1', 'other', '00000000-0000-4000-8000-000000000000', zeroblob(32), 'dm', 'k')";
    world.meddler().execute_batch(planted).unwrap();
    let world = world.reopened();
    let look = async || {
        let first = (String::new(), String::new());
        world.store.lost_messages(first, 100).await.unwrap()
    };
    let page = look().await;
    assert_eq!(page.checked, 3);
    assert_eq!(page.lost, [key("orphan"), key("other")]);
    let correct = Command::Forget(Forget::LostMessages {
        keys: vec![key("c-1"), key("orphan"), key("other")],
    });
    let corrected = world.shared().step(correct).await;
    assert_eq!(corrected, Ok(Answer::Forgotten { rows: 2 }));
    assert!(look().await.lost.is_empty());
    let begin = mesh_message(&world.shared(), 2, Some("orphan"));
    let used = world.shared().step(Command::Begin(Box::new(begin))).await;
    assert_eq!(used, Err(Refusal::OnceConflict { index: 0 }));
}

#[tokio::test]
async fn times_that_an_operator_wrote_count_as_they_are_meant() {
    let world = World::new();
    for (number, id) in (1..).zip(["space", "seconds", "offset", "far"]) {
        accept(&world.shared(), number, id).await;
    }
    world.store.close();
    let edits = "UPDATE client_message_dedupe SET expires_at = '2023-11-14 23:00:00' WHERE client_message_id = 'space'; \
        UPDATE client_message_dedupe SET expires_at = '1700003600' WHERE client_message_id = 'seconds'; \
        UPDATE client_message_dedupe SET expires_at = '2023-11-15T00:13:20+01:00' WHERE client_message_id = 'offset'";
    world.meddler().execute_batch(edits).unwrap();
    let world = world.reopened();
    let until = async |id: &str| world.store.first_use(key(id)).await.unwrap().unwrap().until;
    assert_eq!(until("space").await, Micros(1_700_002_800_000_000));
    assert_eq!(until("seconds").await, Micros(1_700_003_600_000_000));
    assert_eq!(until("offset").await, Micros(1_700_003_600_000_000));
    let forget = async |seconds: i64| {
        let step = Command::Forget(Forget::OnceEnding {
            scope: Scope::MeshMessage,
            ahead_us: seconds * 1_000_000,
            limit: 9,
        });
        match world.shared().step(step).await {
            Ok(Answer::Forgotten { rows }) => rows,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(forget(2_799).await, 0);
    assert_eq!(forget(2_800).await, 1);
    assert_eq!(forget(3_600).await, 1);
    // A text with an offset sorts by its local time, so it may be removed some hours late.
    assert_eq!(forget(2 * 3_600).await, 1);
}

#[tokio::test]
async fn the_delivery_of_a_message_shows_in_its_queue() {
    let world = World::new();
    let id = accept(&world.shared(), 1, "c-1").await;
    let deliver = Advance::by_system(id, Face::Mesh, Verb::Deliver);
    let step = Command::Advance(Box::new(deliver));
    world.shared().step(step).await.unwrap();
    let ends: String = world
        .meddler()
        .query_row("SELECT expires_at FROM message_queue", [], |row| row.get(0))
        .unwrap();
    assert_eq!(ends, "2023-12-14T22:13:20.000000Z");
}
