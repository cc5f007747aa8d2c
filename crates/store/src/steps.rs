//! What the steps of a commit were, for metrics: counts per face, namespace and goal, and how long rows waited.
//!
//! The rows of a decision are in memory when they are written, so counting reads nothing. A label that occurs again in the
//! commit costs one lookup and no allocation.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use consign_kernel::fact::Fact;
use consign_kernel::ids::{Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::profile::Face;
use consign_kernel::state::{State, Verb};

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowStepKind {
    /// It was admitted.
    Published,
    Claimed,
    Fulfilled,
    /// An attempt failed: its holder reported it.
    Failed,
    /// It was queued again.
    Retried,
    /// Its lease or its life ran out.
    Expired,
    /// It was given up.
    Dead,
}

impl RowStepKind {
    pub const ALL: [Self; 7] = [
        Self::Published,
        Self::Claimed,
        Self::Fulfilled,
        Self::Failed,
        Self::Retried,
        Self::Expired,
        Self::Dead,
    ];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Claimed => "claimed",
            Self::Fulfilled => "fulfilled",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Expired => "expired",
            Self::Dead => "dead",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// How often each kind of step happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts([u64; RowStepKind::ALL.len()]);

impl StepCounts {
    pub const fn of(&self, kind: RowStepKind) -> u64 {
        self.0[kind.index()]
    }

    /// One step.
    pub fn one(kind: RowStepKind) -> Self {
        let mut counts = Self::default();
        counts.count(kind);
        counts
    }

    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    fn count(&mut self, kind: RowStepKind) {
        self.0[kind.index()] += 1;
    }
}

/// The steps of rows that agree on face, namespace and goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSteps {
    pub face: Face,
    pub namespace: String,
    pub goal: String,
    pub counts: StepCounts,
}

/// What a row waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// From its admission, or from when it was due, to its first claim.
    Claim,
    /// From its claim to its settlement.
    Settlement,
}

/// How long one row waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    pub face: Face,
    pub kind: WaitKind,
    pub us: i64,
}

/// All steps of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepTally {
    labels: BTreeMap<u64, LabelSteps>,
    pub waits: Vec<Waited>,
    /// Facts whose rows follow in the same decision.
    pending: Vec<PendingStep>,
}

/// A fact, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingStep {
    intent: Seq,
    at: Micros,
    verb: Verb,
    from: Option<State>,
    to: State,
}

impl StepTally {
    /// The counts, each with a number that stands for its label.
    pub fn labels(&self) -> impl Iterator<Item = (u64, &LabelSteps)> {
        self.labels.iter().map(|(key, steps)| (*key, steps))
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// A fact; its row is written after it.
    pub(crate) fn fact(&mut self, fact: &Fact) {
        self.pending.push(PendingStep {
            intent: fact.intent,
            at: fact.at,
            verb: fact.verb,
            from: fact.from,
            to: fact.to,
        });
    }

    /// The row that facts were about, as it is now.
    pub(crate) fn row(&mut self, intent: &Intent) {
        let at = self
            .pending
            .iter()
            .position(|step| step.intent == intent.seq);
        let Some(first) = at else { return };
        let mut counts = StepCounts::default();
        let mut index = first;
        while let Some(step) = self.pending.get(index).copied() {
            if step.intent == intent.seq {
                self.pending.remove(index);
                self.waits.extend(step.waited(intent));
                step.count(&mut counts);
            } else {
                index += 1;
            }
        }
        self.label(intent).counts.add(&counts);
    }

    /// The row is removed. One that was past its life leaves no fact.
    pub(crate) fn removed(&mut self, intent: &Intent) {
        self.row(intent);
        if intent.shelf == Shelf::Parked {
            self.label(intent).counts.count(RowStepKind::Expired);
        }
    }

    /// No rows follow.
    pub(crate) fn end_decision(&mut self) {
        self.pending.clear();
    }

    fn label(&mut self, intent: &Intent) -> &mut LabelSteps {
        let face = intent.profile.profile().face;
        let mut hasher = DefaultHasher::new();
        (face, &intent.namespace, &intent.goal).hash(&mut hasher);
        self.labels
            .entry(hasher.finish())
            .or_insert_with(|| LabelSteps {
                face,
                namespace: intent.namespace.clone(),
                goal: intent.goal.clone(),
                counts: StepCounts::default(),
            })
    }
}

impl PendingStep {
    fn count(self, counts: &mut StepCounts) {
        match self.verb {
            Verb::Admit => counts.count(RowStepKind::Published),
            Verb::Claim => counts.count(RowStepKind::Claimed),
            Verb::Fail => counts.count(RowStepKind::Failed),
            Verb::Expire => counts.count(RowStepKind::Expired),
            Verb::Validate
            | Verb::Extend
            | Verb::Deliver
            | Verb::Complete
            | Verb::Retry
            | Verb::Kill
            | Verb::Cancel
            | Verb::Requeue
            | Verb::Recover
            | Verb::Compensate => {}
        }
        if self.from == Some(self.to) {
            return;
        }
        match self.to {
            State::Acked => counts.count(RowStepKind::Fulfilled),
            State::DeadLetter => counts.count(RowStepKind::Dead),
            State::Queued if self.has_been_taken() => counts.count(RowStepKind::Retried),
            State::Received
            | State::Validated
            | State::Queued
            | State::Dispatched
            | State::Delivered
            | State::Failed => {}
        }
    }

    fn has_been_taken(self) -> bool {
        matches!(
            self.from,
            Some(
                State::Dispatched
                    | State::Delivered
                    | State::Acked
                    | State::Failed
                    | State::DeadLetter
            )
        )
    }

    fn waited(self, intent: &Intent) -> Option<Waited> {
        let was_held = matches!(self.from, Some(State::Dispatched | State::Delivered));
        let is_settled = matches!(self.to, State::Acked | State::DeadLetter);
        let (kind, since) = if self.verb == Verb::Claim && intent.attempts == 1 {
            (WaitKind::Claim, Some(intent.run_at))
        } else if was_held && is_settled {
            (WaitKind::Settlement, intent.claimed_at)
        } else {
            return None;
        };
        Some(Waited {
            face: intent.profile.profile().face,
            kind,
            us: self.at.0.saturating_sub(since?.0).max(0),
        })
    }
}
