//! The model and SQLite are asked the same at random and must answer the same, step by step.
//!
//! After every step the rules that hold for any history are checked on the answers themselves, and the content of the
//! model against itself; at the end both contents are compared in full. A failure shrinks to a short list of commands.

mod act;
mod script;

use std::sync::Arc;

use consign_store::Store;
use consign_store::conformance::{ManualClock, audit};
use consign_store::memory::Memory;
use consign_store::sqlite::{Options, Sqlite};
use proptest::collection::vec;
use proptest::prelude::*;

use act::{Act, act};
use script::Script;

const CASES: u32 = 64;
const STEPS: usize = 60;

fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|text| text.parse().ok()).unwrap_or(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn memory_and_sqlite_answer_alike(acts in vec(act(), STEPS)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(compare(&acts))?;
    }
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
    let mut script = Script::new(clock);
    for (step, act) in acts.iter().enumerate() {
        let Some(request) = script.request(act, step) else {
            continue;
        };
        let expected = memory.execute(request.clone()).await.unwrap();
        let found = sqlite.execute(request.clone()).await;
        let found = found
            .map_err(|error| TestCaseError::fail(format!("step {step}, {request:?}: {error}")))?;
        prop_assert_eq!(
            &found.reply,
            &expected.reply,
            "step {}, {:?}",
            step,
            request
        );
        prop_assert_eq!(&found.ripe, &expected.ripe, "step {}, {:?}", step, request);
        prop_assert_eq!(
            found.wake_at,
            expected.wake_at,
            "step {}, {:?}",
            step,
            request
        );
        let wrong = script.learn(&request, &expected.reply);
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
    Ok(())
}
