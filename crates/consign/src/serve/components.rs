//! The parts of a running server: each is started once, and stopped when the server drains.
//!
//! Ordering: components stop in the opposite order of their start, so the heartbeat of this node ends after everything
//! that holds a lease.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use consign_beam::service::Beam;
use consign_engine::{BulkRunner, Engine, Heartbeat, Timekeeper};
use consign_mesh::broker::Broker;
use consign_web::layers::Layered;
use consign_web::server::DRAIN_TIMEOUT_DEFAULT;
use consign_web::unix::{LOCAL_PEER, UnixSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::embedded_automation::PreparedAutomation;
use super::ledger::OpenLedger;
use super::limits::ConnectionBudget;
use super::mesh_work::BrokerWork;
use super::message_bus::BeamMessageBus;
use super::prepare::{Prepared, StartedLedger};
use super::reserve::DiskReserve;
use super::{ServeArgs, cleanup, clock_skew, node};
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::ledger_location::LedgerLocation;
use crate::lock;
use crate::system::{AutomationHost, NODE, ReloadHandle};

type Stop = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// The running components, in the order of their start.
pub(super) struct Components {
    draining: watch::Receiver<bool>,
    stops: Vec<(&'static str, Stop)>,
}

impl Components {
    pub(super) fn new(draining: watch::Receiver<bool>) -> Self {
        Self {
            draining,
            stops: Vec::new(),
        }
    }

    /// Stops all components, also if one fails; the first failure is the result.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let mut failed = Ok(());
        for (name, stop) in self.stops.into_iter().rev() {
            if let Err(error) = stop.await {
                tracing::error!(component = name, %error, "a part of the server ended with an error");
                failed = failed.and(Err(error));
            }
        }
        failed
    }

    /// `stop` completes when the component has stopped; it is polled only after the server drains.
    fn add(
        &mut self,
        name: &'static str,
        stop: impl Future<Output = anyhow::Result<()>> + 'static,
    ) {
        self.stops.push((name, Box::pin(stop)));
    }

    /// Completes when the server drains.
    fn drains(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut draining = self.draining.clone();
        async move {
            // An error means that the sender is gone, so the process is stopping as well.
            let _ = draining.wait_for(|draining| *draining).await;
        }
    }

    /// Watches the locks and the shared secrets; the receiver gets the reason when one is lost.
    pub(super) fn watch_locks(
        &mut self,
        prepared: &Prepared,
        ledger: &StartedLedger,
    ) -> watch::Receiver<Option<Failure>> {
        let (lost, receiver) = watch::channel(None);
        let (engine, data, shared) = (ledger.engine.clone(), prepared.data.clone(), ledger.shared);
        let held = [
            Some(Arc::clone(&prepared.lock)),
            prepared.database_lock.clone(),
        ];
        let held = held.into_iter().flatten().collect();
        let task = tokio::spawn(async move {
            let why = tokio::select! {
                why = lock::until_taken(held) => why,
                why = node::until_secrets_replaced(engine, data), if shared => why,
            };
            tracing::error!("{why}; shutting down");
            lost.send_replace(Some(why));
            lost.closed().await;
        });
        self.add("lock watch", async move {
            task.abort();
            Ok(())
        });
        receiver
    }

    pub(super) fn follow_database_clock(&mut self, ledger: &StartedLedger) {
        let OpenLedger::Database(postgres) = &ledger.open else {
            return;
        };
        let task = tokio::spawn(clock_skew::watch(
            Arc::clone(postgres),
            Arc::clone(&ledger.clock),
            ledger.engine.clone(),
        ));
        self.add("clock watch", async move {
            task.abort();
            Ok(())
        });
    }

    pub(super) async fn beat(&mut self, args: &ServeArgs, ledger: &StartedLedger, base_url: &str) {
        let identity = node::identity(args, ledger.node_id, base_url, ledger.shared);
        let mut heartbeat = Heartbeat::new(ledger.engine.clone(), identity);
        if let Err(error) = heartbeat.beat().await {
            tracing::warn!(%error, "cannot write the first heartbeat; trying again");
        }
        let task = tokio::spawn(heartbeat.run(self.drains()));
        self.add("heartbeat", async move {
            task.await.context("the heartbeat panicked")?.leave().await;
            Ok(())
        });
    }

    pub(super) fn keep_time(&mut self, ledger: &StartedLedger) {
        let timekeeper = Timekeeper::new(ledger.engine.clone());
        let clock = Arc::clone(&ledger.clock);
        let task = tokio::spawn(timekeeper.run(self.drains(), move || clock.follow()));
        self.add("timekeeper", async move {
            task.await.context("the timekeeper panicked")
        });
    }

    /// Carries bulk jobs of operators on, also those of a node that has stopped.
    pub(super) fn run_bulk_jobs(&mut self, ledger: &StartedLedger) {
        let runner = BulkRunner::new(ledger.engine.clone());
        let task = tokio::spawn(runner.run(self.drains()));
        self.add("bulk jobs", async move {
            task.await.context("the runner of bulk jobs panicked")
        });
    }

    /// Starts the automation of `--config`, if there is one.
    pub(super) async fn run_automation(
        &mut self,
        automation: Option<PreparedAutomation>,
        prepared: &Prepared,
        ledger: &StartedLedger,
        args: &ServeArgs,
        connections: &ConnectionBudget,
        (beam, mesh): (&Beam, &Broker),
    ) -> anyhow::Result<Option<ReloadHandle>> {
        let Some(automation) = automation else {
            return Ok(None);
        };
        // A file has one server at a time, so earlier jobs belong to this node.
        let node = if ledger.shared {
            automation.node()?
        } else {
            NODE.to_owned()
        };
        let host = AutomationHost {
            engine: ledger.engine.clone(),
            node,
            policy: prepared.settings.policy(),
            guarded: automation.guarded(private_files(args, prepared)),
            bus: Some(Arc::new(BeamMessageBus(beam.clone()))),
            mesh: Some(Arc::new(BrokerWork(mesh.clone()))),
            connections: connections.embedded_automation(),
        };
        let running = automation.start(host, self.draining.clone()).await?;
        let reload = running.reload.clone();
        self.add("automation", async move {
            running.wait_until_stopped().await;
            Ok(())
        });
        Ok(Some(reload))
    }

    pub(super) fn clean_up(&mut self, engine: &Engine, reserve: Option<DiskReserve>) {
        let task = tokio::spawn(cleanup::run(engine.clone(), reserve));
        self.add("cleanup", async move {
            task.abort();
            Ok(())
        });
    }

    /// Starts what the directory and the message bus do by themselves.
    pub(super) fn run_beam(&mut self, beam: &Beam) {
        let tasks = [
            tokio::spawn(beam.clone().watch_presence()),
            tokio::spawn(beam.clone().watch_nodes_forever()),
            tokio::spawn(beam.clone().sweep_unwaited_forever()),
            tokio::spawn(beam.clone().clean_up_forever()),
        ];
        let bus = tokio::spawn(beam.clone().run_bus(self.draining.clone()));
        self.add("beam", async move {
            tasks.iter().for_each(JoinHandle::abort);
            bus.await.context("the message bus panicked")
        });
    }

    /// Runs the daily retention of the mesh, and watches who is connected to other nodes.
    pub(super) fn run_mesh(&mut self, mesh: &Broker) {
        let tasks = [
            tokio::spawn(mesh.clone().run_nightly()),
            tokio::spawn(mesh.clone().watch_presence()),
        ];
        self.add("mesh", async move {
            tasks.iter().for_each(JoinHandle::abort);
            Ok(())
        });
    }

    /// Serves commands on this machine.
    pub(super) fn serve_locally(&mut self, socket: Option<UnixSocket>, service: Layered<Router>) {
        let Some(socket) = socket else {
            return;
        };
        let drains = self.drains();
        let task = tokio::spawn(async move {
            socket.run(service, drains, DRAIN_TIMEOUT_DEFAULT).await;
        });
        self.add("local socket", async move {
            task.await.context("the task of the local socket panicked")
        });
    }
}

/// The socket for commands on this machine. On a file system without sockets the server runs without it.
pub(super) fn local_socket(data: &DataDir) -> Option<UnixSocket> {
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

/// Paths that a plugin of this server cannot open in its sandbox.
fn private_files(args: &ServeArgs, prepared: &Prepared) -> Vec<PathBuf> {
    let ledger = match &prepared.location {
        LedgerLocation::File(path) => Some(path.as_path()),
        LedgerLocation::Database(_) => None,
    };
    let named = [
        args.tls_key.as_deref(),
        args.store_password_file.as_deref(),
        args.site_file.as_deref(),
        ledger,
    ];
    let named = named.into_iter().flatten().map(Path::to_path_buf);
    let all = prepared.data.private().into_iter().chain(named);
    all.map(|path| std::path::absolute(&path).unwrap_or(path))
        .collect()
}
