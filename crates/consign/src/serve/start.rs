//! Start and shutdown of the server process.
//!
//! Ordering: lock, secrets, store, engine, listener, components, requests. Any failure happens before the first request
//! is accepted; [`Components`] stop in the opposite order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use consign_web::credentials::SecretDigest;
use consign_web::operator::OperatorCredentials;
use consign_web::server::{Error as ServerError, Options as ServerOptions, Server};
use consign_web::shell::{self, Mount, Reporter};
use consign_web::{layers, tls};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::components::{Components, local_socket};
use super::host::HostReporter;
use super::ledger::{OpenLedger, random_bytes};
use super::limits::ConnectionBudget;
use super::prepare::Prepared;
use super::reserve::DiskReserve;
use super::startup_message::{self, StartupMessage};
use super::{ServeArgs, beam, logs, mesh, port_owner, site};
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::lock::DataLock;
use crate::planted;
use crate::secrets::Secret;
use crate::system::ReloadHandle;

pub(super) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    logs::start(args.log_format, args.access_log);
    planted::enable_planted_defect();
    let started_at = SystemTime::now();
    let connections = ConnectionBudget::raise();
    let mut prepared = Prepared::new(&args).await?;
    let ledger = prepared.open_ledger(&args).await?;
    let engine = ledger.engine.clone();
    let (automation, site) = (prepared.automation.take(), prepared.site.take());
    let Prepared {
        settings,
        data,
        secrets,
        ..
    } = &prepared;

    let server = Server::bind(ServerOptions {
        tls: tls_files(&args),
        unreadable_body: shell::UNREADABLE_BODY,
        connections_max: connections.main_listener(automation.is_some()),
        behind_proxy: settings.trust_proxy,
        ..ServerOptions::new(args.listen)
    })
    .map_err(port_owner::explained)?;
    let base_url = base_url(server.local_addr(), args.tls_cert.is_some());
    let socket = local_socket(data);
    let _address = AddressFile::new(data, &prepared.lock, &base_url)?;
    let (drain, draining) = watch::channel(false);
    let mut components = Components::new(draining.clone());

    let lost = components.watch_locks(&prepared, &ledger);
    components.follow_database_clock(&ledger);
    components.beat(&args, &ledger, &base_url).await;
    components.keep_time(&ledger);
    components.run_bulk_jobs(&ledger);
    let beam = beam::open(&prepared, &ledger, &base_url).await?;
    components.run_beam(&beam);
    let mesh = mesh::open(&prepared, &ledger, &base_url).await?;
    components.run_mesh(&mesh);
    // After Beam and the mesh, which it uses: components stop in the opposite order.
    let protocols = (&beam, &mesh);
    let reload_automation = components
        .run_automation(
            automation,
            &prepared,
            &ledger,
            &args,
            &connections,
            protocols,
        )
        .await?;
    let site = site::open_if_asked(site, &prepared, &ledger).await?;
    components.clean_up(&engine, prepared.reserve.clone());

    let site = site
        .iter()
        .map(|site| Arc::new(site.mount(settings, secrets)) as Arc<dyn Mount>);
    let mut intent = intent_options(&prepared, draining);
    let operators = intent.operators.clone();
    let mounts = site
        .chain([
            beam::mount(&beam, &prepared),
            mesh::mount(&mesh, operators, &prepared),
        ])
        .collect();
    intent.queues.push(Arc::new(beam));
    intent.queues.push(Arc::new(mesh));
    let shell = consign_intent::shell(engine, intent, mounts);
    let host = HostReporter::new(&base_url, data, &prepared.location, started_at);
    let automation = reload_automation.as_ref().map(ReloadHandle::reporter);
    let automation = automation.map(|reporter| Arc::new(reporter) as Arc<dyn Reporter>);
    shell.report_on(
        [Some(Arc::new(host) as Arc<dyn Reporter>), automation]
            .into_iter()
            .flatten()
            .collect(),
    );
    let layers = layers::Options {
        trust_proxy: settings.trust_proxy,
        request_id_seed: u128::from_le_bytes(random_bytes()?),
        on_panic: shell::on_panic,
        on_too_many_failures: Some(shell.on_too_many_failures()),
    };
    let service = layers::around(shell.router(), layers).metered(shell.http_meter());
    components.serve_locally(socket, service.clone());
    startup_message::print(&StartupMessage {
        log_format: args.log_format,
        base_url: &base_url,
        elsewhere: prepared.elsewhere.as_deref(),
        data,
        secrets,
        settings,
    })?;

    let signals = ShutdownSignals {
        drain,
        certificate: server.tls(),
        reload_automation,
        ledger: ledger.open.clone(),
        lost: lost.clone(),
    };
    let served = server.run(service, signals.listen()?).await;
    match served {
        Err(ServerError::CutOff { connections }) => {
            tracing::warn!(
                connections,
                "the drain time was over; open requests were cut off"
            );
        }
        other => other?,
    }
    let stopped = components.stop().await;
    ledger.open.close();
    if ledger.open.is_lost() {
        return Err(ledger.open.loss().into());
    }
    if let Some(why) = lost.borrow().clone() {
        return Err(why.into());
    }
    stopped?;
    tracing::info!("drained and closed");
    Ok(())
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

/// What ends the server, and what SIGHUP reloads.
struct ShutdownSignals {
    drain: watch::Sender<bool>,
    certificate: Option<tls::ReloadableCertificate>,
    reload_automation: Option<ReloadHandle>,
    ledger: OpenLedger,
    lost: watch::Receiver<Option<Failure>>,
}

impl ShutdownSignals {
    /// Ends at SIGTERM or SIGINT, when the disk lost a commit, or when a lock or the shared secrets are lost.
    fn listen(self) -> anyhow::Result<impl Future<Output = ()>> {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
        let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
        let mut lost = self.lost.clone();
        Ok(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    () = self.ledger.until_lost() => break,
                    _ = lost.wait_for(Option::is_some) => break,
                    _ = hangup.recv() => self.reload(),
                }
            }
            tracing::info!("draining");
            self.drain.send_replace(true);
        })
    }

    fn reload(&self) {
        match self
            .certificate
            .as_ref()
            .map(tls::ReloadableCertificate::reload)
        {
            Some(Ok(())) => tracing::info!("the certificate was reloaded"),
            Some(Err(error)) => {
                tracing::error!(%error, "the certificate was not reloaded; the old one stays");
            }
            None => tracing::info!("SIGHUP: there is no certificate to reload"),
        }
        // In a task, so that a shutdown does not wait for it.
        if let Some(automation) = self.reload_automation.clone() {
            tokio::spawn(async move { automation.reload().await });
        }
    }
}

fn intent_options(prepared: &Prepared, draining: watch::Receiver<bool>) -> consign_intent::Options {
    let Prepared {
        settings, secrets, ..
    } = prepared;
    let checked = |secret: &Secret| Some(SecretDigest::new(secret.reveal().to_owned()));
    consign_intent::Options {
        operators: OperatorCredentials {
            admin_secret: checked(&secrets.admin_secret),
            dashboard_password: checked(&secrets.dashboard_password),
            metrics_token: checked(&secrets.metrics_token),
            audit_retention_days: settings.audit_retention_days,
        },
        trust_proxy: settings.trust_proxy,
        enforce_https: settings.enforce_https,
        require_signatures: settings.require_signatures,
        maintenance: settings.maintenance_mode,
        draining,
        release_reserve: prepared.reserve.as_ref().map(DiskReserve::release_reserve),
        queues: Vec::new(),
    }
}

fn tls_files(args: &ServeArgs) -> Option<tls::CertificateFiles> {
    let (certificates, key) = args.tls_cert.clone().zip(args.tls_key.clone())?;
    Some(tls::CertificateFiles { certificates, key })
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
