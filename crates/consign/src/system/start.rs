//! `system start`: the service in the foreground, on a ledger of its own.
//!
//! Order matters: configuration, lock, ledger, runtime. Whatever fails, fails before anything runs.

use std::sync::Arc;

use anyhow::Context;
use consign_automation::config::Verify;
use consign_faces::web::listener_policy::ListenerPolicy;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::automation::{Automation, Files};
use super::logs::{self, Log};
use super::notify::Supervisor;
use super::state::{Open, StateDir};
use crate::commands::automation::config::tree::Tree;
use crate::failure::Exit;
use crate::planted;
use crate::serve::begin::BeginArgs;
use crate::serve::limits::ConnectionBudget;

/// The lock lets one service at a time work on a ledger of its own, so whatever ran there before was this one.
pub(crate) const NODE: &str = "automation";

pub(crate) async fn run(tree: Tree, allowed: BeginArgs) -> anyhow::Result<Exit> {
    let (program, problems) = tree.load(Verify::AsConfigured)?;
    let log = logs::start(&program.config().service);
    planted::enable_planted_defect();
    let connections = ConnectionBudget::raise();
    Automation::tell(&problems);
    let supervisor = Arc::new(Supervisor::from_environment());
    let mut signals = Signals::listen()?;
    let state = StateDir::of(program.config());
    let open = Open::new(&state, allowed).await?;
    if let Some(place) = state.begin(&open)? {
        let message =
            "jobs of before lie in the store of a `consign serve --config`, and are not seen here";
        tracing::warn!(component = "service", place, "{message}");
    }
    let engine = open.engine.clone();
    let (node, policy, guarded) = (NODE.to_owned(), ListenerPolicy::default(), state.guarded());
    let shares = connections.standalone_automation();
    let started = Automation::start(engine, tree, program, node, policy, guarded, shares);
    let automation = started.await?;
    let files = automation.files();
    supervisor.ready();
    // Each in a task of its own: none of them holds up a signal, and a reload holds up none of them.
    let beats = tokio::spawn(keep_alive(Arc::clone(&supervisor), files.clone()));
    let following = tokio::spawn(follow(log, files.clone()));
    let again = Arc::new(Notify::new());
    let reloads = tokio::spawn(reload_when_told(
        Arc::clone(&again),
        Arc::clone(&supervisor),
        files,
    ));
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            () = open.ledger.until_lost() => break,
            _ = signals.hangup.recv() => again.notify_one(),
        }
    }
    // One that is cut off here is made good by the next start.
    reloads.abort();
    supervisor.stopping();
    let mut stop = std::pin::pin!(automation.stop());
    tokio::select! {
        () = &mut stop => {}
        // Who asks twice does not want to wait.
        _ = signals.terminate.recv() => {}
        _ = signals.interrupt.recv() => {}
    }
    open.close().await?;
    beats.abort();
    following.abort();
    tracing::info!(component = "service", "stopped");
    Ok(Exit::Done)
}

async fn keep_alive(supervisor: Arc<Supervisor>, files: Files) {
    let ailment = || files.runtime().ailment();
    supervisor.keep_alive(ailment).await;
}

/// Signals that come while one reload is under way are followed by one more.
async fn reload_when_told(again: Arc<Notify>, supervisor: Arc<Supervisor>, files: Files) {
    loop {
        again.notified().await;
        supervisor.reloading();
        files.reload().await;
        supervisor.ready();
    }
}

/// Writes the log as the configuration of the moment wants it, whoever asked for that.
async fn follow(log: Log, files: Files) {
    let mut adoptions = files.runtime().adoptions();
    while adoptions.changed().await.is_ok() {
        log.follow(&files.runtime().program().config().service);
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
            hangup: signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?,
        })
    }
}
