//! The automation inside a server of the Intent Protocol: one process, one ledger.
//!
//! Invariant: the lock of its state directory is held from before it starts until after it has stopped.

use std::path::{Path, PathBuf};

use consign_automation::config::SealCheck;
use consign_automation::plugin::confine::GuardedPaths;
use consign_automation::program::Program;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::commands::automation::config::tree::{ConfigTree, TreeArgs};
use crate::ledger_location::LedgerLocation;
use crate::lock::DataLock;
use crate::system::{Automation, AutomationHost, ReloadHandle, StateDir};

/// A valid configuration, and the lock of its state directory.
pub(super) struct PreparedAutomation {
    tree: ConfigTree,
    program: Program,
    lock: DataLock,
}

/// A running automation that stops when the server drains.
pub(super) struct EmbeddedAutomation {
    pub(super) reload: ReloadHandle,
    stopping: JoinHandle<()>,
}

impl PreparedAutomation {
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        let tree = TreeArgs::at(path).find()?;
        let (program, problems) = tree.load(SealCheck::AsConfigured)?;
        Automation::log_problems(&problems);
        let lock = StateDir::of(program.config()).lock()?;
        Ok(Self {
            tree,
            program,
            lock,
        })
    }

    /// The node name in a shared database.
    pub(super) fn node(&self) -> anyhow::Result<String> {
        StateDir::of(self.program.config()).node(&self.lock)
    }

    /// Records for other commands where the jobs are stored.
    pub(super) fn note_ledger(&self, place: &LedgerLocation) -> anyhow::Result<()> {
        StateDir::of(self.program.config()).record_external_ledger(&self.lock, place)
    }

    /// The paths that no sandbox opens: the state directory and `private`.
    pub(super) fn guarded(&self, private: Vec<PathBuf>) -> GuardedPaths {
        StateDir::of(self.program.config())
            .guarded()
            .and_hidden(private)
    }

    pub(super) async fn start(
        self,
        host: AutomationHost,
        mut draining: watch::Receiver<bool>,
    ) -> anyhow::Result<EmbeddedAutomation> {
        let Self {
            tree,
            program,
            lock,
        } = self;
        let automation = Automation::start(host, tree, program).await?;
        let reload = automation.reload_handle();
        let stopping = tokio::spawn(async move {
            let _ = draining.wait_for(|draining| *draining).await;
            automation.stop().await;
            drop(lock);
        });
        Ok(EmbeddedAutomation { reload, stopping })
    }
}

impl EmbeddedAutomation {
    pub(super) async fn wait_until_stopped(self) {
        if let Err(error) = self.stopping.await {
            tracing::error!(%error, "the automation panicked");
        }
    }
}
