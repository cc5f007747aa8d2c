//! The one-time setup of plugins.

use std::time::Duration;

use consign_automation::runtime::reads::ServiceCheck;
use consign_automation::runtime::{Runtime, SetupInfo};
use consign_kernel::state::State;
use serde_json::Value;

use crate::world::{World, run};

const INIT: &str = "  init: {type: write}\n";
const COUNTS: &str = "open(here + '/asked', 'a').write(request['command'] + '\\n')\nok()";

async fn settled(runtime: &Runtime, plugin: &str) -> SetupInfo {
    for _ in 0..1_000 {
        let setups = runtime.setups().await.unwrap();
        let mut setups = setups.into_iter().filter(|one| one.plugin == plugin);
        if let Some(setup) = setups.find(|one| !one.setup.pending) {
            return setup;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{plugin} was never set up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_runs_once_and_again_for_another_program_or_configuration_du_034() {
    let world = World::new();
    world.python("mail", INIT, COUNTS);
    world.python("plain", "", COUNTS);
    let config = "plugins: {mail: {config: {box: 1}}}";
    let mut expected = 0;
    // The same twice, then another configuration, then another program.
    let steps = [
        (config, false, true),
        (config, false, false),
        ("plugins: {mail: {config: {box: 2}}}", false, true),
        ("plugins: {mail: {config: {box: 2}}}", true, true),
    ];
    for (config, other_program, runs) in steps {
        if other_program {
            world.python("mail", INIT, &format!("# Another one.\n{COUNTS}"));
        }
        let runtime = world.start(config).await;
        let setup = settled(&runtime, "mail").await;
        assert!(setup.setup.healthy, "{setup:?}");
        expected += usize::from(runs);
        // Any job that was queued with it would have run by now.
        let after = run(&runtime, "mail", "poll", Value::Null).await;
        world.ended(after).await;
        let asked = world.read("asked");
        let inits = asked.lines().filter(|command| *command == "init").count();
        assert_eq!(inits, expected, "{config}");
        assert_eq!(
            runtime.setups().await.unwrap().len(),
            1,
            "the other has none"
        );
        runtime.stop(Duration::from_secs(5)).await;
    }
}

/// The check of a plugin, which is the same in status and doctor. The status does not list healthy plugins.
async fn said_of(runtime: &Runtime, plugin: &str) -> Option<String> {
    let name = format!("plugin {plugin}");
    let detail = |checks: &[ServiceCheck]| {
        let check = checks.iter().find(|check| check.name == name);
        check.and_then(|check| check.detail.clone())
    };
    let status = runtime.status().await.unwrap();
    let told = detail(&status.checks);
    assert_eq!(status.is_healthy(), told.is_none(), "{status:?}");
    assert_eq!(status.plugins[0].healthy, told.is_none(), "{status:?}");
    assert_eq!(detail(&runtime.doctor().await.unwrap()), told);
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_init_is_not_tried_again_and_marks_the_plugin_du_034() {
    let world = World::new();
    let body = "open(here + '/asked', 'a').write('x')\nif os.path.exists(here + '/fixed'):\n    ok()\nelse:\n    print(json.dumps({'status': 'error', 'error': 'no database'}))";
    world.python("mail", INIT, body);
    let runtime = world.start("").await;
    let setup = settled(&runtime, "mail").await.setup;
    assert!(!setup.healthy);
    assert_eq!(setup.error.as_deref(), Some("no database"));
    assert_eq!(
        said_of(&runtime, "mail").await.as_deref(),
        Some("no database")
    );
    let jobs = world.jobs("mail").await;
    assert_eq!(
        (jobs.len(), jobs[0].1.attempts, jobs[0].1.state),
        (1, 1, State::Failed)
    );
    runtime.stop(Duration::from_secs(5)).await;
    let runtime = world.start("").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.read("asked"), "x", "not after a restart either");
    std::fs::write(world.path("fixed"), "").unwrap();
    let by_hand = run(&runtime, "mail", "init", Value::Null).await;
    world.ended(by_hand).await;
    let healed = settled(&runtime, "mail").await.setup;
    assert!(healed.healthy);
    assert_eq!(said_of(&runtime, "mail").await, None);
    assert_eq!(
        healed.fingerprint, setup.fingerprint,
        "it is not run anew for that"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_init_that_the_service_left_behind_marks_the_plugin_du_034() {
    let world = World::new();
    world.python("mail", INIT, "open(here + '/began', 'w')\ntime.sleep(60)");
    let first = world.start("").await;
    let id = world.jobs_are("mail", 1).await[0].1.id;
    world.until(id, |_| world.path("began").exists()).await;
    first.stop(Duration::ZERO).await;
    let second = world.start("").await;
    let setup = settled(&second, "mail").await.setup;
    assert!(!setup.healthy && setup.error.is_some(), "{setup:?}");
    assert_eq!(world.jobs("mail").await.len(), 1);
}
