//! A copy that is interrupted at any point resumes where it stopped, and a partial copy is never opened as a ledger.

use std::sync::Arc;

use consign_store::Error;
use consign_store::copy::{CopyEnd, CopyStage, TargetContent};

use super::{
    content, copied, database, file, filled, fresh_database, look, open, options, run, same,
};

/// Runs a copy that is aborted, without cleanup, when it has reported its progress `after` times.
async fn cut_off(from: &CopyEnd, to: &CopyEnd, after: u32) {
    let options = options(from, to);
    let ended = tokio::task::spawn_blocking(move || {
        let mut told = 0;
        consign_store::copy::copy(&options, |progress| {
            told += 1;
            assert!(
                progress.stage == CopyStage::Copying && told < after,
                "cut off here"
            );
        })
    });
    assert!(ended.await.is_err());
}

async fn is_refused(end: &CopyEnd, clock: &Arc<consign_store::conformance::ManualClock>) {
    let Err(error) = open(end, clock).await else {
        panic!("a part of a copy was opened");
    };
    assert!(matches!(error, Error::PartCopy { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains("first.db") && said.contains("copy again"),
        "{said}"
    );
}

async fn goes_on(to: &CopyEnd) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 1_500).await;
    let before = content(&first, &clock).await;
    let to = match to {
        CopyEnd::File(name) => CopyEnd::File(folder.path().join(name)),
        database @ CopyEnd::Database(_) => database.clone(),
    };
    // In the middle of the intents, in the middle of the facts, after all rows.
    for after in [2, 4, 1_000] {
        cut_off(&first, &to, after).await;
        is_refused(&to, &clock).await;
        assert_eq!(look(&first, &to).await.found, TargetContent::Part);
    }
    let (tell, told) = std::sync::mpsc::channel();
    let report = run(options(&first, &to), move |progress| {
        // The receiver is gone if the copy fails.
        let _ = tell.send(progress.stage);
    });
    assert!(report.await.unwrap().resumed);
    let copying = told.try_iter().filter(|stage| *stage == CopyStage::Copying);
    assert_eq!(
        copying.count(),
        0,
        "everything was there, and was verified only"
    );
    same(&content(&to, &clock).await, &before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_to_postgres_goes_on_where_it_was_cut_off() {
    let kept = fresh_database().await;
    goes_on(&database(&kept)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_to_a_file_goes_on_where_it_was_cut_off() {
    goes_on(&CopyEnd::File("second.db".into())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_from_postgres_goes_on_though_its_server_crashed_meanwhile() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 1_500).await;
    let before = content(&first, &clock).await;
    let kept = fresh_database().await;
    let (second, third) = (database(&kept), file(&folder, "third.db"));
    copied(&first, &second).await;
    for after in [2, 4] {
        cut_off(&second, &third, after).await;
        // As after a crash: PostgreSQL skips the numbers that it had reserved of its sequences.
        let jump = "SELECT setval(name, (SELECT max(last_value) FROM pg_sequences) + 32) \
                    FROM (VALUES ('consign.intent_blocks'), ('consign.fact_blocks')) AS s (name)";
        kept.sql(jump).unwrap();
        assert_eq!(look(&second, &third).await.found, TargetContent::Part);
    }
    assert!(copied(&second, &third).await.resumed);
    same(&content(&third, &clock).await, &before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_changed_meanwhile_is_noticed_and_copied_anew_when_asked() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::default());
    let first = filled(&folder, "first.db", &clock, 1_500).await;
    let second = file(&folder, "second.db");
    cut_off(&first, &second, 3).await;
    let world = super::world(&first, &clock).await;
    world.publish(super::item()).await;
    drop(world);

    let refused = run(options(&first, &second), |_| {}).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("--anew"), "{said}");
    let anew = consign_store::copy::Options {
        anew: true,
        ..options(&first, &second)
    };
    assert!(!run(anew, |_| {}).await.unwrap().resumed);
    same(
        &content(&second, &clock).await,
        &content(&first, &clock).await,
    );
    // The copy is complete now, so even `anew` does not discard it.
    let anew = consign_store::copy::Options {
        anew: true,
        ..options(&first, &second)
    };
    assert!(run(anew, |_| {}).await.is_err());
    let third = file(&folder, "third.db");
    copied(&second, &third).await;
}
