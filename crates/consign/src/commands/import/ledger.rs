//! The ledger that an import writes to. It is opened directly, because no server may run at the
//! same time.
//!
//! Invariant: a dry run changes nothing: it reads the database if there is one, creates no secrets
//! and writes nothing; without a database it uses an empty one in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use consign_engine::{Engine, EngineClock, Options, SealKey, SharedStore, SystemTimes};
use consign_intent::settings::IntentSettings;
use consign_kernel::receipt::Signer;
use consign_store::memory::Memory;
use consign_store::sqlite::{self, FileKind, QUEUE_REQUESTS_MAX, Sqlite, identify};

use crate::data_dir::DataDir;
use crate::ledger_location::LedgerLocation;
use crate::lock::DataLock;
use crate::secrets::{self, Overrides, Secret, SecretName, Secrets};
use crate::serve::begin::{self, BeginArgs};

/// An engine, and the lock that keeps servers from starting while it exists.
#[derive(Debug)]
pub(super) struct ImportLedger {
    pub(super) engine: Engine,
    /// Secrets that were created for it.
    pub(super) made: Vec<SecretName>,
    sqlite: Option<Arc<Sqlite>>,
    _locks: Vec<DataLock>,
}

impl ImportLedger {
    /// Opens the real ledger; creates it if it is missing.
    pub(super) async fn open(
        data: &DataDir,
        path: &Path,
        settings: &IntentSettings,
        allowed: BeginArgs,
    ) -> anyhow::Result<Self> {
        data.create()?;
        let locks = vec![DataLock::acquire(data)?, DataLock::database(path)?];
        let place = LedgerLocation::File(path.to_owned());
        allowed.refuse_loss(&place, data).await?;
        allowed.refuse_future(&place, Sqlite::last_time(path)?, SystemTimes::own_wall())?;
        let seal_key = std::env::var("CONSIGN_SEAL_KEY").ok().map(Secret::new);
        let overrides = Overrides::new(settings, seal_key);
        let secrets = Secrets::open(data, &overrides, secrets::LedgerState::at(path)?)?;
        let keys = ImportKeys {
            main_key: secrets.bus_secret.reveal().to_owned(),
            seal: SealKey::new(*secrets.seal_key.reveal()),
            signer: Signer::from_seed(secrets.receipt_seed.reveal()),
        };
        let opened = Self::on_file(path, keys, settings, locks, secrets.made)?;
        begin::note_made(&place, data)?;
        Ok(opened)
    }

    /// Opens a ledger for a dry run.
    pub(super) fn rehearse(
        data: &DataDir,
        path: &Path,
        settings: &IntentSettings,
    ) -> anyhow::Result<Self> {
        let main_key = match &settings.bus_secret {
            Some(secret) => Some(secret.clone()),
            None => secrets::read(data, SecretName::BusSecret)?,
        };
        // A dry run seals and signs nothing, so these keys are never used.
        let keys = ImportKeys {
            main_key: main_key.map_or_else(String::new, |secret| secret.reveal().to_owned()),
            seal: SealKey::new(random()?),
            signer: Signer::from_seed(&random()?),
        };
        if identify(path)? == FileKind::Consign {
            let lock = DataLock::database(path)?;
            return Self::on_file(path, keys, settings, vec![lock], Vec::new());
        }
        let clock = Arc::new(EngineClock::start(None));
        let store: SharedStore = Arc::new(Memory::new(Arc::clone(&clock) as _));
        Ok(Self {
            engine: engine(store, clock, keys, settings)?,
            made: Vec::new(),
            sqlite: None,
            _locks: Vec::new(),
        })
    }

    fn on_file(
        path: &Path,
        keys: ImportKeys,
        settings: &IntentSettings,
        locks: Vec<DataLock>,
        made: Vec<SecretName>,
    ) -> anyhow::Result<Self> {
        let clock = Arc::new(EngineClock::start(Sqlite::last_time(path)?));
        let sqlite = Arc::new(Sqlite::open(sqlite::Options {
            path: path.to_owned(),
            clock: Arc::clone(&clock) as _,
            queue_max: QUEUE_REQUESTS_MAX,
        })?);
        Ok(Self {
            engine: engine(Arc::clone(&sqlite) as _, clock, keys, settings)?,
            made,
            sqlite: Some(sqlite),
            _locks: locks,
        })
    }

    /// Finishes pending work; every acknowledged write is durable already.
    pub(super) fn close(self) {
        if let Some(sqlite) = &self.sqlite {
            sqlite.close();
        }
    }
}

struct ImportKeys {
    main_key: String,
    seal: SealKey,
    signer: Signer,
}

fn engine(
    store: SharedStore,
    clock: Arc<EngineClock>,
    keys: ImportKeys,
    settings: &IntentSettings,
) -> anyhow::Result<Engine> {
    Ok(Engine::new(Options {
        store,
        clock: Arc::clone(&clock) as _,
        wall: clock,
        entropy: random()?,
        seal: keys.seal,
        signer: keys.signer,
        main_key: keys.main_key,
        cleanup_interval: Duration::from_secs(settings.cleanup_interval_s),
    }))
}

fn random() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).context("no source of random numbers")?;
    Ok(bytes)
}
