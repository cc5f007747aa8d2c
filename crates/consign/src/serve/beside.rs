//! The automation beside the Intent Protocol, in one process and on one ledger.
//!
//! Invariant: the lock of its state directory is held from before it runs until after it has stopped.

use std::path::{Path, PathBuf};

use consign_automation::config::Verify;
use consign_automation::program::Program;
use consign_engine::Engine;
use consign_faces::automation::listeners::Shares;
use consign_faces::web::listener_policy::ListenerPolicy;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::commands::automation::config::tree::{Tree, TreeArgs};
use crate::ledger_location::LedgerLocation;
use crate::lock::DataLock;
use crate::system::{Automation, Files, StateDir};

/// A configuration that holds, and the lock of its state directory.
pub(super) struct Ready {
    tree: Tree,
    program: Program,
    lock: DataLock,
}

/// A running automation that stops when the server drains.
pub(super) struct Running {
    pub(super) files: Files,
    stopping: JoinHandle<()>,
}

impl Ready {
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let tree = TreeArgs::at(path).find()?;
        let (program, problems) = tree.load(Verify::AsConfigured)?;
        Automation::tell(&problems);
        let lock = StateDir::of(program.config()).lock()?;
        Ok(Self {
            tree,
            program,
            lock,
        })
    }

    /// Among the nodes of a shared database.
    pub(super) fn node(&self) -> anyhow::Result<String> {
        StateDir::of(self.program.config()).node(&self.lock)
    }

    /// Tells commands without this server where the jobs lie.
    pub(super) fn note_ledger(&self, place: &LedgerLocation) -> anyhow::Result<()> {
        StateDir::of(self.program.config()).note_elsewhere(&self.lock, place)
    }

    pub(super) async fn start(
        self,
        engine: Engine,
        node: String,
        policy: ListenerPolicy,
        shares: Shares,
        private: Vec<PathBuf>,
        mut draining: watch::Receiver<bool>,
    ) -> anyhow::Result<Running> {
        let Self {
            tree,
            program,
            lock,
        } = self;
        let guarded = StateDir::of(program.config()).guarded().and_hidden(private);
        let started = Automation::start(engine, tree, program, node, policy, guarded, shares);
        let automation = started.await?;
        let files = automation.files();
        let stopping = tokio::spawn(async move {
            let _ = draining.wait_for(|draining| *draining).await;
            automation.stop().await;
            drop(lock);
        });
        Ok(Running { files, stopping })
    }
}

impl Running {
    pub(super) async fn stopped(self) {
        if let Err(error) = self.stopping.await {
            tracing::error!(%error, "the automation ended by a panic");
        }
    }
}
