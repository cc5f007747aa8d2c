//! Turns a command and the rows it names into a decision: the writes that commit together, and the answer.
//!
//! Invariant: a decision depends on nothing but its arguments, so it can be repeated after a failed commit.
//! Each command has a small file; this one maps commands to loads and to those files.

mod admit;
mod advance;
mod begin;
mod claim;
mod gate;
mod operate;
mod records;
mod restore;
mod settle;
mod time;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use gate::{GateDecision, gate};
#[cfg(test)]
pub(crate) use time::on_time;

use crate::command::{Answer, Command, Forget, ForgetFacts, Recover};
use crate::error::Refusal;
use crate::fact::Fact;
use crate::ids::{Entropy, FactSeq, IntentId, Micros, Seq};
use crate::intent::{Intent, Series, Shelf};
use crate::lane::Probe;
use crate::profile::{Face, LifeClock};
use crate::state::{Cause, State, Verb};
use crate::{once, record};

/// The inputs of a decision besides the command and the loaded rows.
#[derive(Debug)]
pub struct Cx<'a> {
    pub now: Micros,
    /// The wall clock. Lives that end by [`LifeClock::Wall`] use it, and facts record its difference to `now`.
    pub wall: Micros,
    pub entropy: &'a mut Entropy,
    /// The last admission sequence that was assigned; the store keeps it.
    pub last_seq: &'a mut u64,
    /// The last fact written; the store keeps it.
    pub last_fact: &'a mut u64,
    /// What time has done in this commit; the store keeps it.
    pub sweeps: &'a mut Sweeps,
}

/// How often the claims of one commit swept passed deadlines.
///
/// After an outage many rows may be due at once: one commit sweeps a few thousand of them, the next one continues.
#[derive(Debug, Default)]
pub struct Sweeps {
    count: u32,
    /// Nothing more is due.
    done: bool,
}

const SWEEPS_PER_COMMIT_MAX: u32 = 8;

impl Sweeps {
    fn is_due(&self) -> bool {
        !self.done && self.count < SWEEPS_PER_COMMIT_MAX
    }

    fn add(&mut self, rows: usize, limit: u32) {
        self.done = rows < limit as usize;
        self.count += 1;
    }
}

impl Cx<'_> {
    /// The time by which the life of a row ends.
    fn life_now(&self, intent: &Intent) -> Micros {
        match intent.profile.profile().life_clock {
            LifeClock::Engine => self.now,
            LifeClock::Wall => self.wall,
        }
    }

    fn next_seq(&mut self) -> Seq {
        *self.last_seq += 1;
        Seq(*self.last_seq)
    }

    fn next_fact(&mut self) -> FactSeq {
        *self.last_fact += 1;
        FactSeq(*self.last_fact)
    }
}

/// One change of stored data. All writes of a decision commit together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    New(Intent),
    Change {
        was: State,
        intent: Intent,
    },
    Remove(Intent),
    /// Removes all facts of a row that is removed with its history, from its last one backwards.
    RemoveFacts {
        owner: String,
        last: FactSeq,
    },
    Fact(Fact),
    Once(once::FirstUse),
    Put(record::Record),
    Delete(record::Key),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub writes: Vec<Write>,
    pub answer: Answer,
}

/// Which stored data a command must see before it can be decided.
#[derive(Clone, Debug)]
pub enum Needs<'a> {
    Nothing,
    /// The best claimable rows of these lanes, best first, each once.
    Lanes {
        probes: Cow<'a, [Probe]>,
        max: u32,
    },
    /// The rows of a series.
    Series(&'a str),
    /// With its series, if it has one.
    Intent(IntentId),
    /// The row with this id, without its series, and the first use of the key.
    Restored {
        id: IntentId,
        once: Option<&'a once::OnceKey>,
    },
    /// Once-rows and series in the order of the items, and the owner's number of unsettled intents where that is `capped`.
    Admission {
        once: Vec<Option<&'a once::OnceKey>>,
        series: Vec<Option<&'a str>>,
        face: Face,
        owner: &'a str,
        capped: bool,
    },
    /// Rows of these shelves whose deadline is at or before the given instant.
    Due {
        shelves: Vec<(Shelf, Micros)>,
        face: Option<Face>,
        limit: u32,
    },
    /// Those of a face among the next `limit` rows in order of admission.
    Rows {
        face: Face,
        namespace: Option<&'a str>,
        after: Seq,
        limit: u32,
    },
    Record(&'a record::Key),
    /// How many rows wait for consent: those that `of` requested, and all.
    Unconsented {
        face: Face,
        of: &'a str,
    },
    /// A set-wise removal, which the store carries out: no rule examines the single rows.
    Forget(&'a Forget),
    ForgetFacts(&'a ForgetFacts),
}

/// What the store loaded for a command.
#[derive(Debug, Default)]
pub struct View {
    pub intents: Vec<Intent>,
    pub once: Vec<Option<once::FirstUse>>,
    /// The series of the items of an admission, or of the one intent.
    pub series: Vec<Option<Series>>,
    pub unsettled: u64,
    /// Rows that wait for consent: those of the requester, and all.
    pub unconsented: (u64, u64),
    /// The last row that was examined, if there may be more after it.
    pub stopped_at: Option<Seq>,
    pub record: Option<record::Record>,
    /// How many entries or facts were removed.
    pub forgotten: u64,
    /// The last fact that was examined, if more may be old enough.
    pub forgotten_up_to: Option<FactSeq>,
}

/// A command on its way to its decision.
#[derive(Debug)]
pub struct Pending<'a>(Stage<'a>);

#[derive(Debug)]
enum Stage<'a> {
    /// One load and one decision.
    Single(&'a Command),
    Claim(claim::ClaimProgress<'a>),
}

/// What follows from a load.
#[derive(Debug)]
pub enum Decided<'a> {
    Done(Decision),
    /// These writes first; then the command needs more.
    Again {
        writes: Vec<Write>,
        next: Pending<'a>,
    },
}

impl<'a> Pending<'a> {
    pub fn new(command: &'a Command, sweeps: &Sweeps) -> Self {
        if let Command::Claim(claim) = command {
            Self::claim(claim::ClaimProgress::new(claim, sweeps))
        } else {
            Self(Stage::Single(command))
        }
    }

    fn claim(progress: claim::ClaimProgress<'a>) -> Self {
        Self(Stage::Claim(progress))
    }

    /// What is to be loaded for the next call of [`Pending::decide`].
    pub fn needs(&self, now: Micros) -> Needs<'_> {
        match &self.0 {
            Stage::Single(command) => needs(command, now),
            Stage::Claim(progress) => progress.needs(now),
        }
    }

    /// `view` holds exactly what [`Pending::needs`] asked for.
    pub fn decide(self, view: View, cx: &mut Cx<'_>) -> Result<Decided<'a>, Refusal> {
        match self.0 {
            Stage::Single(command) => decide(view, command, cx).map(Decided::Done),
            Stage::Claim(progress) => progress.decide(view, cx),
        }
    }
}

/// The load that a command can be expected to ask for. A claim may sweep before it, and ask again after it.
pub fn needs(command: &Command, now: Micros) -> Needs<'_> {
    match command {
        Command::Admit(admit) => admit::needs(admit),
        Command::Begin(begin) => begin::needs(begin),
        Command::Claim(claim) => claim::needs(claim),
        Command::Forget(forget) => Needs::Forget(forget),
        Command::ForgetFacts(forget) => Needs::ForgetFacts(forget),
        Command::Take(take) => Needs::Intent(take.id),
        Command::Extend(extend) => Needs::Intent(extend.id),
        Command::Settle(settle) => Needs::Intent(settle.id),
        Command::Advance(advance) => Needs::Intent(advance.id),
        Command::Cancel(operate)
        | Command::Requeue(operate)
        | Command::CancelUnfinished(operate)
        | Command::RequeueUnfinished(operate)
        | Command::Remove(operate) => Needs::Intent(operate.id),
        Command::IfUnchanged(_, command) => needs(command, now),
        Command::Observe(id) => Needs::Intent(*id),
        Command::Restore(restore) => Needs::Restored {
            id: restore.intent.id,
            once: restore.once.as_ref().map(|guard| &guard.key),
        },
        Command::Sweep(sweep) => time::sweep_needs(*sweep, now),
        Command::Recover(recover) => recover_needs(recover),
        Command::Clean(clean) => time::clean_needs(*clean, now),
        Command::Prune(prune) => time::prune_needs(*prune),
        Command::Purge(purge) => Needs::Rows {
            face: purge.face,
            namespace: purge.namespace.as_deref(),
            after: purge.after,
            limit: purge.limit,
        },
        Command::Put(put) => Needs::Record(&put.key),
        Command::Expect(key, _) | Command::Delete(key) => Needs::Record(key),
    }
}

fn recover_needs(recover: &Recover) -> Needs<'static> {
    Needs::Due {
        shelves: vec![(Shelf::Leased, Micros::MAX)],
        face: Some(recover.face),
        limit: recover.limit,
    }
}

/// Decides a command over what [`needs`] asked for.
fn decide(view: View, command: &Command, cx: &mut Cx<'_>) -> Result<Decision, Refusal> {
    match command {
        Command::Admit(admit) => admit::decide(&view, admit, cx),
        Command::Begin(begin) => begin::decide(&view, begin, cx),
        Command::Claim(claim) => Ok(claim::hand_out(view.intents, claim, cx)),
        Command::Take(take) => claim::take(one(view)?, take, cx),
        Command::Extend(extend) => settle::extend(one(view)?, extend, cx),
        Command::Settle(settle) => {
            let (intent, behind) = one_and_behind(view)?;
            settle::decide(intent, settle, cx)
                .map(|decision| release_series(decision, behind, cx.now))
        }
        Command::Advance(advance) => advance::decide(one(view)?, advance, cx),
        Command::Cancel(operate) | Command::CancelUnfinished(operate) => {
            let (intent, behind) = one_and_behind(view)?;
            if matches!(command, Command::CancelUnfinished(_)) {
                operate::refuse_completed(&intent, operate)?;
            }
            operate::cancel(intent, operate, cx)
                .map(|decision| release_series(decision, behind, cx.now))
        }
        Command::Requeue(operate) => operate::requeue(one(view)?, operate, cx),
        Command::RequeueUnfinished(operate) => {
            let intent = one(view)?;
            operate::refuse_completed(&intent, operate)?;
            operate::requeue(intent, operate, cx)
        }
        Command::Remove(operate) => operate::remove(one(view)?, operate, cx),
        Command::IfUnchanged(since, command) => {
            operate::refuse_changed(&view.intents, *since)?;
            decide(view, command, cx)
        }
        Command::Observe(_) => Ok(time::observe(view.intents.into_iter().next(), cx)),
        Command::Sweep(sweep) => Ok(time::sweep(view.intents, *sweep, cx)),
        Command::Recover(recover) => Ok(operate::recover(view.intents, recover, cx)),
        Command::Clean(clean) => Ok(time::clean(view.intents, *clean, cx)),
        Command::Prune(prune) => Ok(time::prune(view.intents, *prune)),
        Command::Purge(_) => Ok(operate::purge(view)),
        Command::Put(put) => records::put(live(view.record, cx.now), put),
        Command::Expect(_, version) => {
            records::expect(live(view.record, cx.now).as_ref(), *version)
        }
        Command::Delete(key) => Ok(records::delete(live(view.record, cx.now).as_ref(), key)),
        Command::Forget(_) => Ok(Decision {
            writes: Vec::new(),
            answer: Answer::Forgotten {
                rows: view.forgotten,
            },
        }),
        Command::ForgetFacts(_) => Ok(Decision {
            writes: Vec::new(),
            answer: Answer::FactsForgotten {
                rows: view.forgotten,
                after: view.forgotten_up_to,
            },
        }),
        Command::Restore(restore) => restore::decide(&view, restore, cx),
    }
}

/// An expired record counts as absent, whether or not it was removed already.
fn live(record: Option<record::Record>, now: Micros) -> Option<record::Record> {
    record.filter(|record| record.expires_at.is_none_or(|until| until > now))
}

fn one(view: View) -> Result<Intent, Refusal> {
    view.intents.into_iter().next().ok_or(Refusal::NotFound)
}

/// The row, and the row of its series that becomes claimable when its lease ends. Only a dispatched row can release its series.
fn one_and_behind(mut view: View) -> Result<(Intent, Option<Intent>), Refusal> {
    let series = view.series.pop().flatten();
    let intent = one(view)?;
    let behind = series.and_then(|series| series.behind);
    let behind = behind.filter(|_| intent.state == State::Dispatched);
    Ok((intent, behind))
}

/// Makes the next row of the series claimable.
fn release_series(mut decision: Decision, behind: Option<Intent>, now: Micros) -> Decision {
    if let Some(mut next) = behind {
        next.reshelve(now);
        decision.writes.push(Write::Change {
            was: next.state,
            intent: next,
        });
    }
    decision
}

/// What the step that causes a fact says about it.
struct FactSource<'a> {
    verb: Verb,
    actor: Option<&'a str>,
    worker: Option<String>,
    detail: Option<String>,
}

impl<'a> FactSource<'a> {
    fn by(actor: &'a str, verb: Verb) -> Self {
        Self {
            verb,
            actor: Some(actor),
            worker: None,
            detail: None,
        }
    }

    /// A passed deadline, without an actor.
    fn by_time(verb: Verb) -> Self {
        Self {
            verb,
            actor: None,
            worker: None,
            detail: None,
        }
    }

    fn of_worker(self, worker: Option<&str>) -> Self {
        Self {
            worker: worker.map(str::to_owned),
            ..self
        }
    }

    fn with(self, detail: impl Into<Option<String>>) -> Self {
        Self {
            detail: detail.into(),
            ..self
        }
    }
}

/// Writes a changed row together with its fact. The step must be legal for the profile.
fn step(
    writes: &mut Vec<Write>,
    was: State,
    mut intent: Intent,
    source: FactSource<'_>,
    cx: &mut Cx<'_>,
) {
    debug_assert!(
        intent
            .profile
            .profile()
            .allows(was, source.verb, intent.state),
        "{:?} may not {:?} from {was:?} to {:?}",
        intent.profile,
        source.verb,
        intent.state
    );
    writes.push(fact(Some(was), &mut intent, source, cx));
    writes.push(Write::Change { was, intent });
}

/// Makes the next fact of the row. The caller writes the row itself.
fn fact(
    from: Option<State>,
    intent: &mut Intent,
    source: FactSource<'_>,
    cx: &mut Cx<'_>,
) -> Write {
    let seq = cx.next_fact();
    Write::Fact(Fact {
        seq,
        intent: intent.seq,
        previous: intent.last_fact.replace(seq),
        face: intent.profile.profile().face,
        owner: intent.owner.clone(),
        at: cx.now,
        wall_offset_us: Fact::wall_offset_us(cx.now, cx.wall),
        verb: source.verb,
        from,
        to: intent.state,
        cause: intent.cause,
        attempt: intent.attempts,
        actor: source.actor.map(str::to_owned),
        worker: source.worker,
        detail: source.detail,
    })
}

/// Settles the row: it has no lease any more, and its deadline is the end of its retention.
fn finish(intent: &mut Intent, state: State, cause: Cause, now: Micros) {
    intent.state = state;
    intent.cause = cause;
    intent.settled_at = Some(now);
    intent.release();
    intent.reshelve(now);
}
