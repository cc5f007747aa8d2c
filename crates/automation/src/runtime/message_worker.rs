//! The runtime as the recipient of agents, topics and queues: it claims their messages and queues a job for each.
//!
//! The permission to claim is a grant of its own for each source, which the configuration makes: while it exists, the message
//! bus keeps the messages of an agent for claims. Each entry of `beam.receive` and `mesh.receive` has its own task, which ends
//! with the configuration that defines it. `received_message` defines what the jobs do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Error, KEPT_LEASE_US, Lease, MAIN_KEY_ID, Operator, UnitOfWork};
use consign_kernel::command::{Audience, Claim, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::intent::Intent;
use consign_kernel::profile::Face;
use consign_kernel::record::{Grant, Key};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::job::{Job, SubmittedBy};
use super::lifecycle::{Runtime, RuntimeInner};
use super::message_bus::MessageInbox;
use super::message_source::MessageSource;
use super::served_intent::{FIRST_LEASE_US, ServedIntent, end_as_dead};
use super::successors::EventSource;
use crate::config::Config;
use crate::config::model::MeshSource;
use crate::pipeline::RECEIVE_PLUGIN;
use crate::plugin::request::HANDLE;

/// The key id of the grants, and the worker that timelines show.
const WORKER: &str = "automation";
/// The longest wait before the worker looks at the ledger without a wake.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The delay between retries while the ledger is unavailable.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum number of messages whose pipelines run at a time, per node.
pub(super) const RECEIVED_MAX: usize = 100;

/// Receives the messages of the current configuration until the runtime stops.
pub(super) async fn receive_messages(inner: Arc<RuntimeInner>) {
    let mut stopping = inner.stopping.subscribe();
    let mut generations = inner.config_generation.subscribe();
    while !*stopping.borrow_and_update() {
        // Subscribe before reading, so that no later reload is missed.
        generations.mark_unchanged();
        let program = inner.program();
        let sources = sources(&inner, program.config());
        end_old_sources(&inner, program.config(), &sources).await;
        let replaced = watch::Sender::new(false);
        let mut workers = JoinSet::new();
        for (source, event) in sources {
            let Some(inbox) = source.inbox() else {
                let what = source.to_string();
                tracing::error!(
                    component = "messages",
                    source = what,
                    "these messages cannot be claimed"
                );
                continue;
            };
            let worker = MessageWorker {
                inner: Arc::clone(&inner),
                source,
                inbox,
                event,
            };
            workers.spawn(worker.run(replaced.subscribe()));
        }
        tokio::select! {
            _ = generations.changed() => {}
            _ = stopping.changed() => {}
        }
        replaced.send_replace(true);
        while workers.join_next().await.is_some() {}
    }
}

/// What the configuration receives, each with the type of its event.
fn sources(inner: &RuntimeInner, config: &Config) -> Vec<(MessageSource, String)> {
    let without = |key: &str, what: &str| {
        let why = format!("`{key}` has no effect, because this service has no {what}");
        tracing::warn!(component = "messages", "{why}");
    };
    let mut found = Vec::new();
    if let Some(bus) = &inner.bus {
        found.extend(config.received.iter().map(|received| {
            let source = MessageSource::agent(bus, received);
            (source, received.event.clone())
        }));
    } else if !config.received.is_empty() {
        without("beam.receive", "message bus");
    }
    if let Some(mesh) = &inner.mesh {
        found.extend(config.received_items.iter().map(|received| {
            let source = MessageSource::mesh(mesh, &received.source);
            (source, received.event.clone())
        }));
    } else if !config.received_items.is_empty() {
        without("mesh.receive", "mesh");
    }
    found
}

/// Without its grant, the messages of an agent that no configuration receives are delivered to its connection again, and a
/// topic no longer fills the queue of automations. A node with another configuration begins again by itself.
async fn end_old_sources(
    inner: &RuntimeInner,
    config: &Config,
    sources: &[(MessageSource, String)],
) {
    if inner.bus.is_none() && inner.mesh.is_none() {
        return;
    }
    let inboxes = sources.iter().filter_map(|(source, _)| source.inbox());
    let wanted: BTreeSet<String> = inboxes.map(|inbox| inbox.granted).collect();
    let revoked = async {
        let mut unit = UnitOfWork::default();
        for grant in inner.engine.grants(Operator::vouched()).await? {
            if grant.key_id == WORKER && !wanted.contains(&grant.namespace) {
                unit.delete(Grant::key(&grant.namespace, WORKER));
            }
        }
        if unit.is_empty() {
            return Ok(());
        }
        inner.engine.commit(unit).await.map(drop)
    };
    let revoked: Result<(), Error> = revoked.await;
    if let Err(error) = revoked {
        tracing::warn!(component = "messages", %error, "agents that are no longer received keep their messages waiting");
    }
    if let Some(mesh) = &inner.mesh {
        let received = config.received_items.iter();
        let wanted: Vec<MeshSource> = received.map(|received| received.source.clone()).collect();
        if let Err(error) = mesh.close_others(&wanted).await {
            tracing::warn!(
                component = "messages",
                error,
                "topics that are no longer received keep filling their queues"
            );
        }
    }
}

struct MessageWorker {
    inner: Arc<RuntimeInner>,
    source: MessageSource,
    inbox: MessageInbox,
    /// The type of the events.
    event: String,
}

impl MessageWorker {
    async fn run(self, mut replaced: watch::Receiver<bool>) {
        let mut finished = self.inner.worker.ended();
        let mut is_open = false;
        while !*replaced.borrow_and_update() {
            finished.mark_unchanged();
            if !is_open {
                is_open = self.open().await;
            }
            let claimed = if is_open && self.may_claim() {
                self.claim(&mut replaced, &mut is_open).await
            } else {
                tokio::select! {
                    _ = finished.changed() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    _ = replaced.changed() => {}
                }
                Ok(())
            };
            if let Err(error) = claimed {
                let source = self.source.to_string();
                tracing::warn!(component = "messages", source, %error, "no message could be claimed");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Whether the inbox gets what the source has.
    async fn open(&self) -> bool {
        let opened = self.source.open().await;
        if let Err(error) = &opened {
            let source = self.source.to_string();
            tracing::warn!(
                component = "messages",
                source,
                error,
                "nothing is received yet; trying again"
            );
        }
        opened.is_ok()
    }

    fn may_claim(&self) -> bool {
        self.inner.engine.claims_paused().is_none()
            && self.inner.worker.running_of(RECEIVE_PLUGIN) < RECEIVED_MAX
    }

    async fn claim(
        &self,
        replaced: &mut watch::Receiver<bool>,
        is_open: &mut bool,
    ) -> Result<(), Error> {
        let engine = &self.inner.engine;
        let grant = Grant::key(&self.inbox.granted, WORKER);
        let claim = Claim {
            face: self.inbox.face,
            namespace: self.inbox.namespace.clone(),
            goal: self.source.goal(),
            holder: MAIN_KEY_ID.to_owned(),
            audience: Audience::Publisher(self.inbox.owner.clone()),
            worker_id: None,
            capabilities: Vec::new(),
            max: 1,
            lease_us: FIRST_LEASE_US,
            grant: Some(grant.clone()),
        };
        let leave = async {
            tokio::select! {
                () = engine.until_claims_paused() => {}
                _ = replaced.changed() => {}
            }
        };
        let claimed = engine.claim_unless(None, claim, POLL_INTERVAL, leave);
        let rows = match claimed.await {
            // The first claim, or another node with another configuration ended the source.
            Err(Error::Refused(Refusal::NotGranted)) => {
                *is_open = false;
                return self.grant(grant).await;
            }
            other => other?,
        };
        for row in rows {
            self.enqueue_job(&row).await?;
        }
        Ok(())
    }

    async fn grant(&self, key: Key) -> Result<(), Error> {
        let engine = &self.inner.engine;
        let granted_at = engine.now().0;
        let mut unit = UnitOfWork::default();
        unit.put(key, &Grant { granted_at });
        engine.commit(unit).await.map(drop)
    }

    /// After an error here, the message is offered again when its lease ends.
    async fn enqueue_job(&self, row: &Intent) -> Result<(), Error> {
        let engine = &self.inner.engine;
        let Some(payload) = self.source.payload(row) else {
            return self.refuse(row).await;
        };
        let source = EventSource {
            kind: self.event.clone(),
            plugin: SubmittedBy::Message.as_str().to_owned(),
            at: self.inner.wall_time(),
            id: row.id.to_string(),
            dedupe_key: None,
        };
        let served = ServedIntent::of_message(row);
        let payload: Value = source.wrap(payload);
        let job = Job {
            source_event_id: Some(row.id.to_string()),
            serves: Some(served.clone()),
            ..Job::root(RECEIVE_PLUGIN, HANDLE, SubmittedBy::Message, payload)
        };
        let runtime = Runtime {
            inner: Arc::clone(&self.inner),
        };
        let job = runtime.enqueue(job, None).await?.id;
        let lease = served.lease()?;
        // If the extension is refused, the job detects that when it starts.
        if let Err(error) = engine.extend(lease.extend(KEPT_LEASE_US)).await {
            tracing::warn!(component = "messages", %error, "the lease of a message could not be extended");
        }
        self.inner.keep_served_lease(job, lease);
        Ok(())
    }
    /// Ends a message that is none of this source.
    async fn refuse(&self, row: &Intent) -> Result<(), Error> {
        let engine = &self.inner.engine;
        let lease = Lease::of(row);
        let error = format!("it is no message of {}", self.source);
        if self.inbox.face == Face::Mesh {
            let mut unit = UnitOfWork::default();
            end_as_dead(&lease, Face::Mesh, error, &mut unit);
            return engine.commit(unit).await.map(drop);
        }
        let settle = lease.settle(Settlement::Reject { error });
        engine.settle(settle).await.map(drop)
    }
}
