//! The directory of an automation service: the ledger, the lock of the one service that works on it, keys, and the control socket.
//!
//! Invariant: where the last service kept its jobs in the store of a server, a note says so, and nobody opens the ledger of this
//! directory in its place until a service begins it on purpose.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use consign_automation::config::{Config, STAND_IN};
use consign_automation::plugin::confine::Guarded;
use consign_engine::{Engine, Timekeeper};
use data_encoding::HEXLOWER;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use crate::commands::automation::config::tree::Tree;
use crate::data_dir::{DataDir, create_private, drawn_once, read_note, remove_note, write_private};
use crate::failure::{Exit, Failure};
use crate::ledger_location::LedgerLocation;
use crate::lock::{self, DataLock};
use crate::secrets::{Overrides, Secret, Secrets, refuse_loose_mode};
use crate::serve::begin::{self, BeginArgs};
use crate::serve::ledger::{OpenLedger, random_bytes};

const LOCK: &str = "ductile.lock";
const SOCKET: &str = "ductile.sock";
const ELSEWHERE: &str = "ledger_elsewhere";
const CONTROL_TOKEN: &str = "control_token";
/// Of plugins in a sandbox that cannot have the usual directory.
const TEMPORARY: &str = "tmp";
/// What to do about a ledger that only another server opens.
pub(crate) const ASK_ITS_SERVER: &str = "start that server again with `consign serve --config`; without it, `consign store backup` and `consign store check` work on its store, and `system start` begins a new ledger";
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

    /// That of a tree whose variables may be unset here, as long as the place of the directory needs none of them.
    pub(crate) fn at(tree: &Tree) -> anyhow::Result<Self> {
        let config = tree.with_stand_ins().peek()?;
        let path = config.state_path.to_string_lossy();
        if path.contains(STAND_IN) {
            let message = "`state.path` needs a variable that is not set";
            let hint = "set it as it is set for the service";
            return Err(Failure::new(Exit::Config, message).hint(hint).into());
        }
        Ok(Self::of(&config))
    }

    pub(crate) fn ledger(&self) -> &Path {
        &self.ledger
    }

    /// Where a running service takes commands.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// What whoever speaks to the socket must send. It lies where no sandbox lets a plugin read.
    pub(super) fn control_token(&self) -> PathBuf {
        DataDir::new(&self.dir).key_file(CONTROL_TOKEN)
    }

    /// Makes the token of a service that begins; that of one before is void.
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

    /// What of this directory, and of our own program, is closed to plugins in a sandbox.
    pub(crate) fn guarded(&self) -> Guarded {
        let own = [LOCK, SOCKET, ELSEWHERE].map(|name| self.dir.join(name));
        let keys = DataDir::new(&self.dir).keys();
        let guarded = Guarded {
            kept: std::env::current_exe().into_iter().collect(),
            spare: Some(self.dir.join(TEMPORARY)),
            ..Guarded::default()
        };
        guarded.and_hidden(own).and_hidden([keys])
    }

    /// What plugins of an earlier start left in their temporary directories.
    pub(super) fn clear_temporary(&self) {
        // It is mostly not there, and what cannot be removed is in nobody's way.
        let _ = std::fs::remove_dir_all(self.dir.join(TEMPORARY));
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

    /// The name of this directory's service in a shared database. Whoever holds the lock is the only one of that name, so the jobs
    /// that run under it at a start are left over and taken back at once. Drawn once: host names and paths are the same on many machines.
    pub(crate) fn node(&self, _lock: &DataLock) -> anyhow::Result<String> {
        drawn_once(&self.dir)
    }

    /// Notes that the jobs lie in the store of a server, without its password.
    pub(crate) fn note_elsewhere(
        &self,
        _lock: &DataLock,
        place: &LedgerLocation,
    ) -> anyhow::Result<()> {
        let place = format!("{}\n", place.noted());
        write_private(&self.dir.join(ELSEWHERE), place.as_bytes())
    }

    /// The store of a server that holds the jobs, if the last service here was one beside the Intent Protocol.
    pub(crate) fn elsewhere(&self) -> anyhow::Result<Option<String>> {
        self.noted(ELSEWHERE)
    }

    /// From now on the jobs lie here. Gives where those of before lie.
    pub(crate) fn begin(&self, _open: &Open) -> anyhow::Result<Option<String>> {
        let before = self.elsewhere()?;
        remove_note(&self.dir.join(ELSEWHERE))?;
        Ok(before)
    }

    /// Refuses to take the ledger of this directory for that of the service.
    pub(crate) fn require_here(&self, hint: &str) -> anyhow::Result<()> {
        let Some(place) = self.elsewhere()? else {
            return Ok(());
        };
        let message = format!(
            "the jobs of this configuration lie in {place}, the store of a `consign serve --config`"
        );
        let context = json!({"ledger": place});
        Err(Failure::failed(message).hint(hint).context(context).into())
    }

    fn noted(&self, name: &str) -> anyhow::Result<Option<String>> {
        read_note(&self.dir.join(name))
    }
}

/// A ledger that is a file of the state directory, open for this process alone.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) engine: Engine,
    pub(crate) ledger: OpenLedger,
    stop: watch::Sender<bool>,
    timekeeping: JoinHandle<()>,
    /// Makes lock files again that somebody removes.
    keeping: JoinHandle<Failure>,
    _locks: Vec<Arc<DataLock>>,
}

impl Open {
    /// Takes the lock, then opens the ledger, making what is missing. The keys lie beside it, as in a server's data directory.
    pub(crate) async fn new(state: &StateDir, allowed: BeginArgs) -> anyhow::Result<Self> {
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
            keeping: tokio::spawn(lock::until_taken(locks.clone())),
            _locks: locks,
        })
    }

    pub(crate) async fn close(self) -> anyhow::Result<()> {
        self.stop.send_replace(true);
        self.timekeeping
            .await
            .context("the timekeeper ended by a panic")?;
        self.keeping.abort();
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
        assert_eq!(state.elsewhere().unwrap(), None);
        state.require_here("").unwrap();
        let place = LedgerLocation::end("postgres://ada:hidden@127.0.0.1/db", None).unwrap();
        state.note_elsewhere(&lock, &place).unwrap();
        let noted = state.elsewhere().unwrap();
        assert_eq!(noted.as_deref(), Some("postgres://127.0.0.1/db"));
        let refused = state.require_here("").unwrap_err().to_string();
        assert!(refused.contains("postgres://127.0.0.1/db"), "{refused}");
    }
}
