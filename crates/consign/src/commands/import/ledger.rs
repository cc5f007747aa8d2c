//! The ledger that an import writes to, opened directly because no server may run meanwhile.
//!
//! Invariant: a rehearsal changes nothing: it reads the database if there is one, makes no secrets
//! and writes nothing; without a database it works on an empty one in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use consign_engine::{Engine, EngineClock, Options, SealKey, SharedStore, SystemTimes};
use consign_faces::intent::settings::Settings;
use consign_kernel::receipt::Signer;
use consign_store::memory::Memory;
use consign_store::sqlite::{self, FileKind, QUEUE_REQUESTS_MAX, Sqlite, identify};

use crate::data_dir::DataDir;
use crate::lock::DataLock;
use crate::place::Place;
use crate::secrets::{self, Name, Overrides, Secret, Secrets};
use crate::serve::begin::{self, BeginArgs};

/// An engine, and the lock that keeps servers away while it lives.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) engine: Engine,
    /// Secrets that had to be made for it.
    pub(super) made: Vec<Name>,
    sqlite: Option<Arc<Sqlite>>,
    _locks: Vec<DataLock>,
}

impl Ledger {
    /// The real one; made if missing.
    pub(super) async fn open(
        data: &DataDir,
        path: &Path,
        settings: &Settings,
        allowed: BeginArgs,
    ) -> anyhow::Result<Self> {
        data.create()?;
        let locks = vec![DataLock::acquire(data)?, DataLock::database(path)?];
        let place = Place::File(path.to_owned());
        allowed.refuse_loss(&place, data).await?;
        allowed.refuse_future(&place, Sqlite::last_time(path)?, SystemTimes::own_wall())?;
        let seal_key = std::env::var("CONSIGN_SEAL_KEY").ok().map(Secret::new);
        let overrides = Overrides::new(settings, seal_key);
        let secrets = Secrets::open(data, &overrides, secrets::Ledger::at(path)?)?;
        let keys = Keys {
            main_key: secrets.bus_secret.reveal().to_owned(),
            seal: SealKey::new(*secrets.seal_key.reveal()),
            signer: Signer::from_seed(secrets.receipt_seed.reveal()),
        };
        let opened = Self::on_file(path, keys, settings, locks, secrets.made)?;
        begin::note_made(&place, data)?;
        Ok(opened)
    }

    /// One to rehearse on.
    pub(super) fn rehearse(
        data: &DataDir,
        path: &Path,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let main_key = match &settings.bus_secret {
            Some(secret) => Some(secret.clone()),
            None => secrets::read(data, Name::BusSecret)?,
        };
        // Nothing is sealed or signed in a rehearsal, so these keys are never used.
        let keys = Keys {
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
        keys: Keys,
        settings: &Settings,
        locks: Vec<DataLock>,
        made: Vec<Name>,
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

    /// Finishes what waits; everything answered before is durable anyway.
    pub(super) fn close(self) {
        if let Some(sqlite) = &self.sqlite {
            sqlite.close();
        }
    }
}

struct Keys {
    main_key: String,
    seal: SealKey,
    signer: Signer,
}

fn engine(
    store: SharedStore,
    clock: Arc<EngineClock>,
    keys: Keys,
    settings: &Settings,
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
