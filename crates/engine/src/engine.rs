//! The handle that every face uses.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use consign_kernel::command::{Answer, Claim, Command, Gate, OnRefusal, Operate, Request};
use consign_kernel::error::Refusal;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{Entropy, FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::once::{FirstUse, OnceKey};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::receipt::{PublicKey, Signer};
use consign_kernel::record::{self, ApiKey, Record};
use consign_kernel::state::State;
use consign_store::{
    Clock, Count, EventFilter, EventPage, IntentFilter, IntentPage, JobCount, MessageCount,
    MessageFilter, MessageTally, News, Outline, OutlinePage, SharedStore, Stats, TypedReads as _,
};
use tokio::sync::{Notify, broadcast, watch};

use crate::Error;
use crate::answers::typed;
use crate::clock::WallClock;
use crate::followers::Followers;
use crate::housekeeping::CleanupSchedule;
use crate::keys::{KeyRights, SealKey};
use crate::ledger_health::HealthProbe;
use crate::nodes::ClaimPause;
use crate::seeds::Seeds;
use crate::skipped_steps::SkippedSteps;
use crate::slots::{Slot, Slots};
use crate::step_meter::{StepFigures, StepMeter};
use crate::users::SignIns;
use crate::wakes::Wakes;

/// Correctness rests on polling; wakes only reduce latency.
const POLL: Duration = Duration::from_secs(5);

// Open streams and waiting claims use memory even when idle, so each key has a limit.
const STREAMS_MAX: usize = 1_024;
const STREAMS_PER_KEY_MAX: usize = 8;
/// No key has this id.
const OPERATOR_STREAMS: &str = "operator";
const OPERATOR_STREAMS_MAX: usize = 64;
const WAITS_MAX: usize = 4_096;
const WAITS_PER_KEY_MAX: usize = 32;

/// Facts of one intent in a timeline.
const TIMELINE_FACTS_MAX: u32 = 1_000;

pub struct Options {
    pub store: SharedStore,
    pub clock: Arc<dyn Clock>,
    pub wall: Arc<dyn WallClock>,
    /// Seed of all tokens, ids and jitter, from the operating system.
    pub entropy: [u8; 32],
    pub seal: SealKey,
    pub signer: Signer,
    /// The main API key.
    pub main_key: String,
    pub cleanup_interval: Duration,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("cleanup_interval", &self.cleanup_interval)
            .finish_non_exhaustive()
    }
}

/// The only access to the ledger. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<EngineState>,
}

pub(crate) struct EngineState {
    pub(crate) store: SharedStore,
    pub(crate) clock: Arc<dyn Clock>,
    wall: Arc<dyn WallClock>,
    pub(crate) seeds: Seeds,
    wakes: Wakes,
    followers: Followers,
    steps: StepMeter,
    waits: Slots<String>,
    streams: Slots<String>,
    pub(crate) health_probe: HealthProbe,
    /// Wakes the timekeeper when a row is due earlier than planned.
    pub(crate) earlier: Notify,
    pub(crate) planned: std::sync::atomic::AtomicI64,
    pub(crate) seal: SealKey,
    pub(crate) signer: Signer,
    pub(crate) main_digest: [u8; 32],
    pub(crate) cleanup: CleanupSchedule,
    pub(crate) claim_pause: ClaimPause,
    pub(crate) sign_ins: SignIns,
    /// The number of audit entries that this process wrote.
    pub(crate) audited: AtomicU32,
    /// Wakes the runner of bulk jobs.
    pub(crate) bulk: Notify,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

/// An authenticated client. Only [`Engine::authenticate`] creates one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub(crate) id: String,
    pub(crate) main: bool,
    /// None for the main key.
    pub(crate) rights: Option<Arc<KeyRights>>,
}

impl Caller {
    /// The key id, which is not secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The main key may read all intents and has no rate limit.
    pub fn is_main(&self) -> bool {
        self.main
    }

    /// The checks that commit together with this caller's work.
    pub fn gate(&self, nonce: Option<String>, cost: u32) -> Option<Gate> {
        (!self.main || nonce.is_some()).then(|| Gate {
            caller: self.id.clone(),
            metered: !self.main,
            nonce,
            cost,
        })
    }
}

/// Proof that admin credentials were checked. A handler without the check does not compile.
#[derive(Clone, Copy, Debug)]
pub struct Operator(());

impl Operator {
    /// Only for the check of admin credentials and for the local command line.
    pub fn vouched() -> Self {
        Self(())
    }
}

impl Engine {
    pub fn new(options: Options) -> Self {
        let now = options.clock.now();
        let engine = Self {
            inner: Arc::new(EngineState {
                store: options.store,
                clock: options.clock,
                wall: options.wall,
                seeds: Seeds::new(options.entropy),
                wakes: Wakes::default(),
                followers: Followers::default(),
                steps: StepMeter::default(),
                waits: Slots::default(),
                streams: Slots::default(),
                health_probe: HealthProbe::default(),
                earlier: Notify::new(),
                planned: std::sync::atomic::AtomicI64::new(i64::MAX),
                seal: options.seal,
                signer: options.signer,
                main_digest: crate::keys::digest(&options.main_key),
                cleanup: CleanupSchedule::new(now, options.cleanup_interval),
                claim_pause: ClaimPause::default(),
                sign_ins: SignIns::default(),
                audited: AtomicU32::new(0),
                bulk: Notify::new(),
            }),
        };
        let weak = Arc::downgrade(&engine.inner);
        engine.inner.store.listen(Box::new(move |news| {
            if let Some(inner) = weak.upgrade() {
                inner.publish_signals(news);
            }
        }));
        engine
    }

    pub fn now(&self) -> Micros {
        self.inner.clock.now()
    }

    /// Fresh entropy for one purpose.
    pub fn entropy(&self) -> Entropy {
        Entropy::new(self.inner.seeds.next())
    }

    /// The time of day, which decides about ends that others signed.
    pub fn time_of_day(&self) -> Micros {
        self.inner.clock.time_of_day()
    }

    pub fn wall(&self) -> Micros {
        self.inner.wall.wall()
    }

    pub fn stats(&self) -> Stats {
        self.inner.store.stats()
    }

    /// What this process has committed since its start.
    pub fn step_figures(&self) -> StepFigures {
        self.inner.steps.figures()
    }

    /// The number of lanes that claims wait for.
    pub fn waiters(&self) -> usize {
        self.inner.wakes.waiters()
    }

    pub fn public_keys(&self) -> Vec<PublicKey> {
        vec![self.inner.signer.public().clone()]
    }

    /// Executes commands in one commit and returns after the commit. A refused step does not affect the others.
    pub async fn execute(
        &self,
        gate: Option<Gate>,
        steps: Vec<Command>,
    ) -> Result<Vec<Result<Answer, Refusal>>, Error> {
        self.run(gate, steps, OnRefusal::Continue).await
    }

    pub(crate) async fn run(
        &self,
        gate: Option<Gate>,
        mut steps: Vec<Command>,
        on_refusal: OnRefusal,
    ) -> Result<Vec<Result<Answer, Refusal>>, Error> {
        if plant::on(Plant::TornBatch)
            && let [Command::Admit(admit)] = steps.as_slice()
        {
            return self.admit_one_per_commit(gate, admit).await;
        }
        let leases = |step: &Command| {
            matches!(
                step,
                Command::Claim(_) | Command::Take(_) | Command::Begin(_)
            )
        };
        // Ordering: a lease request is counted before the pause is checked, so a node that starts to drain sees every
        // request that passed the check.
        let _in_flight = steps
            .iter()
            .any(leases)
            .then(|| self.inner.claim_pause.begin_lease_request());
        let skipped = self
            .claims_paused()
            .map(|_| SkippedSteps::remove_from(&mut steps, self.has_wrong_clock()))
            .transpose()?;
        if skipped.is_some() && gate.is_none() && steps.is_empty() {
            return Ok(insert_skipped(skipped, Vec::new()));
        }
        let request = Request {
            gate,
            steps,
            on_refusal,
            seed: self.inner.seeds.next(),
        };
        let answers = self.inner.store.execute(request).await??;
        Ok(insert_skipped(skipped, answers))
    }

    /// Executes one command.
    pub async fn apply(&self, gate: Option<Gate>, command: Command) -> Result<Answer, Error> {
        let answer = self.execute(gate, vec![command]).await?.pop();
        Ok(answer.ok_or_else(|| Error::Internal("a step without an answer".to_owned()))??)
    }

    /// Only the gate, for requests that only read.
    pub async fn pass(&self, gate: Option<Gate>) -> Result<(), Error> {
        if gate.is_some() {
            self.execute(gate, Vec::new()).await?;
        }
        Ok(())
    }

    /// Claims, and waits up to `wait` for a claimable intent.
    pub async fn claim(
        &self,
        gate: Option<Gate>,
        claim: Claim,
        wait: Duration,
    ) -> Result<Vec<Intent>, Error> {
        let for_good = std::future::pending();
        self.claim_unless(gate, claim, wait, for_good).await
    }

    /// Like [`Engine::claim`], but the wait also ends with `leave`.
    ///
    /// Only the wait is cut short, never a claim in progress: it may have taken an intent already, and dropping it
    /// would leave that intent leased without a holder.
    pub async fn claim_unless(
        &self,
        gate: Option<Gate>,
        claim: Claim,
        wait: Duration,
        leave: impl Future<Output = ()>,
    ) -> Result<Vec<Intent>, Error> {
        self.claim_polling(gate, claim, wait, POLL, leave).await
    }

    /// Like [`Engine::claim_unless`], but the ledger is asked again after `poll` without a wake. With many waiting claims
    /// that rarely find anything, a long time saves queries; a wake that is lost is then noticed late.
    pub async fn claim_polling(
        &self,
        gate: Option<Gate>,
        claim: Claim,
        wait: Duration,
        poll: Duration,
        leave: impl Future<Output = ()>,
    ) -> Result<Vec<Intent>, Error> {
        if wait.is_zero() {
            return typed(self.apply(gate, Command::Claim(claim)).await?);
        }
        let deadline = tokio::time::Instant::now() + wait;
        let ticket = self.inner.wakes.register(claim.probes());
        // A long poll counts as one request. A key that is revoked meanwhile claims nothing more.
        let again = gate.as_ref().filter(|gate| gate.metered).map(|gate| Gate {
            nonce: None,
            cost: 0,
            ..gate.clone()
        });
        let mut gate = gate;
        let mut claim_pause = self.inner.claim_pause.subscribe();
        tokio::pin!(leave);
        loop {
            let looking = self
                .apply(gate.take(), Command::Claim(claim.clone()))
                .await?;
            let found: Vec<Intent> = typed(looking)?;
            if !found.is_empty() {
                ticket.found();
                return Ok(found);
            }
            ticket.found_nothing();
            gate.clone_from(&again);
            let now = tokio::time::Instant::now();
            if now >= deadline {
                return Ok(found);
            }
            let pause = poll.min(deadline - now);
            // The ledger is asked again, woken or not. Ordering: what makes a caller leave may also change what it may claim,
            // so a wake that arrives at the same time does not come first.
            tokio::select! {
                biased;
                () = &mut leave => return Ok(Vec::new()),
                _ = tokio::time::timeout(pause, ticket.woken()) => {}
                // Claims may be allowed again.
                _ = claim_pause.changed() => {}
            }
        }
    }

    /// The current state of an intent. An expired lease is processed first, unless this node's clock is wrong.
    pub async fn observe(&self, id: IntentId) -> Result<Option<Intent>, Error> {
        let Some(intent) = self.inner.store.intent(id).await? else {
            return Ok(None);
        };
        let is_over = intent.shelf == Shelf::Leased && intent.wake_at <= self.now();
        if !is_over || self.has_wrong_clock() {
            return Ok(Some(intent));
        }
        let seen: Option<Box<Intent>> = self.call(Command::Observe(id)).await?;
        Ok(seen.map(|intent| *intent))
    }

    /// A row as it is stored, whatever deadlines have passed.
    pub async fn stored_intent(&self, id: IntentId) -> Result<Option<Intent>, Error> {
        Ok(self.inner.store.intent(id).await?)
    }

    /// Several rows by their ids in one read, in any order; missing ones are left out.
    pub async fn intents_by_id(&self, ids: Vec<IntentId>) -> Result<Vec<Intent>, Error> {
        Ok(self.inner.store.intents_by_id(ids).await?)
    }

    pub async fn intents(&self, filter: IntentFilter) -> Result<IntentPage, Error> {
        Ok(self.inner.store.intents(filter).await?)
    }

    /// Intents without payload and result.
    pub async fn outlines(&self, filter: IntentFilter) -> Result<OutlinePage, Error> {
        Ok(self.inner.store.outlines(filter).await?)
    }

    pub async fn dead(&self, _: Operator, face: Face, limit: u32) -> Result<Vec<Intent>, Error> {
        self.sweep().await?;
        Ok(self.inner.store.dead(face, limit).await?)
    }

    /// Messages of a profile: rows with a sender, whose owner is the recipient.
    pub async fn messages(&self, filter: MessageFilter) -> Result<Vec<Intent>, Error> {
        Ok(self.inner.store.messages(filter).await?)
    }

    /// How many messages there are by one of their properties, from a name on, in the order of names.
    pub async fn message_counts(
        &self,
        face: Face,
        tally: MessageTally,
        from: &str,
        limit: u32,
    ) -> Result<Vec<MessageCount>, Error> {
        let counts = self
            .inner
            .store
            .message_counts(face, tally, from.to_owned(), limit);
        Ok(counts.await?)
    }

    /// The first use of a once-key.
    pub async fn first_use(&self, key: OnceKey) -> Result<Option<FirstUse>, Error> {
        Ok(self.inner.store.first_use(key).await?)
    }

    pub async fn timeline(&self, intent: Seq) -> Result<Vec<Fact>, Error> {
        Ok(self.inner.store.facts(intent, TIMELINE_FACTS_MAX).await?)
    }

    pub async fn events(&self, filter: EventFilter) -> Result<EventPage, Error> {
        Ok(self.inner.store.events(filter).await?)
    }

    /// The facts of all owners, or only those of one face.
    pub async fn all_events(
        &self,
        _: Operator,
        face: Option<Face>,
        after: FactSeq,
        limit: u32,
    ) -> Result<EventPage, Error> {
        Ok(self.inner.store.all_events(face, after, limit).await?)
    }

    /// The position at which a stream of new events begins.
    pub async fn last_fact(&self) -> Result<FactSeq, Error> {
        Ok(self.inner.store.last_fact().await?)
    }

    /// Whether this ledger may have issued this fact number. A number that it has not issued belongs to another
    /// ledger, or to this one before a restore; a stream that continues after it would miss events.
    pub async fn has_issued_fact(&self, fact: FactSeq) -> Result<bool, Error> {
        Ok(fact <= self.inner.store.highest_fact().await?)
    }

    /// Changes whenever the caller's intents have new facts; a hint to read them.
    pub fn follow(&self, caller: &Caller) -> watch::Receiver<()> {
        self.inner.followers.follow(&caller.id)
    }

    /// The same for code that acts for a publisher.
    pub fn follow_publisher(&self, id: &str) -> watch::Receiver<()> {
        self.inner.followers.follow(id)
    }

    /// Receives the owners of all new facts, also of those of other nodes; an empty set if they are unknown. A reader that
    /// falls behind misses some.
    pub fn follow_owners(&self) -> broadcast::Receiver<Arc<BTreeSet<String>>> {
        self.inner.followers.follow_owners()
    }

    /// A slot for an event stream, if the caller has one left.
    pub fn stream_slot(&self, caller: &Caller) -> Option<Slot<String>> {
        let own_max = if caller.main {
            STREAMS_MAX
        } else {
            STREAMS_PER_KEY_MAX
        };
        self.inner.streams.take(&caller.id, own_max, STREAMS_MAX)
    }

    /// A slot for an event stream of an operator, if there is one left.
    pub fn operator_stream_slot(&self, _: Operator) -> Option<Slot<String>> {
        self.inner.streams.take(
            &OPERATOR_STREAMS.to_owned(),
            OPERATOR_STREAMS_MAX,
            STREAMS_MAX,
        )
    }

    /// A slot for a waiting claim, if the caller has one left.
    pub fn wait_slot(&self, caller: &Caller) -> Option<Slot<String>> {
        let own_max = if caller.main {
            WAITS_MAX
        } else {
            WAITS_PER_KEY_MAX
        };
        self.inner.waits.take(&caller.id, own_max, WAITS_MAX)
    }

    /// Whether the caller's key is still valid, for requests that last long.
    pub async fn is_active(&self, caller: &Caller) -> Result<bool, Error> {
        if caller.main {
            return Ok(true);
        }
        let key = self.load::<ApiKey>(ApiKey::key(&caller.id)).await?;
        Ok(key.is_some_and(|key| !key.value.is_expired(self.now())))
    }

    pub async fn counts(&self, _: Operator, face: Face) -> Result<Vec<Count>, Error> {
        self.sweep().await?;
        Ok(self.inner.store.counts(face).await?)
    }

    pub async fn cancel(
        &self,
        _: Operator,
        face: Face,
        id: IntentId,
        reason: &str,
    ) -> Result<(), Error> {
        let operate = Operate {
            id,
            face,
            reason: reason.to_owned(),
        };
        self.apply(None, Command::Cancel(operate)).await.map(|_| ())
    }

    /// Like [`Engine::cancel`], but refused if the work is completed.
    pub async fn cancel_unfinished(
        &self,
        _: Operator,
        face: Face,
        id: IntentId,
        reason: &str,
    ) -> Result<(), Error> {
        let operate = Operate {
            id,
            face,
            reason: reason.to_owned(),
        };
        self.apply(None, Command::CancelUnfinished(operate))
            .await
            .map(|_| ())
    }

    pub async fn requeue(
        &self,
        _: Operator,
        face: Face,
        id: IntentId,
        reason: &str,
    ) -> Result<(), Error> {
        let operate = Operate {
            id,
            face,
            reason: reason.to_owned(),
        };
        self.requeue_by(Command::Requeue(operate), id).await
    }

    /// Like [`Engine::requeue`], but refused if the work is completed.
    pub async fn requeue_unfinished(
        &self,
        _: Operator,
        face: Face,
        id: IntentId,
        reason: &str,
    ) -> Result<(), Error> {
        let operate = Operate {
            id,
            face,
            reason: reason.to_owned(),
        };
        self.requeue_by(Command::RequeueUnfinished(operate), id)
            .await
    }

    async fn requeue_by(&self, command: Command, id: IntentId) -> Result<(), Error> {
        if self.is_effect(id).await? {
            return Err(Refusal::EffectOnce.into());
        }
        self.apply(None, command).await.map(|_| ())
    }

    /// Whether the intent is the effect of a transaction. An effect is handed out once, because its first holder may
    /// have executed it.
    async fn is_effect(&self, id: IntentId) -> Result<bool, Error> {
        let store = &self.inner.store;
        let row = store.intent(id).await?;
        let Some(parent) = row.and_then(|row| row.ties.parent) else {
            return Ok(false);
        };
        let parent = store.intent(parent).await?;
        Ok(parent.is_some_and(|row| row.profile == ProfileId::AtpTransaction))
    }

    pub async fn record(&self, key: record::Key) -> Result<Option<Record>, Error> {
        Ok(self.inner.store.record(key).await?)
    }

    /// Several records in one read; missing ones are left out.
    pub async fn records_by_key(&self, keys: Vec<record::Key>) -> Result<Vec<Record>, Error> {
        Ok(self.inner.store.records_by_key(keys).await?)
    }

    pub async fn records(
        &self,
        kind: record::Kind,
        owner: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Record>, Error> {
        let (owner, after) = (owner.to_owned(), after.to_owned());
        Ok(self.inner.store.records(kind, owner, after, limit).await?)
    }

    /// The newest records first; see [`consign_store::Query::Records`].
    pub async fn last_records(
        &self,
        kind: record::Kind,
        owner: &str,
        before: &str,
        limit: u32,
    ) -> Result<Vec<Record>, Error> {
        let (owner, before) = (owner.to_owned(), before.to_owned());
        let last = self.inner.store.last_records(kind, owner, before, limit);
        Ok(last.await?)
    }

    /// Jobs that are queued or running; see [`consign_store::Query::OpenJobs`].
    pub async fn open_jobs(
        &self,
        capability: &str,
        goal: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Outline>, Error> {
        let (capability, goal) = (capability.to_owned(), goal.map(str::to_owned));
        Ok(self.inner.store.open_jobs(capability, goal, limit).await?)
    }

    /// Jobs that are queued or running, oldest first; see [`consign_store::Query::JobsByState`].
    pub async fn jobs_by_state(
        &self,
        state: Option<State>,
        limit: u32,
    ) -> Result<Vec<Outline>, Error> {
        Ok(self.inner.store.jobs_by_state(state, limit).await?)
    }

    /// The number of queued and running jobs by capability.
    pub async fn job_counts(&self) -> Result<Vec<JobCount>, Error> {
        Ok(self.inner.store.job_counts(self.now()).await?)
    }

    /// The jobs that a job started; see [`consign_store::Query::ChildJobs`].
    pub async fn child_jobs(&self, parent: IntentId, limit: u32) -> Result<Vec<Outline>, Error> {
        Ok(self.inner.store.child_jobs(parent, limit).await?)
    }

    /// Finds a job by a text in its payload; see [`consign_store::Query::JobByPayload`].
    pub async fn find_job_by_payload(
        &self,
        text: &str,
        after: IntentId,
        scan_max: u32,
    ) -> Result<Option<Outline>, Error> {
        let store = &self.inner.store;
        let found = store.find_job_by_payload(text.to_owned(), after, scan_max);
        Ok(found.await?)
    }

    /// Rows of a profile that are leased or can be claimed; see [`consign_store::Query::ActiveRows`].
    pub async fn active_rows(
        &self,
        profile: ProfileId,
        state: State,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<Intent>, Error> {
        let found = self.inner.store.active_rows(profile, state, after, limit);
        Ok(found.await?)
    }

    /// The intents that an intent created, in the order of admission.
    pub async fn children(&self, parent: IntentId, limit: u32) -> Result<Vec<Intent>, Error> {
        Ok(self.inner.store.children(parent, limit).await?)
    }
}

impl EngineState {
    /// Passes the effects of a commit on to waiting claims, streams and the timekeeper.
    fn publish_signals(&self, news: &News) {
        if news.missed {
            self.wakes.wake_all();
            self.followers.tell_all();
            self.earlier.notify_one();
        }
        if news.heard {
            self.wakes.wake_heard(&news.ripe);
        } else {
            self.wakes.wake(&news.ripe);
        }
        self.wakes.wake(&news.left);
        if let Some(at) = news.wake_at
            && at.0 < self.planned.load(std::sync::atomic::Ordering::Acquire)
        {
            self.earlier.notify_one();
        }
        self.followers.tell(&news.told);
        self.steps.count(&news.steps);
    }
}

fn insert_skipped(
    skipped: Option<SkippedSteps>,
    mut answers: Vec<Result<Answer, Refusal>>,
) -> Vec<Result<Answer, Refusal>> {
    if let Some(skipped) = skipped {
        skipped.insert_into(&mut answers);
    }
    answers
}
