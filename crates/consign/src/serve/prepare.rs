//! Everything that is read, checked and locked before the ledger is opened, and the opening itself.

use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Engine, EngineClock};
use consign_intent::settings::IntentSettings;

use super::embedded_automation::PreparedAutomation;
use super::ledger::{OpenLedger, random_bytes};
use super::reserve::DiskReserve;
use super::site_settings::SiteSettings;
use super::{ServeArgs, begin, node, site};
use crate::config::protocol_settings;
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::ledger_location::{LedgerFlags, LedgerLocation};
use crate::lock::DataLock;
use crate::secrets::{Overrides, Secret, Secrets};

/// The settings, the locks and the secrets of a server that has not started yet.
pub(super) struct Prepared {
    pub(super) settings: IntentSettings,
    pub(super) site: Option<SiteSettings>,
    pub(super) automation: Option<PreparedAutomation>,
    pub(super) data: DataDir,
    pub(super) lock: Arc<DataLock>,
    pub(super) database_lock: Option<Arc<DataLock>>,
    pub(super) location: LedgerLocation,
    /// The ledger, if it is not in the data directory.
    pub(super) elsewhere: Option<String>,
    pub(super) reserve: Option<DiskReserve>,
    pub(super) secrets: Secrets,
}

/// The open ledger and its engine.
pub(super) struct StartedLedger {
    pub(super) open: OpenLedger,
    pub(super) engine: Engine,
    pub(super) clock: Arc<EngineClock>,
    /// The random number of this server on the ledger.
    pub(super) node_id: i64,
    /// Several servers may use the ledger.
    pub(super) shared: bool,
}

impl Prepared {
    pub(super) async fn new(args: &ServeArgs) -> anyhow::Result<Self> {
        let settings = protocol_settings()?;
        let site = site::settings(args.site_file.as_deref())?;
        refuse_open_plain(args, &settings)?;
        let automation = args
            .config
            .as_deref()
            .map(PreparedAutomation::load)
            .transpose()?;
        let data = args.data.directory();
        data.refuse_writable_by_others()?;
        data.create()?;
        // Another user may have created it meanwhile.
        data.refuse_writable_by_others()?;
        let named = LedgerFlags {
            store: args.store.as_deref(),
            password_file: args.store_password_file.as_deref(),
        };
        let location = LedgerLocation::of(named, settings.db_path.as_deref(), &data)?;
        let lock = Arc::new(DataLock::acquire(&data)?);
        data.remove_address(&lock)?;
        let database_lock = location.lock()?.map(Arc::new);
        args.begin.refuse_loss(&location, &data).await?;
        let reserve = match &location {
            LedgerLocation::File(path) => Some(DiskReserve::beside(path)),
            LedgerLocation::Database(_) => None,
        };
        if let Some(reserve) = &reserve {
            // A start has to write, and on a full disk this is the only space.
            reserve.release();
        }
        let seal_key = std::env::var("CONSIGN_SEAL_KEY").ok().map(Secret::new);
        let overrides = Overrides::new(&settings, seal_key);
        let secrets = Secrets::open(&data, &overrides, location.holds().await?)?;
        Ok(Self {
            elsewhere: location.unless_of(&data),
            settings,
            site,
            automation,
            data,
            lock,
            database_lock,
            location,
            reserve,
            secrets,
        })
    }

    pub(super) async fn open_ledger(&self, args: &ServeArgs) -> anyhow::Result<StartedLedger> {
        let Self {
            data,
            location,
            lock,
            ..
        } = self;
        let clock = location.clock(args.begin).await?;
        let node_id = i64::from(u32::from_le_bytes(random_bytes()?));
        if let Some(automation) = &self.automation {
            automation.note_ledger(location).await?;
        }
        let open = location.open(clock.clone(), node_id).await?;
        begin::note_made(location, data)?;
        let cleanup_interval = Duration::from_secs(self.settings.cleanup_interval_s);
        let engine = open.engine(&clock, &self.secrets, cleanup_interval)?;
        engine.check_seal().await?;
        let shared = matches!(open, OpenLedger::Database(_));
        if shared {
            node::require_shared_secrets(&engine, args, data).await?;
        }
        data.note_ledger(lock, self.elsewhere.as_deref())?;
        Ok(StartedLedger {
            open,
            engine,
            clock,
            node_id,
            shared,
        })
    }
}

/// Without TLS, keys would be sent in plain text.
fn refuse_open_plain(args: &ServeArgs, settings: &IntentSettings) -> Result<(), Failure> {
    let safe = args.listen.ip().is_loopback()
        || args.tls_cert.is_some()
        || settings.trust_proxy
        || args.insecure;
    if safe {
        return Ok(());
    }
    Err(Failure::usage(format!("{} can be reached by other machines, and without TLS keys are sent in plain text", args.listen))
        .hint("give --tls-cert and --tls-key, set BUS_TRUST_PROXY=true behind a proxy with TLS, or pass --insecure"))
}
