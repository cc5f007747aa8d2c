//! The automation inside a server of the Intent Protocol: one process, one ledger.
//!
//! Invariant: the lock of its state directory is held from before it starts until after it has stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use consign_automation::config::SealCheck;
use consign_automation::plugin::confine::GuardedPaths;
use consign_automation::program::Program;
use consign_engine::EngineClock;
use consign_kernel::profile::Face;
use consign_kernel::state::State;
use consign_store::sqlite::{FileKind, Sqlite, identify};
use consign_store::{Count, TypedReads as _};
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

    /// Records for other commands where the jobs are stored. Reports jobs that are in the ledger of `system start`.
    pub(super) async fn note_ledger(&self, place: &LedgerLocation) -> anyhow::Result<()> {
        let state = StateDir::of(self.program.config());
        if state.external_ledger()?.is_none() {
            report_left_behind(&state, place).await;
        }
        state.record_external_ledger(&self.lock, place)
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

/// Warns of jobs that are not over in the ledger of the state directory.
async fn report_left_behind(state: &StateDir, place: &LedgerLocation) {
    let path = state.ledger();
    let own = LedgerLocation::File(path.to_owned());
    if own.noted() == place.noted() || !matches!(identify(path), Ok(FileKind::Consign)) {
        return;
    }
    let hint =
        "run `system start` with this configuration until they are over, or queue them here again";
    match open_jobs(&own, path).await {
        Ok(0) => {}
        Ok(jobs) => tracing::warn!(
            ledger = %path.display(),
            jobs,
            "jobs that are not over are in the ledger of `system start`, and are not available here; {hint}"
        ),
        Err(error) => tracing::warn!(
            ledger = %path.display(),
            %error,
            "the ledger of `system start` cannot be read; if it has jobs that are not over, {hint}"
        ),
    }
}

async fn open_jobs(place: &LedgerLocation, path: &Path) -> anyhow::Result<u64> {
    let _lock = place.lock()?;
    let clock = Arc::new(EngineClock::start(Sqlite::last_time(path)?));
    let ledger = place.open(clock, 0).await?;
    let counts = ledger.shared().counts(Face::Automation).await;
    ledger.close();
    let open = |count: &Count| matches!(count.state, State::Queued | State::Dispatched);
    Ok(counts?
        .iter()
        .filter(|count| open(count))
        .map(|count| count.count)
        .sum())
}

impl EmbeddedAutomation {
    pub(super) async fn wait_until_stopped(self) {
        if let Err(error) = self.stopping.await {
            tracing::error!(%error, "the automation panicked");
        }
    }
}
