//! `system start`: the service in the foreground, on its own ledger.
//!
//! Ordering: configuration, lock, ledger, runtime. Every failure happens before anything runs.

use std::sync::Arc;

use anyhow::Context;
use consign_automation::config::SealCheck;
use consign_web::listener_policy::ListenerPolicy;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::automation::{Automation, AutomationHost, ReloadHandle};
use super::logs::{self, LogHandle};
use super::notify::Supervisor;
use super::state::{AutomationLedger, StateDir};
use crate::commands::automation::config::tree::ConfigTree;
use crate::failure::Exit;
use crate::planted;
use crate::serve::begin::BeginArgs;
use crate::serve::limits::ConnectionBudget;

/// The lock allows one service at a time on its own ledger, so all earlier starts had this node name.
pub(crate) const NODE: &str = "automation";

pub(crate) async fn run(tree: ConfigTree, allowed: BeginArgs) -> anyhow::Result<Exit> {
    let (program, problems) = tree.load(SealCheck::AsConfigured)?;
    let log = logs::start(&program.config().service);
    planted::enable_planted_defect();
    let connections = ConnectionBudget::raise();
    Automation::log_problems(&problems);
    let supervisor = Arc::new(Supervisor::from_environment());
    let mut signals = ServiceSignals::listen()?;
    let state = StateDir::of(program.config());
    let open = AutomationLedger::open(&state, allowed).await?;
    if let Some(place) = state.use_own_ledger(&open)? {
        let message = "earlier jobs are in the store of a `consign serve --config`, and are not available here";
        tracing::warn!(component = "service", place, "{message}");
    }
    let engine = open.engine.clone();
    let host = AutomationHost {
        engine,
        node: NODE.to_owned(),
        policy: ListenerPolicy::default(),
        guarded: state.guarded(),
        bus: None,
        mesh: None,
        connections: connections.standalone_automation(),
    };
    let automation = Automation::start(host, tree, program).await?;
    let reload = automation.reload_handle();
    supervisor.ready();
    // Separate tasks, so that none of them delays a signal, and a reload delays none of them.
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
    // The next start completes a reload that is cut off here.
    reloads.abort();
    supervisor.stopping();
    let mut stop = std::pin::pin!(automation.stop());
    tokio::select! {
        () = &mut stop => {}
        // A second signal skips the wait.
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

/// Signals during a reload cause one more reload.
async fn reload_on_signal(again: Arc<Notify>, supervisor: Arc<Supervisor>, reload: ReloadHandle) {
    loop {
        again.notified().await;
        supervisor.reloading();
        reload.reload().await;
        supervisor.ready();
    }
}

/// Applies the log settings of every new configuration.
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
