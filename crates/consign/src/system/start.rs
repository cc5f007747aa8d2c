//! `system start`: the service in the foreground, on a ledger of its own.
//!
//! Order matters: configuration, lock, ledger, runtime. Whatever fails, fails before anything runs.

use std::sync::Arc;

use anyhow::Context;
use consign_automation::config::SealCheck;
use consign_faces::web::door::Door;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::automation::{Automation, ReloadHandle};
use super::logs::{self, LogHandle};
use super::notify::Supervisor;
use super::state::{OpenLedger, StateDir};
use crate::commands::automation::config::tree::ConfigTree;
use crate::failure::Exit;
use crate::planted;
use crate::serve::begin::BeginArgs;
use crate::serve::limits::Connections;

/// The lock lets one service at a time work on a ledger of its own, so whatever ran there before was this one.
pub(crate) const NODE: &str = "automation";

pub(crate) async fn run(tree: ConfigTree, allowed: BeginArgs) -> anyhow::Result<Exit> {
    let (program, problems) = tree.load(SealCheck::AsConfigured)?;
    let log = logs::start(&program.config().service);
    planted::wake_defect();
    let connections = Connections::raise();
    Automation::log_problems(&problems);
    let supervisor = Arc::new(Supervisor::from_environment());
    let mut signals = ServiceSignals::listen()?;
    let state = StateDir::of(program.config());
    let open = OpenLedger::open(&state, allowed).await?;
    if let Some(place) = state.use_own_ledger(&open)? {
        let message =
            "jobs of before lie in the store of a `consign serve --config`, and are not seen here";
        tracing::warn!(component = "service", place, "{message}");
    }
    let engine = open.engine.clone();
    let (node, door, guarded) = (NODE.to_owned(), Door::default(), state.guarded());
    let shares = connections.alone();
    let started = Automation::start(engine, tree, program, node, door, guarded, shares);
    let automation = started.await?;
    let reload = automation.reload_handle();
    supervisor.ready();
    // Each in a task of its own: none of them holds up a signal, and a reload holds up none of them.
    let beats = tokio::spawn(keep_alive(Arc::clone(&supervisor), reload.clone()));
    let following = tokio::spawn(follow_log_settings(log, reload.clone()));
    let again = Arc::new(Notify::new());
    let reloads = tokio::spawn(reload_on_signal(
        Arc::clone(&again),
        Arc::clone(&supervisor),
        reload,
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

async fn keep_alive(supervisor: Arc<Supervisor>, reload: ReloadHandle) {
    let unhealthy_reason = || reload.runtime().unhealthy_reason();
    supervisor.keep_alive(unhealthy_reason).await;
}

/// ServiceSignals that come while one reload is under way are followed by one more.
async fn reload_on_signal(again: Arc<Notify>, supervisor: Arc<Supervisor>, reload: ReloadHandle) {
    loop {
        again.notified().await;
        supervisor.reloading();
        reload.reload().await;
        supervisor.ready();
    }
}

/// Writes the log as the configuration of the moment wants it, whoever asked for that.
async fn follow_log_settings(log: LogHandle, reload: ReloadHandle) {
    let mut config_changes = reload.runtime().config_changes();
    while config_changes.changed().await.is_ok() {
        log.apply(&reload.runtime().program().config().service);
    }
}

struct ServiceSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl ServiceSignals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?,
            hangup: signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?,
        })
    }
}
