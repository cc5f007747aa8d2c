//! Copies that are refused, and differences that the verification finds.

use std::sync::Arc;

use consign_store::conformance::item;
use consign_store::copy::{self, CopyEnd, CopyStage};
use consign_store::postgres::DatabaseAddress;

use super::{content, copied, database, file, filled, fresh_database, open, options, run, world};

async fn refusal(from: &CopyEnd, to: &CopyEnd) -> String {
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
    let said = refusal(&first, &CopyEnd::File(link)).await;
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

/// The obstacles that a plan reports.
async fn obstacles(from: &CopyEnd, to: &CopyEnd) -> Vec<String> {
    let (from, to) = (from.clone(), to.clone());
    let plan = tokio::task::spawn_blocking(move || copy::plan(&from, &to, false));
    plan.await.unwrap().unwrap().obstacles
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rehearsal_refuses_what_the_copy_would_refuse() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let cluster = consign_testkit::postgres::shared().unwrap();
    let empty = || cluster.database("consign_nothing", |_| {}).unwrap();
    let plain = empty();
    assert_eq!(obstacles(&first, &database(&plain)).await, [""; 0]);

    for table in ["users (id int)", "migrations (id int, name text)"] {
        let foreign = empty();
        let made = format!("CREATE SCHEMA consign; CREATE TABLE consign.{table}");
        foreign.sql(&made).unwrap();
        let target = database(&foreign);
        let found = obstacles(&first, &target).await;
        assert_eq!(found.len(), 1, "{table}");
        assert!(found[0].contains("some other program"), "{found:?}");
        assert_eq!(refusal(&first, &target).await, found[0]);
    }

    let locked = empty();
    locked
        .sql("DROP ROLE IF EXISTS consign_guest; CREATE ROLE consign_guest LOGIN")
        .unwrap();
    let url = locked.url().replace("postgres@", "consign_guest@");
    let target = CopyEnd::Database(Box::new(DatabaseAddress::parse(&url, None).unwrap()));
    let found = obstacles(&first, &target).await;
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("GRANT CREATE"), "{found:?}");
    refusal(&first, &target).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_of_which_not_everything_is_known_is_not_copied() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 50).await;
    let kept = fresh_database().await;
    let second = database(&kept);
    copied(&first, &second).await;
    // A future release whose schema servers of this release can still use.
    let newer = "INSERT INTO consign.migrations VALUES (99, 'more', 1, 0)";
    kept.sql(newer).unwrap();
    drop(world(&second, &clock).await);
    let said = refusal(&second, &file(&folder, "third.db")).await;
    assert!(said.contains("upgrade the binary"), "{said}");
    let CopyEnd::Database(address) = second else {
        unreachable!("it is one");
    };
    let to = folder.path().join("saved.db");
    let saved = tokio::task::spawn_blocking(move || copy::save(&address, &to, 0, |_| {}));
    let said = saved.await.unwrap().unwrap_err().to_string();
    assert!(said.contains("upgrade the binary"), "{said}");
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
    // As if the last migration had not been applied yet.
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
        if progress.stage == CopyStage::Verifying && !std::mem::replace(&mut begun, true) {
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
            if progress.stage == CopyStage::Verifying && !std::mem::replace(&mut done, true) {
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
