//! The directory of an automation service: the ledger, the lock of the one service that works on it, keys, and the control socket.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use consign_automation::config::Config;
use consign_engine::{Engine, StoreError, Timekeeper};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::lock::{self, DataLock};
use crate::place::Place;
use crate::secrets::{Overrides, Secrets};
use crate::serve::ledger::{Ledger, random_bytes};

const LOCK: &str = "ductile.lock";
const SOCKET: &str = "ductile.sock";
/// Jobs are pruned by the service itself; this is for what else a ledger may hold.
const CLEANUP_INTERVAL: Duration = Duration::from_hours(6);

#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    dir: PathBuf,
    ledger: PathBuf,
}

impl StateDir {
    pub(crate) fn of(config: &Config) -> Self {
        let ledger = config.state_path.clone();
        let dir = ledger.parent().unwrap_or(Path::new(".")).to_owned();
        Self { dir, ledger }
    }

    pub(crate) fn ledger(&self) -> &Path {
        &self.ledger
    }

    /// Where a running service takes commands.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// The process of the running service; 0 if it has not said which it is.
    pub(crate) fn running(&self) -> Option<u32> {
        lock::holder(&self.dir.join(LOCK))
    }

    /// Makes the directory and holds it. A second service ends here.
    pub(crate) fn lock(&self) -> anyhow::Result<DataLock> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .with_context(|| format!("cannot make the directory {}", self.dir.display()))?;
        DataLock::state(&self.dir.join(LOCK), &self.dir.display().to_string())
    }
}

/// A ledger that is a file of the state directory, open for this process alone.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) engine: Engine,
    pub(crate) ledger: Ledger,
    stop: watch::Sender<bool>,
    timekeeping: JoinHandle<()>,
    _locks: (DataLock, Option<DataLock>),
}

impl Open {
    /// Takes the lock, then opens the ledger, making what is missing. The keys lie beside it, as in a server's data directory.
    pub(crate) async fn new(state: &StateDir) -> anyhow::Result<Self> {
        let lock = state.lock()?;
        let place = Place::File(state.ledger.clone());
        let ledger_lock = place.lock()?;
        let data = DataDir::new(&state.dir);
        let secrets = Secrets::open(&data, &Overrides::default(), place.holds().await?)?;
        let clock = place.clock().await?;
        let node = i64::from(u32::from_le_bytes(random_bytes()?));
        let ledger = place.open(clock.clone(), node).await?;
        let engine = ledger.engine(&clock, &secrets, CLEANUP_INTERVAL)?;
        engine.check_seal().await?;
        let (stop, mut stopping) = watch::channel(false);
        let timekeeper = Timekeeper::new(engine.clone());
        let timekeeping = tokio::spawn(timekeeper.run(
            async move {
                let _ = stopping.wait_for(|stop| *stop).await;
            },
            move || clock.follow(),
        ));
        Ok(Self {
            engine,
            ledger,
            stop,
            timekeeping,
            _locks: (lock, ledger_lock),
        })
    }

    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        self.timekeeping
            .await
            .context("the timekeeper ended by a panic")?;
        self.ledger.close();
        if self.ledger.is_lost() {
            let lost = Failure::failed(StoreError::Lost.to_string());
            let hint = "look at the disk; what was recorded before is safe, and a new start reads what is really there";
            return Err(lost.hint(hint).into());
        }
        Ok(())
    }
}
