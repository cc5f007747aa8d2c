//! What all tasks of a daemon share.
//!
//! Invariant: a daemon ends once, and for the first reason.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use consign_store::inbox::Inbox;
use jiff::Timestamp;
use tokio::sync::watch;

use super::agreed_keys::AgreedKeys;
use super::event_hub::EventHub;
use super::hooks::Hooks;
use super::identity::DaemonIdentity;
use super::ipc_limits::{IpcPlaces, IpcRates, PressureWatch, RefusalLog};
use super::key_archive::KeyArchiveFile;
use super::line::BrokerLine;
use super::local_tokens::LocalTokens;
use super::log::DaemonLog;
use super::metrics::DaemonMetrics;
use super::outbox_ledger::OutboxLedger;
use super::peers::PeerDirectory;
use super::reseal::CurrentKeys;
use super::topics::TopicDirectory;
use super::{DaemonEnd, DaemonFolder, random};
use crate::config::DaemonConfig;
use crate::environment::HostEnvironment;
use crate::id::MeshSlug;
use crate::keys::{MeshPublicKey, X25519Secret};
use crate::nacl::SymmetricKey;
use crate::ulid::{MeshUlid, UlidSequence};

/// Who the daemon is in its mesh, and what opens its messages.
#[derive(Debug)]
pub(super) struct MemberKeys {
    pub(super) identity: DaemonIdentity,
    /// Opens what was encrypted to the current key and to archived ones, in the order in which they are tried.
    pub(super) secrets: Vec<X25519Secret>,
    /// Between the current key and other members.
    agreed: AgreedKeys,
}

impl MemberKeys {
    pub(super) fn new(identity: DaemonIdentity, archive: &KeyArchiveFile) -> Self {
        let mut secrets = vec![identity.key.to_x25519()];
        secrets.extend(archive.secrets(Timestamp::now()));
        Self {
            identity,
            secrets,
            agreed: AgreedKeys::default(),
        }
    }

    /// The key between the current key and a member; `None` if nothing can be encrypted to the member's key.
    pub(super) fn agreed_with(&self, member: MeshPublicKey) -> Option<Arc<SymmetricKey>> {
        self.agreed.with(self.secrets.first()?, member)
    }

    /// What opens messages that were encrypted to earlier keys.
    pub(super) fn archived(&self) -> Vec<&X25519Secret> {
        self.secrets.iter().skip(1).collect()
    }
}

/// How the connection to the broker is.
#[derive(Debug, Clone)]
pub(super) enum LinkState {
    Connecting,
    Open(Arc<BrokerLine>),
    Closed,
}

impl LinkState {
    /// The word in `brokers` of `/v1/health`.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Open(_) => "open",
            Self::Closed => "closed",
        }
    }
}

#[derive(Debug)]
pub(super) struct DaemonShared {
    pub(super) slug: MeshSlug,
    pub(super) mesh_id: String,
    /// How many meshes this user had joined at the start, this one included.
    joined_meshes: usize,
    pub(super) broker_url: String,
    pub(super) folder: DaemonFolder,
    pub(super) environment: HostEnvironment,
    pub(super) hostname: String,
    /// The hash of this machine, if it has an id.
    pub(super) host_fingerprint: Option<String>,
    /// The same for all connections of this process, so that a new one replaces the old one.
    pub(super) session_id: String,
    pub(super) log: DaemonLog,
    config: RwLock<Arc<DaemonConfig>>,
    keys: CurrentKeys,
    /// Requests that seal a message and store its row share it; a change of the key has it alone.
    pub(super) sealing: tokio::sync::RwLock<()>,
    pub(super) archive: tokio::sync::Mutex<KeyArchiveFile>,
    pub(super) hooks: Hooks,
    pub(super) metrics: DaemonMetrics,
    pub(super) outbox: OutboxLedger,
    pub(super) inbox: Arc<Inbox>,
    /// Lists of the inbox are sorted by these where the time is the same.
    inbox_ids: UlidSequence,
    pub(super) events: Arc<EventHub>,
    pub(super) peers: PeerDirectory,
    pub(super) topics: TopicDirectory,
    pub(super) tokens: LocalTokens,
    pub(super) line: watch::Sender<LinkState>,
    /// Why the broker is not connected; `None` while it is.
    line_error: Mutex<Option<String>>,
    /// Milliseconds that the broker took for the last ping; 0 before the first.
    pub(super) lag_ms: AtomicU64,
    pub(super) pressure: PressureWatch,
    pub(super) inbox_pressure: PressureWatch,
    pub(super) requests: IpcPlaces,
    pub(super) streams: IpcPlaces,
    pub(super) rates: IpcRates,
    pub(super) refusal_log: RefusalLog,
    pub(super) started: Instant,
    end: watch::Sender<Option<DaemonEnd>>,
}

/// What [`DaemonShared`] is made of.
#[derive(Debug)]
pub(super) struct DaemonParts {
    pub(super) slug: MeshSlug,
    pub(super) mesh_id: String,
    pub(super) joined_meshes: usize,
    pub(super) broker_url: String,
    pub(super) host_fingerprint: Option<String>,
    pub(super) folder: DaemonFolder,
    pub(super) environment: HostEnvironment,
    pub(super) log: DaemonLog,
    pub(super) config: DaemonConfig,
    pub(super) identity: DaemonIdentity,
    pub(super) archive: KeyArchiveFile,
    pub(super) hooks: Hooks,
    pub(super) metrics: DaemonMetrics,
    pub(super) outbox: OutboxLedger,
    pub(super) inbox: Inbox,
    pub(super) peers: PeerDirectory,
    pub(super) topics: TopicDirectory,
    pub(super) tokens: LocalTokens,
}

impl DaemonShared {
    pub(super) fn new(parts: DaemonParts) -> Self {
        let hostname = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let keys = MemberKeys::new(parts.identity, &parts.archive);
        Self {
            slug: parts.slug,
            mesh_id: parts.mesh_id,
            joined_meshes: parts.joined_meshes,
            broker_url: parts.broker_url,
            folder: parts.folder,
            environment: parts.environment,
            hostname,
            host_fingerprint: parts.host_fingerprint,
            session_id: new_ulid().to_string(),
            inbox_ids: UlidSequence::default(),
            log: parts.log,
            config: RwLock::new(Arc::new(parts.config)),
            keys: CurrentKeys::new(keys),
            sealing: tokio::sync::RwLock::default(),
            archive: tokio::sync::Mutex::new(parts.archive),
            hooks: parts.hooks,
            metrics: parts.metrics,
            outbox: parts.outbox,
            inbox: Arc::new(parts.inbox),
            events: Arc::new(EventHub::new()),
            peers: parts.peers,
            topics: parts.topics,
            tokens: parts.tokens,
            line: watch::Sender::new(LinkState::Closed),
            line_error: Mutex::default(),
            lag_ms: AtomicU64::new(0),
            pressure: PressureWatch::default(),
            inbox_pressure: PressureWatch::default(),
            requests: IpcPlaces::default(),
            streams: IpcPlaces::default(),
            rates: IpcRates::default(),
            refusal_log: RefusalLog::default(),
            started: Instant::now(),
            end: watch::Sender::new(None),
        }
    }

    pub(super) fn config(&self) -> Arc<DaemonConfig> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&config)
    }

    /// The bytes that the outbox may have.
    pub(super) fn disk_limit(&self) -> u64 {
        self.config().disk_limit(self.joined_meshes).0
    }

    pub(super) fn set_config(&self, config: DaemonConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    pub(super) fn keys(&self) -> Arc<MemberKeys> {
        self.keys.get()
    }

    pub(super) fn set_keys(&self, keys: MemberKeys) {
        self.keys.set(keys);
    }

    /// The keys for a task that has nothing else of the daemon.
    pub(super) fn current_keys(&self) -> CurrentKeys {
        self.keys.clone()
    }

    /// The connection, if it is open.
    pub(super) fn line(&self) -> Option<Arc<BrokerLine>> {
        match &*self.line.borrow() {
            LinkState::Open(line) => Some(Arc::clone(line)),
            LinkState::Connecting | LinkState::Closed => None,
        }
    }

    /// Waits for a connection. `None` when the daemon ends.
    pub(super) async fn until_line(&self) -> Option<Arc<BrokerLine>> {
        let mut states = self.line.subscribe();
        let opened = async {
            loop {
                if let LinkState::Open(line) = &*states.borrow_and_update() {
                    return Some(Arc::clone(line));
                }
                states.changed().await.ok()?;
            }
        };
        tokio::select! {
            line = opened => line,
            _ = self.until_end() => None,
        }
    }

    /// Waits until this connection is not the current one any more.
    pub(super) async fn until_other_line(&self, line: &Arc<BrokerLine>) {
        let is_other = |state: &LinkState| match state {
            LinkState::Open(current) => !Arc::ptr_eq(current, line),
            LinkState::Connecting | LinkState::Closed => true,
        };
        let mut states = self.line.subscribe();
        // The sender is a part of this value, so it is there.
        let _ = states.wait_for(is_other).await;
    }

    /// Waits until the broker confirms the time, and returns it in milliseconds since 1970. `None` when the daemon ends.
    ///
    /// A wall clock that is wrong makes everything look old. A broker refuses a hello of another time, so while a connection is
    /// open the clock was right at its start; the earlier of the two is never later than the true time.
    pub(super) async fn until_time_is_agreed(&self) -> Option<i64> {
        let line = self.until_line().await?;
        Some(line.now_ms().min(wall_ms()))
    }

    /// The name that peers see, as far as it is known.
    pub(super) fn display_name(&self) -> Option<String> {
        let of_broker = self.line().map(|line| line.display_name().to_owned());
        of_broker.or_else(|| self.keys().identity.display_name.clone())
    }

    /// Why the broker is not connected, as far as it is known.
    pub(super) fn line_error(&self) -> Option<String> {
        let error = self.line_error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_line_error(&self, error: Option<String>) {
        *self
            .line_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Ends the daemon.
    pub(super) fn end(&self, end: DaemonEnd) {
        self.end.send_if_modified(|first| {
            let is_first = first.is_none();
            if is_first {
                *first = Some(end);
            }
            is_first
        });
    }

    pub(super) fn is_ending(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// The id of the next item of the inbox.
    pub(super) fn inbox_id(&self) -> MeshUlid {
        let ms = wall_ms().unsigned_abs();
        self.inbox_ids
            .next(ms, u128::from_le_bytes(random::bytes()))
    }

    /// Resolves when the daemon ends, with the reason.
    pub(super) async fn until_end(&self) -> DaemonEnd {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_else(DaemonEnd::stopped),
            Err(_) => DaemonEnd::stopped(),
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn wall_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// A new id that sorts by its time.
pub(super) fn new_ulid() -> MeshUlid {
    let ms = Timestamp::now().as_millisecond().unsigned_abs();
    MeshUlid::new(ms, u128::from_le_bytes(random::bytes()))
}
