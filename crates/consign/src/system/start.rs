//! `system start`: the service in the foreground, on a ledger of its own.
//!
//! Order matters: configuration, lock, ledger, runtime. Whatever fails, fails before anything runs.

use anyhow::Context;
use consign_automation::config::Verify;
use consign_faces::web::door::Door;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::automation::Automation;
use super::logs;
use super::notify::Supervisor;
use super::state::{Open, StateDir};
use crate::commands::automation::config::tree::Tree;
use crate::failure::Exit;
use crate::planted;

/// The lock lets one service at a time work on a ledger of its own, so whatever ran there before was this one.
pub(crate) const NODE: &str = "automation";

pub(crate) async fn run(tree: Tree) -> anyhow::Result<Exit> {
    let (program, problems) = tree.load(Verify::AsConfigured)?;
    logs::start(&program.config().service);
    planted::wake_defect();
    Automation::tell(&problems);
    let supervisor = Supervisor::from_environment();
    let mut signals = Signals::listen()?;
    let state = StateDir::of(program.config());
    let open = Open::new(&state).await?;
    if let Some(place) = state.begin(&open)? {
        let message =
            "jobs of before lie in the store of a `consign serve --config`, and are not seen here";
        tracing::warn!(component = "service", place, "{message}");
    }
    let engine = open.engine.clone();
    let automation =
        Automation::start(engine, tree, program, NODE.to_owned(), Door::default()).await?;
    let files = automation.files();
    supervisor.ready();
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            () = open.ledger.until_lost() => break,
            _ = signals.hangup.recv() => {
                supervisor.reloading();
                files.reload().await;
                supervisor.ready();
            }
            () = supervisor.wants_to_know() => supervisor.alive(),
        }
    }
    supervisor.stopping();
    let mut stop = std::pin::pin!(automation.stop());
    loop {
        tokio::select! {
            () = &mut stop => break,
            // Who asks twice does not want to wait.
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            () = supervisor.wants_to_know() => supervisor.alive(),
        }
    }
    open.close().await?;
    tracing::info!(component = "service", "stopped");
    Ok(Exit::Done)
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
