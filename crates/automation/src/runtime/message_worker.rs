//! The runtime as the recipient of agents: it claims their messages and queues a job for each.
//!
//! The permission to claim is a grant of its own for each agent, which the configuration makes: while it exists, the message
//! bus keeps the messages of the agent for claims. Each entry of `beam.receive` has its own task, which ends with the
//! configuration that defines it. `received_message` defines what the jobs do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use consign_engine::{Error, KEPT_LEASE_US, Lease, MAIN_KEY_ID, Operator, UnitOfWork};
use consign_kernel::command::{Audience, Claim, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::intent::Intent;
use consign_kernel::record::{Grant, Key};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::job::{Job, SubmittedBy};
use super::lifecycle::{Runtime, RuntimeInner};
use super::message_bus::{IncomingMessage, MessageBus, MessageInbox};
use super::served_intent::{FIRST_LEASE_US, ServedIntent};
use super::successors::EventSource;
use crate::config::model::ReceivedMessages;
use crate::nesting::is_too_deep;
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
        let received = &program.config().received;
        if let Some(bus) = &inner.bus {
            revoke_old_grants(&inner, bus.as_ref(), received).await;
        } else if !received.is_empty() {
            let why = "`beam.receive` has no effect, because this service has no message bus";
            tracing::warn!(component = "messages", "{why}");
        }
        let replaced = watch::Sender::new(false);
        let mut workers = JoinSet::new();
        for received in received {
            let Some(bus) = inner.bus.clone() else { break };
            let Some(inbox) = bus.inbox(&received.agent) else {
                let agent = &received.agent;
                tracing::error!(
                    component = "messages",
                    agent,
                    "the messages of this agent cannot be claimed"
                );
                continue;
            };
            let worker = MessageWorker {
                inner: Arc::clone(&inner),
                bus,
                inbox,
                received: received.clone(),
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

/// Without its grant, the messages of an agent that no configuration receives are delivered to its connection again. A node
/// with another configuration renews its grants by itself.
async fn revoke_old_grants(
    inner: &RuntimeInner,
    bus: &dyn MessageBus,
    received: &[ReceivedMessages],
) {
    let wanted: BTreeSet<String> = received
        .iter()
        .filter_map(|received| bus.inbox(&received.agent))
        .map(|inbox| inbox.granted)
        .collect();
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
    if let Err(error) = revoked.await {
        tracing::warn!(component = "messages", %error, "agents that are no longer received keep their messages waiting");
    }
}

struct MessageWorker {
    inner: Arc<RuntimeInner>,
    bus: Arc<dyn MessageBus>,
    inbox: MessageInbox,
    received: ReceivedMessages,
}

impl MessageWorker {
    async fn run(self, mut replaced: watch::Receiver<bool>) {
        let mut finished = self.inner.worker.ended();
        while !*replaced.borrow_and_update() {
            finished.mark_unchanged();
            let claimed = if self.may_claim() {
                self.claim(&mut replaced).await
            } else {
                tokio::select! {
                    _ = finished.changed() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    _ = replaced.changed() => {}
                }
                Ok(())
            };
            if let Err(error) = claimed {
                let ReceivedMessages { agent, intent, .. } = &self.received;
                tracing::warn!(component = "messages", agent, intent, %error, "no message could be claimed");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    fn may_claim(&self) -> bool {
        self.inner.engine.claims_paused().is_none()
            && self.inner.worker.running_of(RECEIVE_PLUGIN) < RECEIVED_MAX
    }

    async fn claim(&self, replaced: &mut watch::Receiver<bool>) -> Result<(), Error> {
        let engine = &self.inner.engine;
        let grant = Grant::key(&self.inbox.granted, WORKER);
        let claim = Claim {
            face: self.inbox.face,
            namespace: self.inbox.namespace.clone(),
            goal: Some(self.received.intent.clone()),
            holder: MAIN_KEY_ID.to_owned(),
            audience: Audience::Publisher(self.received.agent.clone()),
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
            // The first claim, or another node with another configuration revoked it.
            Err(Error::Refused(Refusal::NotGranted)) => {
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
        let Some(message) = self.bus.read(row) else {
            let error = "the message cannot be read".to_owned();
            let settle = Lease::of(row).settle(Settlement::Reject { error });
            return engine.settle(settle).await.map(drop);
        };
        let source = EventSource {
            kind: self.received.event.clone(),
            plugin: SubmittedBy::Message.as_str().to_owned(),
            at: self.inner.wall_time(),
            id: row.id.to_string(),
            dedupe_key: None,
        };
        let served = ServedIntent::of_message(row);
        let payload = source.wrap(payload(row, message));
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
}

/// The payload of the event.
fn payload(row: &Intent, message: IncomingMessage) -> Value {
    let sent = serde_json::from_str(&message.payload).ok();
    let sent: Option<Value> = sent.filter(|sent| !is_too_deep(sent));
    json!({
        "message_id": row.id.to_string(),
        "from": message.sender,
        "to": row.owner,
        "intent": row.goal,
        "nonce": message.nonce,
        "trace_id": message.trace_id,
        "payload": sent.unwrap_or_else(|| Value::from(message.payload)),
    })
}
