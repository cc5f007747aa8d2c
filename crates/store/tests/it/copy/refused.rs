//! What a copy refuses, and what its verification finds.

use std::sync::Arc;

use consign_store::conformance::item;
use consign_store::copy::{End, Stage};

use super::{content, copied, database, file, filled, fresh_database, open, options, run, world};

async fn refusal(from: &End, to: &End) -> String {
    let refused = run(options(from, to), |_| {}).await;
    refused.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_the_source_or_has_content_is_refused() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let kept = fresh_database().await;
    let second = database(&kept);
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(folder.path().join("first.db"), &link).unwrap();
    let said = refusal(&first, &End::File(link)).await;
    assert!(said.contains("the same database"), "{said}");

    copied(&first, &second).await;
    let said = refusal(&second, &second).await;
    assert!(said.contains("the same database"), "{said}");
    let before = content(&second, &clock).await;
    let said = refusal(&first, &second).await;
    assert!(said.contains("never overwritten"), "{said}");
    assert!(content(&second, &clock).await == before, "it was touched");
    let said = refusal(&file(&folder, "none.db"), &second).await;
    assert!(said.contains("no such file"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_refused_keeps_its_schema() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let kept = fresh_database().await;
    let second = database(&kept);
    let node = world(&second, &clock).await;
    node.publish(item()).await;
    drop(node);
    let last = || {
        let last = kept.sql("SELECT max(version) FROM consign.migrations");
        last.unwrap().trim().to_owned()
    };
    // As if the last migration had not been there yet.
    let newest = last();
    kept.sql(&format!(
        "DELETE FROM consign.migrations WHERE version = {newest}"
    ))
    .unwrap();
    let before = last();
    let said = refusal(&first, &second).await;
    assert!(said.contains("consign store migrate"), "{said}");
    assert_eq!(last(), before);
    assert_ne!(before, newest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_servers_on_it_is_neither_copied_nor_written_to() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let (kept, third) = (fresh_database().await, file(&folder, "third.db"));
    let second = database(&kept);
    let node = open(&second, &clock).await.unwrap();
    for (from, to) in [(&first, &second), (&second, &third)] {
        let said = refusal(from, to).await;
        assert!(said.contains("is in use"), "{said}");
    }
    drop(node);
    copied(&first, &second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_written_to_during_the_copy_is_noticed() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let (kept, third) = (fresh_database().await, file(&folder, "third.db"));
    let second = database(&kept);
    copied(&first, &second).await;
    let handle = tokio::runtime::Handle::current();
    let (busy, used) = (second.clone(), Arc::clone(&clock));
    let mut begun = false;
    let refused = run(options(&second, &third), move |progress| {
        if progress.stage == Stage::Verifying && !std::mem::replace(&mut begun, true) {
            handle.block_on(async {
                let node = world(&busy, &used).await;
                node.publish(item()).await;
            });
        }
    });
    let said = refused.await.unwrap_err().to_string();
    assert!(said.contains("was used during the copy"), "{said}");
    assert!(open(&third, &clock).await.is_err(), "it has its mark");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_came_out_different_is_found_and_nothing_starts_on_it() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let kept = fresh_database().await;
    let second = database(&kept);
    for (sql, table) in [
        (
            "UPDATE consign.intents SET payload = 'other' WHERE seq = 100007",
            "intents",
        ),
        (
            "UPDATE consign.facts SET attempt = attempt + 1 WHERE seq = 200009",
            "facts",
        ),
        ("DELETE FROM consign.once WHERE scope = 1", "once"),
        ("UPDATE consign.counts SET count = count + 1", "counts"),
    ] {
        let meddled = Arc::clone(&kept);
        let mut done = false;
        let anew = consign_store::copy::Options {
            anew: true,
            ..options(&first, &second)
        };
        let refused = run(anew, move |progress| {
            if progress.stage == Stage::Verifying && !std::mem::replace(&mut done, true) {
                meddled.sql(sql).unwrap();
            }
        });
        let said = refused.await.unwrap_err().to_string();
        assert!(
            said.contains(&format!("differs from its source: {table}")),
            "{said}"
        );
        assert!(open(&second, &clock).await.is_err(), "it has its mark");
    }
    let anew = consign_store::copy::Options {
        anew: true,
        ..options(&first, &second)
    };
    run(anew, |_| {}).await.unwrap();
}
