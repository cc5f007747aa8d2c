//! Start and shutdown of the server process.
//!
//! Ordering: lock, secrets, store, engine, listener. Any failure happens before the listener is open.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::response::Response;
use consign_engine::{Heartbeat, Timekeeper};
use consign_intent::settings::IntentSettings;
use consign_web::credentials::SecretDigest;
use consign_web::server::{
    DRAIN_TIMEOUT_DEFAULT, Error as ServerError, Options as ServerOptions, Server,
};
use consign_web::unix::{LOCAL_PEER, UnixSocket};
use consign_web::{layers, tls};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::embedded_automation::PreparedAutomation;
use super::ledger::{OpenLedger, random_bytes};
use super::limits::ConnectionBudget;
use super::reserve::DiskReserve;
use super::startup_message::{self, StartupMessage};
use super::{ServeArgs, begin, cleanup, clock_skew, logs, node, site};
use crate::config::protocol_settings;
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::ledger_location::{LedgerFlags, LedgerLocation};
use crate::lock::{self, DataLock};
use crate::planted;
use crate::secrets::{Overrides, Secret, Secrets};
use crate::system::{NODE, ReloadHandle};

pub(super) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    logs::start(args.log_format, args.access_log);
    planted::enable_planted_defect();
    let connections = ConnectionBudget::raise();
    let settings = protocol_settings()?;
    let site_settings = site::settings(args.site_file.as_deref())?;
    refuse_open_plain(&args, &settings)?;
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

    let clock = location.clock(args.begin).await?;
    let node_id = i64::from(u32::from_le_bytes(random_bytes()?));
    if let Some(automation) = &automation {
        automation.note_ledger(&location)?;
    }
    let elsewhere = location.unless_of(&data);
    let ledger_file = match &location {
        LedgerLocation::File(path) => Some(path.clone()),
        LedgerLocation::Database(_) => None,
    };
    let ledger = location.open(clock.clone(), node_id).await?;
    begin::note_made(&location, &data)?;
    let cleanup_interval = Duration::from_secs(settings.cleanup_interval_s);
    let engine = ledger.engine(&clock, &secrets, cleanup_interval)?;
    engine.check_seal().await?;
    let shared = matches!(ledger, OpenLedger::Database(_));
    if shared {
        node::require_shared_secrets(&engine, &args, &data).await?;
    }
    data.note_ledger(&lock, elsewhere.as_deref())?;

    let server = Server::bind(ServerOptions {
        tls: tls_files(&args),
        unreadable_body: consign_intent::UNREADABLE_BODY,
        connections_max: connections.main_listener(automation.is_some()),
        behind_proxy: settings.trust_proxy,
        ..ServerOptions::new(args.listen)
    })?;
    let base_url = base_url(server.local_addr(), args.tls_cert.is_some());
    let socket = local_socket(&data);
    let _address = AddressFile::new(&data, &lock, &base_url)?;
    if let OpenLedger::Database(postgres) = &ledger {
        tokio::spawn(clock_skew::watch(
            Arc::clone(postgres),
            Arc::clone(&clock),
            engine.clone(),
        ));
    }
    let (drain, draining) = watch::channel(false);
    let (stop_for, stopped_for) = watch::channel(None);
    let (compared, own) = (engine.clone(), data.clone());
    let held = [Some(Arc::clone(&lock)), database_lock.clone()];
    let held = held.into_iter().flatten().collect();
    tokio::spawn(async move {
        let why = tokio::select! {
            why = lock::until_taken(held) => why,
            why = node::until_secrets_replaced(compared, own), if shared => why,
        };
        tracing::error!("{why}; shutting down");
        stop_for.send_replace(Some(why));
        stop_for.closed().await;
    });
    let timekeeper = Timekeeper::new(engine.clone());
    let mut stop = draining.clone();
    let timekeeping = tokio::spawn(timekeeper.run(
        async move {
            let _ = stop.wait_for(|draining| *draining).await;
        },
        move || clock.follow(),
    ));
    let identity = node::identity(&args, node_id, &base_url, shared);
    let node = if shared {
        automation
            .as_ref()
            .map(PreparedAutomation::node)
            .transpose()?
            .unwrap_or_default()
    } else {
        // The file has one server at a time, so earlier jobs belong to this node.
        NODE.to_owned()
    };
    let mut heartbeat = Heartbeat::new(engine.clone(), identity);
    if let Err(error) = heartbeat.beat().await {
        tracing::warn!(%error, "cannot write the first heartbeat; trying again");
    }
    let mut stop = draining.clone();
    let beating = tokio::spawn(heartbeat.run(async move {
        let _ = stop.wait_for(|draining| *draining).await;
    }));
    let automation = match automation {
        Some(ready) => {
            let (engine, policy) = (engine.clone(), settings.policy());
            let private = private_files(&args, &data, ledger_file.as_deref());
            let shares = connections.embedded_automation();
            let started = ready.start(engine, node, policy, shares, private, draining.clone());
            Some(started.await?)
        }
        None => None,
    };
    let reload_automation = automation.as_ref().map(|running| running.reload.clone());
    let site = match site_settings {
        Some(asked) => {
            let node = if shared {
                data.node_id(&lock)?
            } else {
                NODE.to_owned()
            };
            Some(site::open(engine.clone(), asked, node).await?)
        }
        None => None,
    };
    let mut options = face_options(&settings, &secrets, draining.clone());
    options.additional_keys = site.as_ref().map(site::OpenSite::keys);
    options.release_reserve = reserve.as_ref().map(DiskReserve::release_reserve);
    options.additional_openapi = site
        .as_ref()
        .map(|_| consign_transactions::http::openapi::document());
    let cleaning = tokio::spawn(cleanup::run(engine.clone(), reserve));
    let mut router = consign_intent::router(engine, options);
    if let Some(site) = &site {
        router = router.merge(site.router(&settings, &secrets));
    }
    let layers = layers::Options {
        trust_proxy: settings.trust_proxy,
        request_id_seed: u128::from_le_bytes(random_bytes()?),
        on_panic: consign_intent::on_panic,
        on_too_many_failures: Some(on_too_many_failures),
    };
    let service = layers::around(router, layers);
    let reload = server.tls();
    let mut stop = draining;
    let local_service = service.clone();
    let serving_locally = tokio::spawn(async move {
        let Some(socket) = socket else { return };
        let drains = stop.wait_for(|draining| *draining);
        socket
            .run(local_service, drains, DRAIN_TIMEOUT_DEFAULT)
            .await;
    });
    startup_message::print(&StartupMessage {
        base_url: &base_url,
        elsewhere: elsewhere.as_deref(),
        data: &data,
        secrets: &secrets,
        settings: &settings,
    })?;
    let served = server
        .run(
            service,
            until_shutdown(
                drain,
                reload,
                reload_automation,
                ledger.clone(),
                stopped_for.clone(),
            )?,
        )
        .await;
    match served {
        Err(ServerError::CutOff { connections }) => {
            tracing::warn!(
                connections,
                "the drain time was over; open requests were cut off"
            );
        }
        other => other?,
    }
    cleaning.abort();
    if let Err(error) = serving_locally.await {
        tracing::error!(%error, "the task of the local socket panicked");
    }
    if let Some(automation) = automation {
        automation.wait_until_stopped().await;
    }
    timekeeping.await.context("the timekeeper panicked")?;
    let heartbeat = beating.await.context("the heartbeat panicked")?;
    heartbeat.leave().await;
    ledger.close();
    if ledger.is_lost() {
        return Err(ledger.loss().into());
    }
    if let Some(why) = stopped_for.borrow().clone() {
        return Err(why.into());
    }
    tracing::info!("drained and closed");
    Ok(())
}

/// The socket for commands on this machine. On a file system without sockets the server runs without it.
fn local_socket(data: &DataDir) -> Option<UnixSocket> {
    let path = data.socket_file();
    match UnixSocket::bind(&path) {
        Ok(socket) => Some(socket.with_peer(LOCAL_PEER)),
        Err(error) => {
            let path = path.display();
            tracing::warn!(%error, "cannot create the socket {path}; commands on this machine need --server and a key");
            None
        }
    }
}

/// The recorded address, removed when the server ends.
struct AddressFile<'a> {
    data: &'a DataDir,
    lock: &'a DataLock,
}

impl<'a> AddressFile<'a> {
    fn new(data: &'a DataDir, lock: &'a DataLock, base_url: &str) -> anyhow::Result<Self> {
        data.write_address(base_url)?;
        Ok(Self { data, lock })
    }
}

impl Drop for AddressFile<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.data.remove_address(self.lock) {
            tracing::warn!(%error, "cannot remove the address of this server from its data directory");
        }
    }
}

/// Ends at SIGTERM or SIGINT, when the disk lost a commit, or when a lock or the shared secrets are lost. SIGHUP
/// reloads the certificate and the automation.
fn until_shutdown(
    drain: watch::Sender<bool>,
    reload: Option<tls::ReloadableCertificate>,
    reload_automation: Option<ReloadHandle>,
    ledger: OpenLedger,
    mut stopped_for: watch::Receiver<Option<Failure>>,
) -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = ledger.until_lost() => break,
                _ = stopped_for.wait_for(Option::is_some) => break,
                _ = hangup.recv() => {
                    match reload.as_ref().map(tls::ReloadableCertificate::reload) {
                        Some(Ok(())) => tracing::info!("the certificate was reloaded"),
                        Some(Err(error)) => tracing::error!(%error, "the certificate was not reloaded; the old one stays"),
                        None => tracing::info!("SIGHUP: there is no certificate to reload"),
                    }
                    // In a task, so that a shutdown does not wait for it.
                    if let Some(automation) = reload_automation.clone() {
                        tokio::spawn(async move { automation.reload().await });
                    }
                }
            }
        }
        tracing::info!("draining");
        drain.send_replace(true);
    })
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

/// In the format of the requested face.
fn on_too_many_failures(path: &str) -> Response {
    if path.starts_with("/api/atp/") {
        consign_transactions::http::on_too_many_failures()
    } else {
        consign_intent::on_too_many_failures(path)
    }
}

fn face_options(
    settings: &IntentSettings,
    secrets: &Secrets,
    draining: watch::Receiver<bool>,
) -> consign_intent::Options {
    let checked = |secret: &Secret| Some(SecretDigest::new(secret.reveal().to_owned()));
    consign_intent::Options {
        admin_secret: checked(&secrets.admin_secret),
        dashboard_password: checked(&secrets.dashboard_password),
        metrics_token: checked(&secrets.metrics_token),
        trust_proxy: settings.trust_proxy,
        enforce_https: settings.enforce_https,
        require_signatures: settings.require_signatures,
        maintenance: settings.maintenance_mode,
        draining,
        release_reserve: None,
        additional_keys: None,
        additional_openapi: None,
    }
}

fn tls_files(args: &ServeArgs) -> Option<tls::CertificateFiles> {
    let (certificates, key) = args.tls_cert.clone().zip(args.tls_key.clone())?;
    Some(tls::CertificateFiles { certificates, key })
}

/// Paths that a plugin of this server cannot open in its sandbox.
fn private_files(args: &ServeArgs, data: &DataDir, ledger: Option<&Path>) -> Vec<PathBuf> {
    let named = [
        args.tls_key.as_deref(),
        args.store_password_file.as_deref(),
        args.site_file.as_deref(),
        ledger,
    ];
    let named = named.into_iter().flatten().map(Path::to_path_buf);
    let all = data.private().into_iter().chain(named);
    all.map(|path| std::path::absolute(&path).unwrap_or(path))
        .collect()
}

/// The URL for programs on this machine.
fn base_url(bound: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    let unspecified = bound.ip().is_unspecified();
    let local: IpAddr = if bound.is_ipv4() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv6Addr::LOCALHOST.into()
    };
    let reachable = SocketAddr::new(if unspecified { local } else { bound.ip() }, bound.port());
    format!("{scheme}://{reachable}")
}
