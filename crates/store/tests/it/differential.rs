//! The model, SQLite and PostgreSQL execute the same random requests and must give the same answers, step by step.
//!
//! After every step the invariants of any history are checked on the answers themselves, and the content of the model is
//! audited; at the end all contents are compared in full. A failure shrinks to a short list of commands.

mod act;
mod names;
mod script;

use std::sync::{Arc, Mutex};

use consign_store::conformance::{ManualClock, audit};
use consign_store::memory::Memory;
use consign_store::sqlite::{Options, Sqlite};
use consign_store::{News, Store, TypedReads as _};
use consign_testkit::ledger::{Backend, Ledger};
use proptest::prelude::*;

use act::{Act, acts};
use names::{Names, ranked, unnumbered};
use script::Script;

const CASES: u32 = 64;
/// The model alone is a thousand times as fast as the three together.
const CASES_ALONE: u32 = 2_000;
const STEPS: usize = 60;

fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|text| text.parse().ok()).unwrap_or(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn memory_sqlite_and_postgres_answer_alike(acts in acts(STEPS)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(compare(&acts))?;
    }
}

proptest! {
    #![proptest_config(config(CASES_ALONE))]

    #[test]
    fn the_model_keeps_the_rules_that_hold_for_any_history(acts in acts(STEPS)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(alone(&acts))?;
    }
}

async fn alone(acts: &[Act]) -> Result<(), TestCaseError> {
    let clock = Arc::new(ManualClock::default());
    let memory = Memory::new(clock.clone());
    let mut script = Script::new(clock);
    for (step, act) in acts.iter().enumerate() {
        let Some(request) = script.request(act, step) else {
            continue;
        };
        let answered = memory.execute(request.clone()).await.unwrap();
        let mut wrong = script.learn(&request, &answered);
        wrong.extend(audit(&memory.dump().await.unwrap()));
        prop_assert!(
            wrong.is_empty(),
            "step {}, {:?}: {:#?}",
            step,
            request,
            wrong
        );
    }
    Ok(())
}

type Heard = Arc<Mutex<Vec<News>>>;

fn listen(store: &dyn Store) -> Heard {
    let heard = Heard::default();
    let listening = Arc::clone(&heard);
    store.listen(Box::new(move |news| {
        listening.lock().unwrap().push(news.clone());
    }));
    heard
}

/// Rows are passed over only with several writers, so `left` is not compared.
fn heard(since: &Heard) -> Vec<News> {
    let mut heard = std::mem::take(&mut *since.lock().unwrap());
    for news in &mut heard {
        news.left.clear();
    }
    heard.retain(|news| !news.is_empty());
    heard
}

async fn compare(acts: &[Act]) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let memory = Memory::new(clock.clone());
    let sqlite = Sqlite::open(Options {
        path: folder.path().join("ledger.db"),
        clock: clock.clone(),
        queue_max: 8,
    })
    .unwrap();
    let ledger = Ledger::new(Backend::Postgres, clock.clone());
    let postgres = &ledger.store;
    let mut names = Names::default();
    let (in_memory, in_sqlite) = (listen(&memory), listen(&sqlite));
    let in_postgres = listen(&**postgres);
    let mut script = Script::new(clock);
    for (step, act) in acts.iter().enumerate() {
        let Some(request) = script.request(act, step) else {
            continue;
        };
        let expected = memory.execute(request.clone()).await.unwrap();
        let broken = |error| TestCaseError::fail(format!("step {step}, {request:?}: {error}"));
        let found = sqlite.execute(request.clone()).await.map_err(broken)?;
        prop_assert_eq!(&found, &expected, "step {}, {:?}", step, request);
        let found = postgres
            .execute(names.ask(&request))
            .await
            .map_err(broken)?;
        names.learn(&expected, &found);
        let (found, wanted) = (names.reply(&found), unnumbered(&expected));
        prop_assert_eq!(found, wanted, "PostgreSQL, step {}, {:?}", step, request);
        let told = heard(&in_memory);
        prop_assert_eq!(
            heard(&in_sqlite),
            told.clone(),
            "step {}, {:?}",
            step,
            request
        );
        let found = heard(&in_postgres);
        prop_assert_eq!(found, told, "PostgreSQL, step {}, {:?}", step, request);
        let wrong = script.learn(&request, &expected);
        prop_assert!(
            wrong.is_empty(),
            "step {}, {:?}: {:?}",
            step,
            request,
            wrong
        );
        let findings = audit(&memory.dump().await.unwrap());
        prop_assert!(
            findings.is_empty(),
            "step {}, {:?}: {:#?}",
            step,
            request,
            findings
        );
    }
    let content = sqlite.dump().await.unwrap();
    prop_assert_eq!(&content, &memory.dump().await.unwrap());
    prop_assert_eq!(
        sqlite.next_due().await.unwrap(),
        memory.next_due().await.unwrap()
    );
    prop_assert_eq!(sqlite.stats().last_fact, memory.stats().last_fact);
    let findings = sqlite.check().await.unwrap();
    prop_assert!(findings.is_empty(), "{:#?}", findings);

    let theirs = names.dump(postgres.dump().await.unwrap());
    prop_assert_eq!(ranked(theirs), ranked(content));
    prop_assert_eq!(
        postgres.next_due().await.unwrap(),
        memory.next_due().await.unwrap()
    );
    let findings = postgres.check().await.unwrap();
    prop_assert!(findings.is_empty(), "{:#?}", findings);
    Ok(())
}
