//! The state directory of an automation service: ledger, lock, keys and control socket.
//!
//! Invariant: if the last service kept its jobs in the store of a server, a note says so, and the ledger of this directory is not
//! opened until a service takes it into use.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use consign_automation::config::{Config, STAND_IN};
use consign_automation::plugin::confine::GuardedPaths;
use consign_engine::{Engine, Timekeeper};
use data_encoding::HEXLOWER;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use crate::commands::automation::config::tree::ConfigTree;
use crate::data_dir::{DataDir, create_private, drawn_once, read_note, remove_note, write_private};
use crate::failure::{Exit, Failure};
use crate::ledger_location::LedgerLocation;
use crate::lock::{self, DataLock};
use crate::secrets::{Overrides, Secret, Secrets, refuse_loose_mode};
use crate::serve::begin::{self, BeginArgs};
use crate::serve::ledger::{OpenLedger, random_bytes};

const LOCK: &str = "ductile.lock";
const SOCKET: &str = "ductile.sock";
const EXTERNAL_LEDGER: &str = "ledger_elsewhere";
const CONTROL_TOKEN: &str = "control_token";
/// Temporary files of sandboxed plugins that cannot use the default directory.
const TEMPORARY: &str = "tmp";
/// The hint for a ledger that only another server can open.
pub(crate) const START_SERVER_HINT: &str = "start that server again with `consign serve --config`; without it, `consign store backup` and `consign store check` work on its store, and `system start` starts a new ledger";
/// The service prunes jobs itself; this is for other rows of the ledger.
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

    /// The state directory of a tree with unset variables, as long as its path needs none of them.
    pub(crate) fn of_tree(tree: &ConfigTree) -> anyhow::Result<Self> {
        let config = tree.with_stand_ins().peek()?;
        let path = config.state_path.to_string_lossy();
        if path.contains(STAND_IN) {
            let message = "`state.path` needs a variable that is not set";
            let hint = "set it to the value that the service uses";
            return Err(Failure::new(Exit::Config, message).hint(hint).into());
        }
        Ok(Self::of(&config))
    }

    pub(crate) fn ledger(&self) -> &Path {
        &self.ledger
    }

    /// The control socket of the running service.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// The file with the token of the control socket. No sandbox lets a plugin read it.
    pub(super) fn control_token(&self) -> PathBuf {
        DataDir::new(&self.dir).key_file(CONTROL_TOKEN)
    }

    /// Creates the token of a starting service; the previous one becomes invalid.
    pub(super) fn new_control_token(&self) -> anyhow::Result<Secret> {
        let keys = DataDir::new(&self.dir).keys();
        create_private(&keys)?;
        refuse_loose_mode(&keys, "700")?;
        let random: Zeroizing<[u8; 32]> = Zeroizing::new(random_bytes()?);
        let token = Secret::new(format!("ct_{}", HEXLOWER.encode(&random[..])));
        let line = Zeroizing::new(format!("{}\n", token.reveal()));
        write_private(&self.control_token(), line.as_bytes())?;
        Ok(token)
    }

    /// The files of this directory, and this binary, that no sandbox opens.
    pub(crate) fn guarded(&self) -> GuardedPaths {
        let own = [LOCK, SOCKET, EXTERNAL_LEDGER].map(|name| self.dir.join(name));
        let keys = DataDir::new(&self.dir).keys();
        let guarded = GuardedPaths {
            kept: std::env::current_exe().into_iter().collect(),
            spare: Some(self.dir.join(TEMPORARY)),
            ..GuardedPaths::default()
        };
        guarded.and_hidden(own).and_hidden([keys])
    }

    /// Removes temporary files of plugins from earlier starts.
    pub(super) fn clear_temporary(&self) {
        // The directory rarely exists, and leftover files are harmless.
        let _ = std::fs::remove_dir_all(self.dir.join(TEMPORARY));
    }

    /// The pid of the running service; 0 if it is not known.
    pub(crate) fn service_pid(&self) -> Option<u32> {
        lock::holder(&self.dir.join(LOCK))
    }

    /// Creates and locks the directory. Fails if another service holds the lock.
    pub(crate) fn lock(&self) -> anyhow::Result<DataLock> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .with_context(|| format!("cannot create the directory {}", self.dir.display()))?;
        DataLock::state(&self.dir.join(LOCK), &self.dir.display().to_string())
    }

    /// The node name of this directory's service in a shared database. The holder of the lock is the only one with this name, so
    /// jobs that run under it at a start are stale and recovered at once. The name is random, because host names and paths are
    /// not unique.
    pub(crate) fn node(&self, _lock: &DataLock) -> anyhow::Result<String> {
        drawn_once(&self.dir)
    }

    /// Records that the jobs are in the store of a server, without its password.
    pub(crate) fn record_external_ledger(
        &self,
        _lock: &DataLock,
        place: &LedgerLocation,
    ) -> anyhow::Result<()> {
        let place = format!("{}\n", place.noted());
        write_private(&self.dir.join(EXTERNAL_LEDGER), place.as_bytes())
    }

    /// The store of the server that holds the jobs, if the last service here was an embedded one.
    pub(crate) fn external_ledger(&self) -> anyhow::Result<Option<String>> {
        self.note(EXTERNAL_LEDGER)
    }

    /// Takes the ledger of this directory into use. Returns where the jobs were stored before.
    pub(crate) fn use_own_ledger(
        &self,
        _open: &AutomationLedger,
    ) -> anyhow::Result<Option<String>> {
        let before = self.external_ledger()?;
        remove_note(&self.dir.join(EXTERNAL_LEDGER))?;
        Ok(before)
    }

    /// Fails if the jobs are in the store of a server.
    pub(crate) fn require_own_ledger(&self, hint: &str) -> anyhow::Result<()> {
        let Some(place) = self.external_ledger()? else {
            return Ok(());
        };
        let message = format!(
            "the jobs of this configuration are in {place}, the store of a `consign serve --config`"
        );
        let context = json!({"ledger": place});
        Err(Failure::failed(message).hint(hint).context(context).into())
    }

    fn note(&self, name: &str) -> anyhow::Result<Option<String>> {
        read_note(&self.dir.join(name))
    }
}

/// The ledger file of the state directory, opened exclusively by this process.
#[derive(Debug)]
pub(crate) struct AutomationLedger {
    pub(crate) engine: Engine,
    pub(crate) ledger: OpenLedger,
    stop: watch::Sender<bool>,
    timekeeping: JoinHandle<()>,
    /// Recreates lock files that were removed.
    lock_keeping: JoinHandle<Failure>,
    _locks: Vec<Arc<DataLock>>,
}

impl AutomationLedger {
    /// Takes the lock, then opens the ledger and creates what is missing. The keys are stored beside it, as in a server's data
    /// directory.
    pub(crate) async fn open(state: &StateDir, allowed: BeginArgs) -> anyhow::Result<Self> {
        let lock = Arc::new(state.lock()?);
        let place = LedgerLocation::File(state.ledger.clone());
        let ledger_lock = place.lock()?.map(Arc::new);
        let data = DataDir::new(&state.dir);
        allowed.refuse_loss_of(&place, &data).await?;
        let secrets = Secrets::open(&data, &Overrides::default(), place.holds().await?)?;
        let clock = place.clock(allowed).await?;
        let node = i64::from(u32::from_le_bytes(random_bytes()?));
        let ledger = place.open(clock.clone(), node).await?;
        begin::note_made(&place, &data)?;
        let engine = ledger.engine(&clock, &secrets, CLEANUP_INTERVAL)?;
        engine.check_seal().await?;
        let locks: Vec<_> = [Some(lock), ledger_lock].into_iter().flatten().collect();
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
            lock_keeping: tokio::spawn(lock::until_taken(locks.clone())),
            _locks: locks,
        })
    }

    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        self.timekeeping.await.context("the timekeeper panicked")?;
        self.lock_keeping.abort();
        self.ledger.close();
        if self.ledger.is_lost() {
            return Err(self.ledger.loss().into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_another_store_tells_no_password_and_keeps_the_ledger_here_closed() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir {
            dir: folder.path().to_owned(),
            ledger: folder.path().join("state.db"),
        };
        let lock = state.lock().unwrap();
        assert_eq!(state.external_ledger().unwrap(), None);
        state.require_own_ledger("").unwrap();
        let place = LedgerLocation::end("postgres://ada:hidden@127.0.0.1/db", None).unwrap();
        state.record_external_ledger(&lock, &place).unwrap();
        let noted = state.external_ledger().unwrap();
        assert_eq!(noted.as_deref(), Some("postgres://127.0.0.1/db"));
        let refused = state.require_own_ledger("").unwrap_err().to_string();
        assert!(refused.contains("postgres://127.0.0.1/db"), "{refused}");
    }
}
