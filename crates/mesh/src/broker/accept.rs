//! Accepts messages: the look-up of the id, the rate limit, the recipients, and one commit for all that an accepted message
//! leaves behind.
//!
//! Invariant: a refusal writes nothing, so it does not use up the id; an id that was used is answered before the rate limit
//! counts it. The commit expects the lists from which the recipients were taken, so it admits nothing for a member that is
//! revoked or has left meanwhile. What is accepted can be pushed: the frame for its recipients is not too long.
//! Ordering: ids of messages are drawn in the order in which their commits are queued, so their texts have the order of
//! acceptance.

mod payload;
mod plan;
mod rate;
mod repeated;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use consign_engine::{Error, TRIES_MAX, UnitOfWork};
use consign_kernel::command::{Begin, NewIntent, OnceGuard};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, Micros, Seq};
use consign_kernel::intent::Ties;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::ProfileId;

pub(crate) use payload::MeshPayload;
use plan::{Plan, RecipientRow};
pub(crate) use plan::{member_capability, session_capability};
pub(super) use rate::SendRate;

use super::records::{DedupeRetention, MeshRecord};
use super::{Broker, BrokerMetric, was_changed};
use crate::accept::{AcceptReason, AcceptRefusal, Accepted, CheckedSend, SendKey, check_send};
use crate::client_message_id::ClientMessageId;
use crate::destination::ResolvedTarget;
use crate::frame::{AckFrame, SendFrame};
use crate::id::BrokerMessageId;
use crate::keys::MeshPublicKey;
use crate::limits::UNDELIVERED_DAYS;
use crate::priority::MeshPriority;

/// A message that no recipient has acknowledged by then is removed.
const UNDELIVERED_US: i64 = UNDELIVERED_DAYS as i64 * DAY_US;

/// The authenticated sender of a message.
#[derive(Clone, Debug)]
pub struct MeshSender {
    pub mesh: Arc<MeshRecord>,
    pub member_id: String,
    /// The session that sends, if the connection has a key of its own.
    pub session: Option<MeshPublicKey>,
    /// The id of the sending connection, which does not receive its own direct messages.
    pub connection: Option<String>,
}

/// A message that passed all checks outside of the ledger, or its answer.
pub(crate) enum PreparedSend {
    Answered(Box<AckFrame>),
    Ready(Box<ReadySend>),
}

pub(crate) struct ReadySend {
    checked: CheckedSend,
    key: SendKey,
    plan: Plan,
    stored: MeshPayload,
}

/// The last id of a message that this node gave.
#[derive(Debug, Default)]
pub(super) struct LastMessageId(Mutex<Micros>);

impl Broker {
    /// Accepts a message, or says why not. The answer repeats the `id` of the frame.
    pub async fn accept(&self, sender: &MeshSender, send: &SendFrame) -> AckFrame {
        // The recipients may be sessions of other nodes, and none of this mesh may be here.
        let prepared = match self.know_elsewhere(&sender.mesh.id).await {
            Ok(()) => self.prepare(sender, send).await,
            Err(error) => answered(unavailable(&error).to_ack(send.id.as_deref(), None)),
        };
        self.submit(sender, send, prepared).await
    }

    /// Counts an answer for the metrics.
    fn count_answer(&self, ack: &AckFrame, send: &SendFrame) {
        let counters = &self.inner.counters;
        match (&ack.error, ack.code) {
            (Some(error), _) => {
                let reason = error.split(':').next().unwrap_or_default();
                counters.count(BrokerMetric::REJECTED, &[reason]);
            }
            (None, Some(201)) => {
                let priority = send.priority.as_deref().and_then(MeshPriority::parse);
                let priority = priority.unwrap_or_default().as_str();
                counters.count(BrokerMetric::ROUTED, &[priority]);
            }
            (None, _) => {}
        }
    }

    /// All that precedes the commit. Messages of one connection may be prepared at the same time.
    pub(crate) async fn prepare(&self, sender: &MeshSender, send: &SendFrame) -> PreparedSend {
        self.prepare_from(sender, send, false).await
    }

    /// Commits a prepared message. With its first poll the commit is queued, so messages whose futures are polled in their
    /// order are accepted in their order.
    pub(crate) async fn submit(
        &self,
        sender: &MeshSender,
        send: &SendFrame,
        prepared: PreparedSend,
    ) -> AckFrame {
        let ack = self.commit_prepared(sender, send, prepared).await;
        self.count_answer(&ack, send);
        ack
    }

    async fn commit_prepared(
        &self,
        sender: &MeshSender,
        send: &SendFrame,
        mut prepared: PreparedSend,
    ) -> AckFrame {
        for _ in 0..TRIES_MAX {
            let ready = match prepared {
                PreparedSend::Answered(ack) => return *ack,
                PreparedSend::Ready(ready) => ready,
            };
            match self.commit_send(sender, &ready).await {
                Ok(id) => {
                    let accepted = Accepted {
                        broker_message_id: id,
                        history_id: id,
                        client_message_id: ready.checked.id().cloned(),
                    };
                    return accepted.to_ack(send.id.as_deref());
                }
                // The id was used at the same time, or a list changed.
                Err(Error::Refused(
                    Refusal::AlreadyBegun { .. } | Refusal::OnceConflict { .. },
                )) => {}
                Err(error) if was_changed(&error) => {
                    // The kept lists are outdated: the next try needs the present ones.
                    if let Err(error) = self.resolve_now(sender, &ready.checked).await {
                        return unavailable(&error).to_ack(send.id.as_deref(), None);
                    }
                }
                Err(error) => return unavailable(&error).to_ack(send.id.as_deref(), None),
            }
            prepared = self.prepare_from(sender, send, true).await;
        }
        let busy = AcceptRefusal::new(AcceptReason::Unavailable, "too many changes at once");
        busy.to_ack(send.id.as_deref(), None)
    }

    /// `again` for a message that was counted by the rate limit before.
    async fn prepare_from(
        &self,
        sender: &MeshSender,
        send: &SendFrame,
        again: bool,
    ) -> PreparedSend {
        let id = send.id.as_deref();
        let checked = match check_send(send) {
            Ok(checked) => checked,
            Err(refusal) => return answered(refusal.to_ack(id, None)),
        };
        let answer = match self.try_prepare(sender, checked, id, again).await {
            Ok(Ok(ready)) => return PreparedSend::Ready(Box::new(ready)),
            Ok(Err(ack)) => ack,
            Err(error) => unavailable(&error).to_ack(id, None),
        };
        answered(answer)
    }

    async fn try_prepare(
        &self,
        sender: &MeshSender,
        checked: CheckedSend,
        id: Option<&str>,
        again: bool,
    ) -> Result<Result<ReadySend, AckFrame>, Error> {
        let client_id = checked.id().cloned();
        let refused = |refusal: AcceptRefusal| Ok(Err(refusal.to_ack(id, client_id.as_ref())));
        if let Some(key) = client_id.as_ref().filter(|_| self.compares_fingerprints()) {
            let once = message_key(&sender.mesh.id, key);
            if let Some(first) = self.engine().first_use(once).await? {
                let answer = self.answer_repeated(sender, &checked, key, &first, id);
                return Ok(Err(answer.await?));
            }
        }
        if !again {
            let (mesh, rate) = (&sender.mesh.id, &self.inner.send_rate);
            let client_id = client_id.as_ref().map(ClientMessageId::as_str);
            if let Err(wait_ms) = rate.charge(mesh, &sender.member_id, client_id) {
                let text = format!("too many messages; retry in {wait_ms} ms");
                return refused(AcceptRefusal::new(AcceptReason::RateLimit, text));
            }
        }
        let refused_when_counted = |refusal: AcceptRefusal| {
            if !again {
                let counters = &self.inner.counters;
                counters.count(BrokerMetric::RATE_THEN_REJECTED, &[]);
            }
            refused(refusal)
        };
        let plan = match self.plan(sender, &checked).await? {
            Ok(plan) => plan,
            Err(refusal) => return refused_when_counted(refusal),
        };
        let key = match checked.key(&plan.target) {
            Ok(_) if !self.compares_fingerprints() => SendKey::Unkeyed,
            Ok(key) => key,
            Err(refusal) => {
                if refusal.reason == AcceptReason::KeyReused {
                    self.count_mismatch(sender);
                }
                return refused(refusal);
            }
        };
        let stored = MeshPayload::new(sender, &checked, &key, &plan);
        let topic = plan.topic.as_ref().map(|topic| topic.value.name.as_str());
        let is_pushed = !matches!(plan.target, ResolvedTarget::Queue(_));
        // No client could read it, so it would be delivered again and again until its end.
        if is_pushed && !stored.fits_push(sender, topic) {
            let text = "the frame for its recipients is too long";
            return refused_when_counted(AcceptRefusal::new(AcceptReason::PayloadTooLarge, text));
        }
        Ok(Ok(ReadySend {
            checked,
            key,
            plan,
            stored,
        }))
    }

    fn count_mismatch(&self, sender: &MeshSender) {
        let labels = [sender.member_id.as_str(), sender.mesh.id.as_str()];
        let counters = &self.inner.counters;
        counters.count(BrokerMetric::FINGERPRINT_MISMATCHES, &labels);
    }

    /// Off by the operator's switch: ids are not compared and not used up.
    pub(super) fn compares_fingerprints(&self) -> bool {
        self.inner.settings.dedupe_is_enforced
    }

    async fn commit_send(
        &self,
        sender: &MeshSender,
        ready: &ReadySend,
    ) -> Result<BrokerMessageId, Error> {
        let engine = self.engine();
        let mut commit = None;
        let mut message = IntentId([0; 16]);
        let committed = poll_fn(|cx| {
            let future = match &mut commit {
                Some(future) => future,
                none => {
                    let last = &self.inner.last_message_id.0;
                    // Held until the commit is queued.
                    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                    last.0 = engine.now().0.max(last.0 + 1);
                    message = IntentId::new(*last, Seq(0), engine.entropy().draw());
                    let unit = unit_of(sender, ready, message);
                    let future = none.insert(Box::pin(engine.commit(unit)));
                    return match future.as_mut().poll(cx) {
                        Poll::Ready(done) => Poll::Ready(done),
                        Poll::Pending => Poll::Pending,
                    };
                }
            };
            future.as_mut().poll(cx)
        });
        committed.await?;
        Ok(BrokerMessageId::from_bytes(message.0))
    }
}

/// All that an accepted message writes.
fn unit_of(sender: &MeshSender, ready: &ReadySend, id: IntentId) -> UnitOfWork {
    let ReadySend {
        checked,
        key,
        plan,
        stored,
    } = ready;
    let mesh = &sender.mesh;
    let destination = plan.target.destination();
    let kept_us = i64::from(mesh.message_days).saturating_mul(DAY_US);
    let lives_us = if plan.is_history {
        kept_us
    } else {
        kept_us.min(UNDELIVERED_US)
    };
    let (client_id, once) = match key {
        SendKey::Unkeyed => (None, None),
        SendKey::Keyed { id, fingerprint } => {
            let guard = OnceGuard {
                key: message_key(&mesh.id, id),
                fingerprint: fingerprint.to_bytes(),
                lifetime_us: match mesh.dedupe {
                    DedupeRetention::Days(days) => i64::from(days).saturating_mul(DAY_US),
                    DedupeRetention::Permanent => i64::MAX,
                },
            };
            (Some(id.to_string()), Some(guard))
        }
    };
    let mut unit = UnitOfWork::default();
    plan.roster.expect_unchanged(&mut unit);
    if let Some(topic) = &plan.topic {
        unit.expect_unchanged(topic);
    }
    unit.begin(Begin {
        id,
        item: NewIntent {
            goal: destination.kind().as_str().to_owned(),
            owner: plan.owner.clone(),
            target: Some(destination.reference()),
            capability: client_id,
            payload: stored.to_text(),
            delay_us: lives_us,
            ttl_us: kept_us,
            once,
            ties: Ties {
                sender: Some(sender.member_id.clone()),
                ..Ties::default()
            },
            ..row(ProfileId::MeshMessage, &mesh.id)
        },
        hold: None,
        within: None,
        walk: Vec::new(),
        detail: None,
    });
    let ends_us = UNDELIVERED_US.min(kept_us);
    let deliveries = plan.recipients.iter().map(|recipient| NewIntent {
        goal: checked.priority.as_str().to_owned(),
        owner: recipient.member_id.clone(),
        capability: Some(recipient.capability()),
        payload: "{}".to_owned(),
        ttl_us: ends_us,
        ties: of_message(id),
        ..row(ProfileId::MeshDelivery, &mesh.id)
    });
    let mut rows: Vec<NewIntent> = deliveries.collect();
    let items = plan.queues.iter().map(|queue| NewIntent {
        goal: queue.to_string(),
        owner: mesh.slug.clone(),
        payload: stored.to_work(sender, plan, id),
        ttl_us: kept_us,
        ties: of_message(id),
        ..row(ProfileId::MeshQueue, &queue_namespace(queue.as_str()))
    });
    rows.extend(items);
    if !rows.is_empty() {
        unit.admit(rows);
    }
    unit
}

/// The namespace of the items of a named queue. Their owner is the short name of the mesh, which never changes.
pub fn queue_namespace(queue: &str) -> String {
    format!("mesh.{queue}")
}

/// The once-key of an id in a mesh.
pub fn message_key(mesh_id: &str, id: &ClientMessageId) -> OnceKey {
    OnceKey {
        scope: Scope::MeshMessage,
        owner: mesh_id.to_owned(),
        key: id.to_string(),
    }
}

fn of_message(id: IntentId) -> Ties {
    Ties {
        parent: Some(id),
        ..Ties::default()
    }
}

fn row(profile: ProfileId, namespace: &str) -> NewIntent {
    NewIntent {
        profile,
        namespace: namespace.to_owned(),
        goal: String::new(),
        owner: String::new(),
        public: false,
        target: None,
        capability: None,
        priority: 0,
        payload: String::new(),
        traceparent: None,
        delay_us: 0,
        ttl_us: 0,
        attempts_max: consign_kernel::limits::ATTEMPTS_DEFAULT,
        backoff_us: consign_kernel::ids::SECOND_US,
        once: None,
        ties: Ties::default(),
        unless: None,
    }
}

fn answered(ack: AckFrame) -> PreparedSend {
    PreparedSend::Answered(Box::new(ack))
}

/// The ledger does not answer: the sender may try again with the same id.
fn unavailable(error: &Error) -> AcceptRefusal {
    tracing::warn!(%error, "a message was not accepted");
    AcceptRefusal::new(AcceptReason::Unavailable, "the ledger is not available")
}

impl RecipientRow {
    fn capability(&self) -> String {
        match self.session {
            Some(session) => session_capability(session),
            None => member_capability(),
        }
    }
}
