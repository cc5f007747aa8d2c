//! What the database refuses and what a crash interrupts: a message and its id are stored together or not at all.

use consign_mesh::destination::DestinationKind;
use consign_testkit::ledger::Backend;
use serde_json::json;

use crate::client::{body, keyed};
use crate::world::World;

/// Makes the database refuse rows of a profile until the returned statement is executed.
fn refuse_rows_of(profile: u8, world: &World) -> &'static str {
    if crate::backend() == Backend::Postgres {
        world.ledger.edit(&format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE check_violation USING MESSAGE = 'refused'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON intents FOR EACH ROW WHEN (NEW.profile = {profile}) \
             EXECUTE FUNCTION refuse()"
        ));
        "DROP TRIGGER refuse ON intents; DROP FUNCTION refuse()"
    } else {
        world.ledger.edit(&format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON intents WHEN NEW.profile = {profile} \
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ));
        "DROP TRIGGER refuse"
    }
}

fn count(world: &World, table: &str) -> String {
    let schema = if crate::backend() == Backend::Postgres {
        "mesh."
    } else {
        ""
    };
    let mut rows = world
        .ledger
        .sql(&format!("SELECT count(*) FROM {schema}{table}"));
    rows.remove(0)
}

#[tokio::test]
async fn cm_070_cm_073_what_the_database_refuses_leaves_neither_message_nor_id() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let key = bob.pubkey();
    let frame = keyed("c-1", &key, DestinationKind::Dm, &key, "hello");
    // The message itself, and a delivery, whose message and id were written before it.
    for profile in [7, 8] {
        let allow = refuse_rows_of(profile, &world);
        let ack = sender.deliver(&frame).await;
        assert_eq!(ack["code"], 503, "{ack}");
        assert!(ack["error"].as_str().unwrap().starts_with("unavailable"));
        assert_eq!(
            (&ack["queued"], &ack["messageId"]),
            (&json!(false), &json!(""))
        );
        for table in [
            "client_message_dedupe",
            "message_queue",
            "message_history",
            "delivery_queue",
        ] {
            assert_eq!(count(&world, table), "0", "{table}");
        }
        world.ledger.edit(allow);
    }
    assert_eq!(sender.deliver(&frame).await["code"], 201);
    assert_eq!(body(&receiver.take().await), "hello");
    assert_eq!(count(&world, "client_message_dedupe"), "1");
}

#[tokio::test]
async fn cm_071_a_retry_after_a_crash_between_commit_and_answer_is_a_duplicate() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let key = bob.pubkey();
    let frame = keyed("c-1", &key, DestinationKind::Dm, &key, "hello");
    let mut sender = world.daemon(&alice).await;
    sender.send(&frame).await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while count(&world, "client_message_dedupe") == "0" {
        assert!(tokio::time::Instant::now() < deadline, "it is not stored");
        tokio::task::yield_now().await;
    }
    // The server ends at once, and the answer is never read.
    let world = world.restarted().await;
    sender.drop_line();
    let mut sender = world.daemon(&alice).await;
    let ack = sender.deliver(&frame).await;
    assert_eq!(
        (&ack["code"], &ack["duplicate"]),
        (&json!(200), &json!(true))
    );
    assert_eq!(count(&world, "message_queue"), "1");
    let mut receiver = world.daemon(&bob).await;
    let push = receiver.take().await;
    assert_eq!(push["messageId"], ack["messageId"]);
}

#[tokio::test]
async fn a_claimed_message_is_delivered_at_once_after_a_restart() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let key = bob.pubkey();
    let (mut sender, mut receiver) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let frame = keyed("c-1", &key, DestinationKind::Dm, &key, "hello");
    sender.deliver(&frame).await;
    receiver.push().await;
    let world = world.restarted().await;
    // The lease of 30 seconds would outlive the patience of the test.
    let mut receiver = world.daemon(&bob).await;
    assert_eq!(body(&receiver.take().await), "hello");
}
