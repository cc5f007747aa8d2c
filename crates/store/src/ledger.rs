//! What all backends do alike with a request: load what a command needs, let the kernel decide, write the decision.
//!
//! A backend brings a [`Tx`]: plain loads and writes inside one transaction, without a rule of its own.

use std::collections::{BTreeSet, HashMap};

use consign_kernel::command::{Answer, Command, Forget, ForgetFacts, OnRefusal, Reply, Request};
use consign_kernel::decide::{Cx, Decided, Needs, Pending, Sweeps, View, Write, gate};
use consign_kernel::error::Refusal;
use consign_kernel::fact::Fact;
use consign_kernel::ids::{Entropy, FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Series, Shelf};
use consign_kernel::lane::{Lanes, Probe};
use consign_kernel::limits;
use consign_kernel::once;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{self, ApiKey, Record};
use consign_kernel::state::State;

use crate::{Clock, Error, MessageTally, StepTally};

/// What others should hear of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Lanes in which a row became claimable: once for each row, or once for all of them if it was `heard`.
    pub ripe: Vec<Probe>,
    /// The same for rows that the commit held and did not change: others may have passed over them.
    pub left: Vec<Probe>,
    /// The earliest end of a delay or a lease that was written.
    pub wake_at: Option<Micros>,
    /// Owners whose intents have news.
    pub told: BTreeSet<String>,
    /// What happened to rows, for the metrics of this process.
    pub steps: StepTally,
    /// Another node told this.
    pub heard: bool,
    /// Notifications of other nodes may have been missed, so every waiting claim, every stream and the timekeeper query again.
    pub missed: bool,
}

impl News {
    pub fn is_empty(&self) -> bool {
        self.ripe.is_empty()
            && self.left.is_empty()
            && self.wake_at.is_none()
            && self.told.is_empty()
            && !self.missed
    }
}

/// The stored code of [`Counter::Unconsented`]. Any client can create such a counter, so it is deleted when it reaches zero.
/// The same applies to counters with higher codes; in PostgreSQL these stay, because each is a sum over shards.
pub(crate) const UNCONSENTED: u8 = 2;
/// The profile whose messages are counted by their parties and times.
const COUNTED_MESSAGES: ProfileId = ProfileId::BeamBus;

/// What a counter counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Counter {
    State {
        face: Face,
        namespace: String,
        state: State,
    },
    Unsettled {
        face: Face,
        owner: String,
    },
    /// Permissions without consent that `of` asked for; those of all if it is empty.
    Unconsented {
        face: Face,
        of: String,
    },
    /// Messages of a queue, by one of their properties.
    Messages {
        face: Face,
        tally: MessageTally,
        name: String,
    },
}

impl Counter {
    /// As it is stored: its kind, face, name and state.
    pub(crate) fn key(&self) -> (u8, u8, &str, u8) {
        match self {
            Self::State {
                face,
                namespace,
                state,
            } => (0, face.code(), namespace, state.code()),
            Self::Unsettled { face, owner } => (1, face.code(), owner, 0),
            Self::Unconsented { face, of } => (UNCONSENTED, face.code(), of, 0),
            Self::Messages { face, tally, name } => (tally.kind(), face.code(), name, 0),
        }
    }

    /// Reads the key of a counter that counts no states.
    pub(crate) fn named(kind: u8, face: Face, name: String) -> Self {
        match (MessageTally::of_kind(kind), kind) {
            (Some(tally), _) => Self::Messages { face, tally, name },
            (None, UNCONSENTED) => Self::Unconsented { face, of: name },
            (None, _) => Self::Unsettled { face, owner: name },
        }
    }

    /// The counters of messages in which this one counts.
    pub(crate) fn messages(intent: &Intent) -> Vec<Self> {
        if intent.profile != COUNTED_MESSAGES {
            return Vec::new();
        }
        let face = intent.profile.profile().face;
        let interval = MessageTally::interval_of(intent.created_at);
        let names = [
            (MessageTally::Sender, intent.ties.sender.clone()),
            (MessageTally::Recipient, Some(intent.owner.clone())),
            (MessageTally::Interval, Some(interval)),
        ];
        let named = names.into_iter().filter_map(|(tally, name)| {
            let name = name?;
            Some(Self::Messages { face, tally, name })
        });
        named.collect()
    }

    /// The counters of rows without consent in which this one counts.
    pub(crate) fn unconsented(intent: &Intent) -> Vec<Self> {
        let face = intent.profile.profile().face;
        // Rows that were written before these counters existed have no target.
        match &intent.target {
            Some(of) if intent.is_unconsented() => {
                let all = String::new();
                vec![
                    Self::Unconsented { face, of: all },
                    Self::Unconsented {
                        face,
                        of: of.clone(),
                    },
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// One open transaction of a backend.
pub(crate) trait Tx {
    /// Sees to it that the sequences have numbers left for one more command.
    fn reserve(&mut self, _position: &mut Position) -> Result<(), Error> {
        Ok(())
    }
    fn intent(&mut self, id: IntentId) -> Result<Option<Intent>, Error>;
    /// The best claimable rows of these lanes, best first, each once.
    fn pick(&mut self, probes: &[Probe], limit: u32) -> Result<Vec<Intent>, Error>;
    /// Rows of a shelf by deadline, up to and including `until`.
    fn due(
        &mut self,
        shelf: Shelf,
        face: Option<Face>,
        until: Micros,
        limit: u32,
    ) -> Result<Vec<Intent>, Error>;
    /// The last of the next `limit` rows, whosever they are; `None` if there are fewer.
    fn stop(&mut self, after: Seq, limit: u32) -> Result<Option<Seq>, Error>;
    /// Rows of a face up to and including `until`, in the order of admission.
    fn rows(
        &mut self,
        face: Face,
        namespace: Option<&str>,
        after: Seq,
        until: Seq,
    ) -> Result<Vec<Intent>, Error>;
    fn once(&mut self, key: &once::OnceKey) -> Result<Option<once::FirstUse>, Error>;
    fn record(&mut self, key: &record::Key) -> Result<Option<Record>, Error>;
    /// The rows that decide about a series, which is locked until this transaction ends.
    fn series(&mut self, name: &str, now: Micros) -> Result<Series, Error>;
    fn count(&mut self, counter: &Counter) -> Result<i64, Error>;

    /// `lanes` is given exactly when the row is claimable.
    fn insert(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Result<(), Error>;
    fn update(&mut self, intent: &Intent, lanes: Option<&Lanes>) -> Result<(), Error>;
    fn remove(&mut self, seq: Seq) -> Result<(), Error>;
    fn append(&mut self, fact: Fact) -> Result<(), Error>;
    /// Removes a fact of this owner and all those before it in its chain.
    fn remove_facts(&mut self, owner: &str, last: FactSeq) -> Result<(), Error>;
    fn put_once(&mut self, row: once::FirstUse) -> Result<(), Error>;
    /// Notes with the once-row of a message, if it is still that message's, that the message does not exist any more.
    fn message_gone(&mut self, key: &once::OnceKey, message: IntentId) -> Result<(), Error>;
    fn put_record(&mut self, record: Record) -> Result<(), Error>;
    fn delete_record(&mut self, key: &record::Key) -> Result<(), Error>;
    fn add(&mut self, counter: &Counter, delta: i64) -> Result<(), Error>;
    fn forget(&mut self, forget: &Forget, now: Micros) -> Result<u64, Error>;
    /// Looks at the next facts, and removes those of the face that are old enough. Says how many, and which one was the
    /// last if all of them were old enough: only then there may be more, for facts grow older towards the front.
    fn forget_facts(&mut self, forget: &ForgetFacts) -> Result<(u64, Option<FactSeq>), Error>;
    /// See [`News::left`].
    fn left(&self) -> Vec<Probe> {
        Vec::new()
    }
}

/// Where time and the sequences stand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    pub(crate) time: Micros,
    pub(crate) seq: u64,
    pub(crate) fact: u64,
}

/// The shelves of rows that are leased, delayed, or claimable after a lapsed lease.
pub(crate) const UNDER_WAY: [Shelf; 3] = [Shelf::Delayed, Shelf::Leased, Shelf::Lapsed];

/// The profiles of a face, as the codes stored with rows.
pub(crate) fn profiles_of(face: Face) -> impl Iterator<Item = ProfileId> {
    ProfileId::ALL
        .iter()
        .copied()
        .filter(move |id| id.profile().face == face)
}

/// The row in its state before consent.
fn was_received(intent: &Intent) -> Intent {
    Intent {
        state: State::Received,
        ..intent.clone()
    }
}

/// What the clock tells: engine time, and the time of day.
pub(crate) fn instants(clock: &dyn Clock) -> (Micros, Micros) {
    (clock.now(), clock.time_of_day())
}

/// A group that stays open longer than this, because the disk is slow, moves on in time.
const INSTANT_US: i64 = 5_000;

/// Requests that commit together. They share one instant, or a few.
pub(crate) struct Batch<'a, T> {
    tx: &'a mut T,
    now: Micros,
    wall: Micros,
    position: &'a mut Position,
    sweeps: Sweeps,
    deltas: HashMap<Counter, i64>,
    news: News,
    pub(crate) wrote: bool,
}

impl<'a, T: Tx> Batch<'a, T> {
    /// Time never goes back, whatever the clock says.
    pub(crate) fn new(
        tx: &'a mut T,
        (now, wall): (Micros, Micros),
        position: &'a mut Position,
    ) -> Self {
        position.time = position.time.max(now);
        Self {
            tx,
            now: position.time,
            wall,
            position,
            sweeps: Sweeps::default(),
            deltas: HashMap::new(),
            news: News::default(),
            wrote: false,
        }
    }

    pub(crate) fn now_is(&mut self, clock: &dyn Clock) {
        let now = clock.now();
        if now >= self.now.plus(INSTANT_US) {
            self.now = now;
            self.wall = clock.time_of_day();
            self.position.time = now;
            self.sweeps = Sweeps::default();
        }
    }

    /// Runs one request. An error means the transaction must be rolled back as a whole.
    pub(crate) fn run(&mut self, request: &Request) -> Result<Reply, Error> {
        if request.steps.len() > limits::STEPS_MAX {
            return Ok(Err(Refusal::TooManySteps {
                max: limits::STEPS_MAX,
            }));
        }
        if let Some(asked) = &request.gate {
            let key = if asked.metered {
                self.tx.record(&ApiKey::key(&asked.caller))?
            } else {
                None
            };
            let nonce = match asked.nonce_key() {
                Some(key) => self.tx.once(&key)?,
                None => None,
            };
            let decision = gate(asked, key, nonce.as_ref(), self.now);
            self.write_all(decision.writes)?;
            if let Some(refusal) = decision.refusal {
                return Ok(Err(refusal));
            }
        }
        let mut entropy = Entropy::new(request.seed);
        let mut answers = Vec::with_capacity(request.steps.len());
        let mut refused = false;
        for (index, command) in request.steps.iter().enumerate() {
            let answer = if refused {
                Err(Refusal::NotReached)
            } else {
                self.step(command, &mut entropy)?
            };
            refused |= answer.is_err()
                && match request.on_refusal {
                    OnRefusal::Continue => false,
                    OnRefusal::Stop => true,
                    OnRefusal::Guarded => index == 0,
                };
            answers.push(answer);
        }
        Ok(Ok(answers))
    }

    /// Writes what was counted. Call once, before the commit.
    pub(crate) fn finish(mut self) -> Result<News, Error> {
        self.news.left = self.tx.left();
        for (counter, delta) in self.deltas {
            if delta != 0 {
                self.tx.add(&counter, delta)?;
            }
        }
        Ok(self.news)
    }

    /// Loads what the command needs, lets the kernel decide and writes, until the decision is complete.
    fn step(
        &mut self,
        command: &Command,
        entropy: &mut Entropy,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let mut pending = Pending::new(command, &self.sweeps);
        loop {
            let view = self.load(pending.needs(self.now))?;
            self.tx.reserve(self.position)?;
            let before = *self.position;
            let mut cx = Cx {
                now: self.now,
                wall: self.wall,
                entropy,
                last_seq: &mut self.position.seq,
                last_fact: &mut self.position.fact,
                sweeps: &mut self.sweeps,
            };
            match pending.decide(view, &mut cx) {
                Ok(Decided::Done(decision)) => {
                    self.write_all(decision.writes)?;
                    return Ok(Ok(decision.answer));
                }
                Ok(Decided::Again { writes, next }) => {
                    self.write_all(writes)?;
                    pending = next;
                }
                Err(refusal) => {
                    // A refused command leaves no gap in the sequences.
                    *self.position = before;
                    return Ok(Err(refusal));
                }
            }
        }
    }

    fn load(&mut self, needs: Needs<'_>) -> Result<View, Error> {
        let mut view = View::default();
        match needs {
            Needs::Nothing => {}
            Needs::Lanes { probes, max } => view.intents = self.tx.pick(&probes, max)?,
            Needs::Series(name) => view.series.push(Some(self.tx.series(name, self.now)?)),
            Needs::Forget(forget) => {
                view.forgotten = self.tx.forget(forget, self.now)?;
                self.wrote |= view.forgotten > 0;
            }
            Needs::ForgetFacts(forget) => {
                (view.forgotten, view.forgotten_up_to) = self.tx.forget_facts(forget)?;
                self.wrote |= view.forgotten > 0;
            }
            Needs::Intent(id) => {
                let found = self.tx.intent(id)?;
                let name = found.as_ref().and_then(|intent| intent.ties.series.clone());
                if let Some(name) = name {
                    view.series.push(Some(self.tx.series(&name, self.now)?));
                }
                view.intents.extend(found);
            }
            Needs::Restored { id, once } => {
                view.intents.extend(self.tx.intent(id)?);
                if let Some(key) = once {
                    view.once.push(self.tx.once(key)?);
                }
            }
            Needs::Admission {
                once,
                series,
                face,
                owner,
                capped,
            } => {
                for key in once {
                    view.once.push(match key {
                        Some(key) => self.tx.once(key)?,
                        None => None,
                    });
                }
                for name in series {
                    let found = name.map(|name| self.tx.series(name, self.now));
                    view.series.push(found.transpose()?);
                }
                if capped {
                    let counter = Counter::Unsettled {
                        face,
                        owner: owner.to_owned(),
                    };
                    let pending = self.deltas.get(&counter).copied().unwrap_or(0);
                    view.unsettled = u64::try_from(self.tx.count(&counter)? + pending).unwrap_or(0);
                }
            }
            Needs::Due {
                shelves,
                face,
                limit,
            } => {
                for (shelf, until) in shelves {
                    let room =
                        limit.saturating_sub(u32::try_from(view.intents.len()).unwrap_or(u32::MAX));
                    if room > 0 {
                        view.intents.extend(self.tx.due(shelf, face, until, room)?);
                    }
                }
            }
            Needs::Rows {
                face,
                namespace,
                after,
                limit,
            } => {
                // However few of them are wanted, one piece looks at no more than so many.
                view.stopped_at = self.tx.stop(after, limit)?;
                let until = view.stopped_at.unwrap_or(Seq(u64::MAX));
                view.intents = self.tx.rows(face, namespace, after, until)?;
            }
            Needs::Record(key) => view.record = self.tx.record(key)?,
            Needs::Unconsented { face, of } => {
                view.unconsented = (self.unconsented(face, of)?, self.unconsented(face, "")?);
            }
        }
        Ok(view)
    }

    fn unconsented(&mut self, face: Face, of: &str) -> Result<u64, Error> {
        let counter = Counter::Unconsented {
            face,
            of: of.to_owned(),
        };
        let pending = self.deltas.get(&counter).copied().unwrap_or(0);
        Ok(u64::try_from(self.tx.count(&counter)? + pending).unwrap_or(0))
    }

    fn write_all(&mut self, writes: Vec<Write>) -> Result<(), Error> {
        for write in writes {
            self.wrote = true;
            self.write(write)?;
        }
        self.news.steps.end_decision();
        Ok(())
    }

    pub(crate) fn write(&mut self, write: Write) -> Result<(), Error> {
        match write {
            Write::New(intent) => {
                self.news.steps.row(&intent);
                self.counted(&intent, None, Some(intent.state));
                self.count_unconsented(&intent, 1);
                self.count_messages(&intent, 1);
                let lanes = self.noted(&intent);
                self.tx.insert(&intent, lanes.as_ref())
            }
            Write::Change { was, intent } => {
                self.news.steps.row(&intent);
                if was != intent.state {
                    Self::legal(was, &intent)?;
                    self.counted(&intent, Some(was), Some(intent.state));
                    if intent.state == State::Validated && intent.target.is_some() {
                        self.count_unconsented(&was_received(&intent), -1);
                    }
                }
                let lanes = self.noted(&intent);
                self.tx.update(&intent, lanes.as_ref())
            }
            Write::Remove(intent) => {
                self.news.steps.removed(&intent);
                self.counted(&intent, Some(intent.state), None);
                self.count_unconsented(&intent, -1);
                self.count_messages(&intent, -1);
                self.tx.remove(intent.seq)?;
                match intent.dedupe_key() {
                    Some(key) => self.tx.message_gone(&key, intent.id),
                    None => Ok(()),
                }
            }
            Write::RemoveFacts { owner, last } => self.tx.remove_facts(&owner, last),
            Write::Fact(fact) => {
                self.news.steps.fact(&fact);
                if !self.news.told.contains(&fact.owner) {
                    self.news.told.insert(fact.owner.clone());
                }
                self.tx.append(fact)
            }
            Write::Once(row) => self.tx.put_once(row),
            Write::Put(record) => self.tx.put_record(record),
            Write::Delete(key) => self.tx.delete_record(&key),
        }
    }

    fn count_unconsented(&mut self, intent: &Intent, delta: i64) {
        for counter in Counter::unconsented(intent) {
            *self.deltas.entry(counter).or_default() += delta;
        }
    }

    fn count_messages(&mut self, intent: &Intent, delta: i64) {
        for counter in Counter::messages(intent) {
            *self.deltas.entry(counter).or_default() += delta;
        }
    }

    /// Whatever a rule decided, no row takes a way that its profile does not have.
    fn legal(was: State, intent: &Intent) -> Result<(), Error> {
        if intent.profile.profile().joins(Some(was), intent.state) {
            return Ok(());
        }
        Err(Error::Corrupt(format!(
            "intent {} cannot go from {was} to {}",
            intent.id, intent.state
        )))
    }

    /// Remembers whom to wake, and computes the row's lanes if it can be claimed.
    fn noted(&mut self, intent: &Intent) -> Option<Lanes> {
        if intent.shelf.claimable() {
            let lanes = Lanes::of(intent);
            self.news.ripe.extend(lanes.probes());
            return Some(lanes);
        }
        if matches!(intent.shelf, Shelf::Delayed | Shelf::Leased) {
            let earlier = self.news.wake_at.into_iter().chain([intent.wake_at]);
            self.news.wake_at = earlier.min();
        }
        None
    }

    fn counted(&mut self, intent: &Intent, from: Option<State>, to: Option<State>) {
        let profile = intent.profile.profile();
        let face = profile.face;
        for (state, delta) in [(from, -1), (to, 1)] {
            let Some(state) = state else { continue };
            let counter = Counter::State {
                face,
                namespace: intent.namespace.clone(),
                state,
            };
            *self.deltas.entry(counter).or_default() += delta;
            if !profile.is_terminal(state) {
                let counter = Counter::Unsettled {
                    face,
                    owner: intent.owner.clone(),
                };
                *self.deltas.entry(counter).or_default() += delta;
            }
        }
    }
}
