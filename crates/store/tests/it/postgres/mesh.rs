//! The tables of the mesh protocol in the database, as other programs read and edit them.

use consign_kernel::command::{Answer, Command, Forget};
use consign_kernel::once::{OnceKey, Scope};
use consign_store::TypedReads as _;
use consign_store::conformance::mesh_message;

use super::{Cluster, stranger};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cm_041_cm_075_an_accepted_message_is_in_the_printed_tables_and_a_planted_orphan_is_found()
{
    let cluster = Cluster::new(1).await;
    let world = cluster.world(0);
    let mut message = mesh_message(&world, 1, Some("c-1"));
    message.item.payload = r#"{"nonce":"n","mentions":["bob"]}"#.to_owned();
    let id = message.id;
    let step = Command::Begin(Box::new(message));
    world.step(step).await.unwrap();
    let client = stranger(&cluster.url()).await;
    let text = async |sql: &str| {
        let row = client.query_one(sql, &[]).await.unwrap();
        row.get::<_, String>(0)
    };
    let accepted = "SELECT replace(broker_message_id::text, '-', '') || ' ' || (expires_at - first_seen_at)::text \
        FROM mesh.client_message_dedupe";
    assert_eq!(text(accepted).await, format!("{id} 365 days"));
    let queued = "SELECT id::text || client_message_id || nonce || encode(request_fingerprint, 'hex') FROM mesh.message_queue";
    let queued = text(queued).await;
    assert!(
        queued.ends_with(&format!("c-1n{}", "07".repeat(32))),
        "{queued}"
    );
    let mentioned = "SELECT mentioned_member FROM mesh.mention_index";
    assert_eq!(text(mentioned).await, "bob");

    let planted = "INSERT INTO mesh.client_message_dedupe (mesh_id, client_message_id, broker_message_id, \
        request_fingerprint, destination_kind, destination_ref) \
        VALUES ('mesh-1', 'orphan', '00000000-0000-4000-8000-000000000000', '', 'queue', 'q')";
    client.batch_execute(planted).await.unwrap();
    let orphan = OnceKey {
        scope: Scope::MeshMessage,
        owner: "mesh-1".to_owned(),
        key: "orphan".to_owned(),
    };
    let look = async || {
        let first = (String::new(), String::new());
        world.store.lost_messages(first, 100).await.unwrap()
    };
    assert_eq!(look().await.lost, std::slice::from_ref(&orphan));
    let correct = Command::Forget(Forget::LostMessages { keys: vec![orphan] });
    let corrected = world.step(correct).await;
    assert_eq!(corrected, Ok(Answer::Forgotten { rows: 1 }));
    assert!(look().await.lost.is_empty());
}
