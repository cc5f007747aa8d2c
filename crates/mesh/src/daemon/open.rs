//! The start of a daemon and its life until it ends.
//!
//! Ordering: membership, folder, lock, settings, files, ledger, inbox, listeners, connection. What fails before the listeners
//! ends the daemon; the broker may come later.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::StoreError;
use consign_store::inbox::Inbox;
use rustix::fs::Mode;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use zeroize::Zeroizing;

use super::folder::FolderLock;
use super::hooks::{HOOKS_FILE, HookKind, HookOptions, HookRun, Hooks, IsolationPrograms};
use super::host::MachineRoot;
use super::host_check::{HostCheck, HostCheckError, check_host, told_to_broker};
use super::identity::{DaemonIdentity, IdentityOptions};
use super::inbound::INBOUND_MAX;
use super::ipc_server::IpcServer;
use super::key_archive::KeyArchiveFile;
use super::local_tokens::LocalTokens;
use super::log::{DaemonLog, MeshLogLevel, MeshLogOptions};
use super::metrics::DaemonMetrics;
use super::outbox_ledger::OutboxLedger;
use super::peers::PeerDirectory;
use super::private_file::{self, PUBLIC};
use super::shared::{DaemonParts, DaemonShared};
use super::topics::TopicDirectory;
use super::{
    DaemonEnd, DaemonFolder, DaemonOptions, connection, drain, hook_runs, inbound, intents, peers,
    rebuild, rename, retention,
};
use crate::close::DaemonExit;
use crate::config::{DaemonConfig, FsyncMode};
use crate::environment::{self, HostEnvironment, IdentityMode};
use crate::id::DisplayName;
use crate::joined::{JoinedMesh, JoinedMeshes};

/// The signal of a file that would become too large. Its default is to end the process, and the daemon answers 507 instead.
const SIGXFSZ: i32 = 25;

/// A daemon whose files are open.
#[derive(Debug)]
pub(super) struct OpenDaemon {
    shared: Arc<DaemonShared>,
    server: IpcServer,
    hook_runs: mpsc::UnboundedReceiver<HookRun>,
    ttl: Option<Duration>,
    // Last, because it removes the files that say that a daemon runs.
    lock: FolderLock,
}

pub(super) async fn open(options: DaemonOptions) -> Result<OpenDaemon, DaemonEnd> {
    // Databases and sockets get their modes from it.
    rustix::process::umask(Mode::from_raw_mode(0o077));
    survive_full_disks();
    let (mesh, joined_meshes) = joined_mesh(&options)?;
    let folder = options.folder();
    folder.create().map_err(|error| failed(&folder, &error))?;
    let lock = folder.lock()?;
    folder.check_schema()?;
    let config = config(&options, &folder)?;
    let log = DaemonLog::open(MeshLogOptions {
        mesh: options.mesh.to_string(),
        level: level(&config),
        file: Some(folder.log()),
        on_stderr: options.foreground,
    });
    let log = log.map_err(|error| failed(&folder, &error))?;
    // Events of the ledger and of the listeners go into the same log. A second daemon of one process, as in tests, has its own.
    let _ = tracing_subscriber::registry().with(log.clone()).try_init();
    if let Err(error) = std::fs::set_permissions(folder.log(), Permissions::from_mode(PUBLIC)) {
        return Err(failed(&folder, &error));
    }
    warn_of_choices(&config, options.environment, &log);
    let metrics = DaemonMetrics::new(options.mesh.as_str());
    let host_fingerprint = check_machine(&folder, &config, &log, &metrics)?;
    let (identity, archive) = identity(&options, &mesh, &folder, &config, &log)?;
    let hooks = HookOptions {
        directory: folder.path().to_owned(),
        mesh: options.mesh.to_string(),
        socket: folder.sock(),
        secret_folder: options
            .joined_meshes()
            .parent()
            .map_or_else(|| folder.path().to_owned(), Path::to_owned),
        enabled: config.hooks_enabled(&options.environment),
        concurrency: config.hooks.concurrency,
        default_timeout_s: config.hooks.default_timeout_s,
        stdin_limit_bytes: config.hooks.stdin_limit_bytes,
        programs: IsolationPrograms::default(),
    };
    let (hooks, hook_runs) = Hooks::load(hooks, &log, &metrics).map_err(|error| {
        let path = folder.hooks().join(HOOKS_FILE);
        DaemonEnd::new(
            DaemonExit::BadConfig,
            format!("{}: {error}", path.display()),
        )
    })?;
    let outbox = open_outbox(&folder, &options, &log).await?;
    let inbox = open_inbox(&folder, &log)?;
    let topics = TopicDirectory::open(&folder.topic_subscriptions(), &folder.topic_keys())
        .map_err(|error| failed(&folder, &error))?;
    let peers =
        PeerDirectory::open(&folder.member_names()).map_err(|error| failed(&folder, &error))?;
    let tokens =
        LocalTokens::open(&folder.local_token()).map_err(|error| failed(&folder, &error))?;
    let tokens = match &config.ipc.http_external_auth {
        // Joining an absolute path gives that path.
        Some(file) => tokens
            .with_external(&folder.path().join(file))
            .map_err(|why| {
                let why = format!("ipc.http_external_auth: {why}");
                DaemonEnd::new(DaemonExit::BadConfig, why)
            })?,
        None => tokens,
    };
    let broker_url = options.broker_url.clone();
    let shared = Arc::new(DaemonShared::new(DaemonParts {
        slug: options.mesh.clone(),
        mesh_id: mesh.mesh_id.clone(),
        joined_meshes,
        broker_url: broker_url.unwrap_or_else(|| mesh.broker_url.clone()),
        host_fingerprint,
        environment: options.environment,
        folder,
        log,
        config,
        identity,
        archive,
        hooks,
        metrics,
        outbox,
        inbox,
        peers,
        topics,
        tokens,
    }));
    let server = IpcServer::bind(&shared)?;
    Ok(OpenDaemon {
        shared,
        server,
        hook_runs,
        ttl: options.ttl,
        lock,
    })
}

impl OpenDaemon {
    pub(super) async fn run(self, shutdown: impl Future) -> DaemonEnd {
        let Self {
            shared,
            server,
            hook_runs,
            ttl,
            lock,
        } = self;
        let (pushes, pushed) = mpsc::channel(INBOUND_MAX);
        // Tasks that run until the daemon ends, and those that end when their work is done.
        let mut tasks = JoinSet::new();
        let mut finite = JoinSet::new();
        let timed = Arc::clone(&shared);
        tasks.spawn(async move {
            let ending = Arc::clone(&timed);
            let end = async move {
                ending.until_end().await;
            };
            timed.outbox.keep_time(end).await;
        });
        let lost = Arc::clone(&shared);
        tasks.spawn(async move {
            tokio::select! {
                why = lost.outbox.until_lost() => {
                    let text = format!("{}: {why}; start the daemon again", lost.folder.outbox().display());
                    lost.log.error("outbox_lost", &json!({"error": text}));
                    lost.end(DaemonEnd::general(text));
                }
                _ = lost.until_end() => {}
            }
        });
        tasks.spawn(connection::keep_connected(Arc::clone(&shared), pushes));
        tasks.spawn(drain::drain(Arc::clone(&shared)));
        tasks.spawn(intents::drain(Arc::clone(&shared)));
        tasks.spawn(inbound::receive(Arc::clone(&shared), pushed));
        tasks.spawn(peers::follow(Arc::clone(&shared)));
        finite.spawn(rename::announce(Arc::clone(&shared)));
        finite.spawn(rebuild::rebuild(Arc::clone(&shared)));
        tasks.spawn(retention::keep(Arc::clone(&shared)));
        tasks.spawn(retention::clean_archive(Arc::clone(&shared)));
        tasks.spawn(hook_runs::follow(Arc::clone(&shared), hook_runs));
        server.spawn(&shared, &mut tasks);
        let fields = json!({"pid": std::process::id(), "broker": shared.broker_url});
        shared.log.info("daemon_ready", &fields);
        let event = json!({"mesh": shared.slug.as_str(), "pid": std::process::id()});
        shared.fire(HookKind::Startup, event);
        let over = async {
            match ttl {
                Some(ttl) => tokio::time::sleep(ttl).await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            // A task ends first if the daemon ends.
            biased;
            end = shared.until_end() => end,
            _ = shutdown => DaemonEnd::stopped(),
            () = over => DaemonEnd::stopped(),
            why = first_failure(&mut tasks, &mut finite) => DaemonEnd::general(why),
        };
        shared.end(end);
        let end = shared.until_end().await;
        if end.exit == DaemonExit::General {
            let fields = json!({"error": end.message});
            shared.log.error("the daemon has failed", &fields);
        }
        while let Some(ended) = tasks.join_next().await {
            log_panic(&shared, ended);
        }
        while let Some(ended) = finite.join_next().await {
            log_panic(&shared, ended);
        }
        shared.outbox.close();
        let fields = json!({"status": end.status(), "reason": end.message});
        shared.log.info("the daemon has ended", &fields);
        drop(lock);
        end
    }
}

/// Resolves when a task has panicked, or when one has ended that runs as long as the daemon. A daemon without one of its tasks
/// would go on to answer and would, for example, store nothing any more.
async fn first_failure(lasting: &mut JoinSet<()>, finite: &mut JoinSet<()>) -> String {
    loop {
        tokio::select! {
            Some(ended) = lasting.join_next() => {
                return match ended {
                    Ok(()) => "a task of the daemon has ended before the daemon".to_owned(),
                    Err(error) => failed_task(&error),
                };
            }
            Some(ended) = finite.join_next() => {
                if let Err(error) = ended {
                    return failed_task(&error);
                }
            }
            else => std::future::pending().await,
        }
    }
}

fn failed_task(error: &JoinError) -> String {
    format!("a task of the daemon failed: {error}; start the daemon again")
}

fn log_panic(shared: &DaemonShared, ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        let fields = json!({"error": error.to_string()});
        shared.log.error("a task of the daemon failed", &fields);
    }
}

/// Without this, a write beyond the limit of file sizes would end the process instead of failing.
fn survive_full_disks() {
    // The handler stays installed when the stream is dropped.
    let _ = signal(SignalKind::from_raw(SIGXFSZ));
}

fn failed(folder: &DaemonFolder, error: &io::Error) -> DaemonEnd {
    DaemonEnd::general(format!("{}: {error}", folder.path().display()))
}

/// The mesh of this daemon, and how many are joined.
fn joined_mesh(options: &DaemonOptions) -> Result<(JoinedMesh, usize), DaemonEnd> {
    if let Some(joined) = &options.joined {
        return Ok((joined.clone(), 1));
    }
    let path = options.joined_meshes();
    let slug = options.mesh.as_str();
    let no_mesh = |why: String| DaemonEnd::new(DaemonExit::NoMesh, why);
    let text = private_file::read(&path)
        .map_err(|error| no_mesh(format!("{}: {error}", path.display())))?;
    let text = text.map(Zeroizing::new).ok_or_else(|| {
        no_mesh(format!(
            "{} does not exist; join a mesh first",
            path.display()
        ))
    })?;
    let meshes = JoinedMeshes::parse(&text).map_err(|error| {
        let why = format!("{}: {error}", path.display());
        DaemonEnd::new(DaemonExit::BadConfig, why)
    })?;
    let found = meshes.get(slug).cloned();
    let found = found.ok_or_else(|| {
        no_mesh(format!(
            "{} has no mesh {slug}; join it first",
            path.display()
        ))
    })?;
    Ok((found, meshes.meshes.len()))
}

/// Reads `config.toml`. The first start writes one that names the mesh.
fn config(options: &DaemonOptions, folder: &DaemonFolder) -> Result<DaemonConfig, DaemonEnd> {
    let path = folder.config();
    let slug = &options.mesh;
    let bad =
        |why: String| DaemonEnd::new(DaemonExit::BadConfig, format!("{}: {why}", path.display()));
    let found = private_file::read(&path).map_err(|error| bad(error.to_string()))?;
    let text = if let Some(text) = found {
        text
    } else {
        let text = format!("[daemon]\nmesh = \"{slug}\"\n");
        private_file::replace(&path, text.as_bytes(), PUBLIC)
            .map_err(|error| bad(error.to_string()))?;
        text
    };
    let config = DaemonConfig::parse(&text).map_err(|error| bad(error.to_string()))?;
    match &config.daemon.mesh {
        Some(other) if other != slug => Err(bad(format!(
            "daemon.mesh is {other}, and this daemon was started for {slug}"
        ))),
        _ => Ok(config),
    }
}

/// Settings that open more than the default of this machine does.
fn warn_of_choices(config: &DaemonConfig, environment: HostEnvironment, log: &DaemonLog) {
    let default = DaemonConfig::default();
    let opens = |of: &dyn Fn(&DaemonConfig) -> bool| of(config) && !of(&default);
    if opens(&|config| config.tcp_enabled(&environment)) {
        log.warn("ipc_tcp_enabled_against_default", &json!({}));
    }
    if opens(&|config| config.hooks_enabled(&environment)) {
        log.warn("hooks_enabled_against_default", &json!({}));
    }
    if config.outbox.fsync_mode == FsyncMode::Off {
        // A request is answered only when its row is on disk.
        log.warn("outbox_fsync_is_never_off", &json!({}));
    }
    if config.ipc.http_external_auth.is_some() {
        let fields = json!({"http_bind": config.ipc.http_bind});
        log.warn("ipc_open_to_other_machines", &fields);
    }
}

pub(super) fn level(config: &DaemonConfig) -> MeshLogLevel {
    MeshLogLevel::parse(&config.daemon.log_level).unwrap_or(MeshLogLevel::Info)
}

/// Whether the daemon is still on the machine that its keys belong to. Returns the hash of the machine for the broker.
fn check_machine(
    folder: &DaemonFolder,
    config: &DaemonConfig,
    log: &DaemonLog,
    metrics: &DaemonMetrics,
) -> Result<Option<String>, DaemonEnd> {
    let check = HostCheck {
        directory: folder.path(),
        root: &MachineRoot::default(),
        id_override: config.host_fingerprint.id_override.as_deref(),
        policy: config.clone.policy,
    };
    match check_host(&check, log, metrics) {
        Ok(machine) => Ok(told_to_broker(&machine)),
        Err(HostCheckError::Io(error)) => Err(failed(folder, &error)),
        Err(error) => Err(DaemonEnd::new(
            DaemonExit::HostFingerprint,
            error.to_string(),
        )),
    }
}

fn identity(
    options: &DaemonOptions,
    mesh: &JoinedMesh,
    folder: &DaemonFolder,
    config: &DaemonConfig,
    log: &DaemonLog,
) -> Result<(DaemonIdentity, KeyArchiveFile), DaemonEnd> {
    let (mode, event) = environment::identity(options.identity, &options.environment);
    match event {
        Some(event @ "persistent_keypair_in_ci_environment") => log.warn(event, &json!({})),
        Some(event) => log.info(event, &json!({})),
        None => {}
    }
    let given = options.display_name.as_ref().map(DisplayName::as_str);
    let identity = DaemonIdentity::open(
        &IdentityOptions {
            directory: folder.path(),
            joined: mesh,
            mode,
            name: given.or(config.daemon.display_name.as_deref()),
            rename: options.rename,
        },
        log,
    );
    let identity =
        identity.map_err(|error| DaemonEnd::new(DaemonExit::BadConfig, error.to_string()))?;
    let keys_max = config.crypto.max_archived_keys;
    let archive = match mode {
        IdentityMode::Persistent => KeyArchiveFile::open(folder.path(), keys_max, log)
            .map_err(|error| failed(folder, &error))?,
        IdentityMode::Ephemeral => KeyArchiveFile::in_memory(keys_max),
    };
    Ok((identity, archive))
}

async fn open_outbox(
    folder: &DaemonFolder,
    options: &DaemonOptions,
    log: &DaemonLog,
) -> Result<OutboxLedger, DaemonEnd> {
    let path = folder.outbox();
    let opened = OutboxLedger::open(&path, options.mesh.as_str()).map_err(|error| {
        let is_elsewhere = matches!(error, StoreError::InUse { .. } | StoreError::TooNew { .. });
        let hint = if is_elsewhere {
            ""
        } else {
            "; `claudemesh daemon recover` offers what can be done"
        };
        DaemonEnd::general(format!("{}: {error}{hint}", path.display()))
    });
    if let Err(end) = &opened {
        log.error("outbox_unusable", &json!({"error": end.message}));
    }
    let outbox = opened?;
    let recovered = outbox
        .queue
        .recover_in_flight()
        .await
        .map_err(|error| DaemonEnd::general(format!("{}: {error}", path.display())))?;
    if recovered > 0 {
        log.info("outbox_inflight_recovered", &json!({"rows": recovered}));
    }
    Ok(outbox)
}

/// The inbox is a cache, so a damaged one is set aside.
fn open_inbox(folder: &DaemonFolder, log: &DaemonLog) -> Result<Inbox, DaemonEnd> {
    let path = folder.inbox();
    let failed =
        |error: &dyn std::fmt::Display| DaemonEnd::general(format!("{}: {error}", path.display()));
    match Inbox::open(&path) {
        Ok(inbox) => Ok(inbox),
        Err(StoreError::Corrupt(finding)) => {
            let seconds = jiff::Timestamp::now().as_second();
            let aside = folder.path().join(format!("inbox.db.corrupt-{seconds}"));
            std::fs::rename(&path, &aside).map_err(|error| failed(&error))?;
            for suffix in ["-wal", "-shm"] {
                let mut side = path.as_os_str().to_owned();
                side.push(suffix);
                // Most often there is none.
                let _ = std::fs::remove_file(side);
            }
            let fields = json!({"finding": finding, "file": aside.display().to_string()});
            log.error("inbox_corruption_recovered", &fields);
            Inbox::open(&path).map_err(|error| failed(&error))
        }
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn failure(lasting: &mut JoinSet<()>, finite: &mut JoinSet<()>) -> Option<String> {
        let limit = Duration::from_millis(200);
        tokio::time::timeout(limit, first_failure(lasting, finite))
            .await
            .ok()
    }

    #[tokio::test]
    async fn a_task_that_panics_or_ends_early_ends_the_daemon() {
        let (mut lasting, mut finite) = (JoinSet::new(), JoinSet::new());
        lasting.spawn(std::future::pending());
        assert_eq!(failure(&mut lasting, &mut finite).await, None);
        finite.spawn(async {});
        assert_eq!(failure(&mut lasting, &mut finite).await, None);
        finite.spawn(async { panic!("a test") });
        let why = failure(&mut lasting, &mut finite).await;
        assert!(why.is_some_and(|why| why.contains("failed")));
        lasting.spawn(async { panic!("a test") });
        let why = failure(&mut lasting, &mut finite).await;
        assert!(why.is_some_and(|why| why.contains("failed")));
        lasting.spawn(async {});
        let why = failure(&mut lasting, &mut finite).await;
        assert!(why.is_some_and(|why| why.contains("ended before")));
    }
}
