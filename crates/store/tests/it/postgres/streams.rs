//! Event streams of one node while transactions of others are open.

use std::time::Duration;

use consign_kernel::ids::FactSeq;
use consign_store::conformance::item;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::Cluster;
use super::nodes::read;
use super::trouble::{slow_node, stranger};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_that_wait_for_one_transaction_look_together_and_go_on_together() {
    let cluster = Cluster::new(1).await;
    cluster.world(0).publish(item()).await;
    let first = read(&cluster.world(0), FactSeq(0)).await[0];
    let slow = slow_node(&cluster.url()).await;
    let mut streams = JoinSet::new();
    for _ in 0..40 {
        let world = cluster.world(0);
        streams.spawn(async move {
            loop {
                let seen = read(&world, first).await;
                if !seen.is_empty() {
                    return seen;
                }
            }
        });
    }
    let counting = stranger(&cluster.url()).await;
    let before = statements(&counting).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let asked = statements(&counting).await - before;
    // One query per stream would be eight thousand.
    assert!(asked < 800, "{asked} statements in four seconds");
    slow.batch_execute("COMMIT").await.unwrap();
    let seen = streams.join_all().await;
    assert!(seen.iter().all(|seen| seen.len() == 1), "{seen:?}");
}

/// Of all clients of this database. Each statement is a transaction, and is counted within a second.
async fn statements(client: &Client) -> i64 {
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    client.query_one(sql, &[]).await.unwrap().get(0)
}
