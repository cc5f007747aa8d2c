//! Measures the cost of a job against a bare loop that starts the same command and waits for it, in alternating rounds.
//!
//! `cargo run --release -p consign-automation --example dispatch [JOBS] [ROUNDS] [BACKLOG]`

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on ends where it stands, and its result is printed"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_automation::config::{Environment, SealCheck};
use consign_automation::plugin::confine::GuardedPaths;
use consign_automation::plugin::run::Launcher;
use consign_automation::program::{self, Program};
use consign_automation::runtime::{Job, Options, Runtime, SubmittedBy};
use consign_engine::{Engine, EngineClock, Options as EngineOptions, SealKey, UnitOfWork};
use consign_kernel::receipt::Signer;
use consign_testkit::ledger::{Backend, Ledger};
use serde_json::{Value, json};

const SCRIPT: &str =
    "#!/usr/bin/env bash\ncat > /dev/null\necho '{\"status\":\"ok\",\"result\":\"done\"}'\n";

/// Polling costs processor time, so it is rare: a hundredth of what is measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(15);

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let jobs = numbers.next().unwrap_or(300);
    let rounds = numbers.next().unwrap_or(5);
    let backlog = numbers.next().unwrap_or(50_000);
    let folder = tempfile::tempdir().unwrap();
    for name in ["quick", "capped"] {
        plugin(folder.path(), name);
    }
    // As the service has it on two cores.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (mut against_bare, mut beside_backlog) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let bare = bare(&folder.path().join("plugins/quick/run"), jobs);
        let alone = runtime.block_on(dispatched(&program(folder.path()), jobs, 0));
        let beside = runtime.block_on(dispatched(&program(folder.path()), jobs, backlog));
        println!(
            "round {round}: bare {:?} a job, dispatched {:?}, beside {backlog} waiting jobs of a plugin at its cap {:?}",
            bare / jobs,
            alone / jobs,
            beside / jobs
        );
        against_bare.push(alone.as_secs_f64() / bare.as_secs_f64());
        beside_backlog.push(beside.as_secs_f64() / alone.as_secs_f64());
    }
    println!("dispatched against bare: {}", spread(against_bare));
    println!(
        "beside the waiting jobs against alone: {}",
        spread(beside_backlog)
    );
}

/// The median, with minimum and maximum.
fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    format!(
        "{median:.2} ({:.2} to {:.2})",
        ratios[0],
        ratios[ratios.len() - 1]
    )
}

fn plugin(folder: &Path, name: &str) {
    let folder = folder.join("plugins").join(name);
    fs::create_dir_all(&folder).unwrap();
    let manifest = format!(
        "manifest_spec: ductile.plugin\nmanifest_version: 1\nname: {name}\nversion: 1.0.0\nprotocol: 2\nentrypoint: run\n\
         commands:\n  poll: {{type: read}}\n"
    );
    fs::write(folder.join("manifest.yaml"), manifest).unwrap();
    let script = if name == "capped" {
        "#!/usr/bin/env bash\nsleep 600\n"
    } else {
        SCRIPT
    };
    fs::write(folder.join("run"), script).unwrap();
    fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn program(folder: &Path) -> Arc<Program> {
    let path = folder.join("config.yaml");
    let config = "plugin_roots: [plugins]\nservice: {max_workers: 2}\nplugins: {quick: {parallelism: 1}, capped: {parallelism: 1}}\n";
    fs::write(&path, config).unwrap();
    let environment = Environment {
        variables: std::env::vars().collect(),
        home: None,
        system_dir: folder.join("etc"),
        processors: 2,
    };
    let loaded = program::load(&path, &environment, SealCheck::AsConfigured);
    Arc::new(loaded.program.unwrap())
}

fn bare(entrypoint: &Path, jobs: u32) -> Duration {
    let request = json!({"protocol": 2, "job_id": "x", "command": "poll", "config": {}, "state": {}, "context": {}});
    let began = Instant::now();
    for _ in 0..jobs {
        let mut child = Command::new(entrypoint)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{request}").unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
    }
    began.elapsed()
}

/// One job after the other, as in the bare loop; meanwhile `backlog` jobs of another plugin are queued, and one of them runs.
async fn dispatched(program: &Arc<Program>, jobs: u32, backlog: u32) -> Duration {
    let clock = Arc::new(EngineClock::start(None));
    let ledger = Ledger::new(Backend::Sqlite, clock.clone());
    let engine = Engine::new(EngineOptions {
        store: Arc::clone(&ledger.store),
        clock: clock.clone(),
        wall: clock,
        entropy: [7; 32],
        seal: SealKey::new([7; 32]),
        signer: Signer::from_seed(&[7; 32]),
        main_key: "ck_main".to_owned(),
        cleanup_interval: Duration::from_hours(1),
    });
    queue(&engine, program, "capped", backlog).await;
    let options = Options {
        engine: engine.clone(),
        program: Arc::clone(program),
        node: "here".to_owned(),
        guarded: GuardedPaths::default(),
        bus: None,
        mesh: None,
        launcher: Launcher {
            program: "/proc/self/exe".into(),
            arguments: Vec::new(),
        },
    };
    let runtime = Runtime::start(options).await.unwrap();
    while backlog > 0 && runtime.running() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    queue(&engine, program, "quick", jobs).await;
    while !engine.open_jobs("quick", None, 1).await.unwrap().is_empty() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let took = began.elapsed();
    runtime.stop(Duration::ZERO).await;
    took
}

async fn queue(engine: &Engine, program: &Program, plugin: &str, count: u32) {
    let job = Job::root(plugin, "poll", SubmittedBy::Cli, Value::Null).intent(program, None, None);
    for _ in 0..count.div_ceil(1_000) {
        let items = vec![job.clone(); count.min(1_000) as usize];
        let mut unit = UnitOfWork::default();
        unit.admit(items);
        engine.commit(unit).await.unwrap();
    }
}
