//! Notices that the server sends with its answers: one warning makes a commit uncertain, others do not.

use std::sync::Arc;

use consign_kernel::command::{Admit, Command, OnRefusal, Request};
use consign_store::Error;
use consign_store::conformance::item;

use super::Cluster;
use super::entry::{Server, open, works};
use super::nodes::until;
use super::trouble::stranger;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warning_of_a_trigger_leaves_no_commit_in_doubt() {
    let cluster = Cluster::new(1).await;
    let client = stranger(&cluster.url()).await;
    let chatty = "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS \
                  $$ BEGIN RAISE WARNING 'somebody writes'; RETURN NULL; END $$; \
                  CREATE TRIGGER warn AFTER INSERT ON facts FOR EACH STATEMENT EXECUTE FUNCTION warn()";
    client.batch_execute(chatty).await.unwrap();
    let world = cluster.world(0);
    let id = world.publish(item()).await;
    assert!(world.get(id).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_lost_its_standby_while_it_waited_is_in_doubt() {
    let server = Server::start("host ledger app 127.0.0.1/32 trust");
    let world = open(&server.url(), None).await.unwrap();
    works(&world).await;
    server.configure("synchronous_standby_names = 'nobody'");
    server.reload();
    let store = Arc::clone(&world.store);
    let publishing = tokio::spawn(async move {
        let admit = Admit {
            items: vec![item()],
            cap: None,
        };
        let request = Request {
            gate: None,
            steps: vec![Command::Admit(admit)],
            on_refusal: OnRefusal::Continue,
            seed: [1; 32],
        };
        store.execute(request).await
    });
    // The waiting commit is cancelled, and reports success with a warning.
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until(async || server.sql(cancel) == "t").await;
    let unsure = publishing.await.unwrap();
    assert!(matches!(unsure, Err(Error::Unsure(_))), "{unsure:?}");
    server.configure("");
    server.reload();
    works(&world).await;
    assert_eq!(server.intents(), "3", "it was there all the same");
}
