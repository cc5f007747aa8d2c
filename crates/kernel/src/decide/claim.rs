//! Claiming. Time acts first; then the best rows of the claim's lanes are picked; rows that cannot be handed out now are taken
//! out of their lanes; the others become leases.

use std::borrow::Cow;
use std::vec::IntoIter;

use super::time::{on_time, sweep_needs};
use super::{
    Cx, Decided, Decision, FactSource, Needs, Pending, Sweeps, View, Write, fact, live, step,
};
use crate::command::{Answer, Audience, Claim, Hold, Sweep, Take};
use crate::error::Refusal;
use crate::ids::{Micros, Token};
use crate::intent::{Intent, Series};
use crate::lane::Probe;
use crate::limits;
use crate::plant::{self, Plant};
use crate::profile::Expiry;
use crate::record;
use crate::state::{Cause, State, Verb};

/// Rows that one claim sets back before it is content with what it found.
const SET_BACK_PER_CLAIM_MAX: usize = 256;

pub(super) fn needs(claim: &Claim) -> Needs<'static> {
    Needs::Lanes {
        probes: Cow::Owned(claim.probes()),
        max: rows_max(claim),
    }
}

fn rows_max(claim: &Claim) -> u32 {
    claim.max.clamp(1, limits::CLAIM_BATCH_MAX)
}

/// A claim between two loads.
#[derive(Debug)]
pub(super) struct ClaimProgress<'a> {
    claim: &'a Claim,
    probes: Vec<Probe>,
    /// Rows that were set back since the last sweep.
    set_back: usize,
    stage: ClaimStage<'a>,
}

#[derive(Debug)]
enum ClaimStage<'a> {
    /// The grant is loaded, without which the claim is refused.
    Grant(&'a record::Key),
    /// Rows whose deadline has passed are loaded: what came due competes, what is exhausted dies.
    Sweep,
    /// The best rows of the lanes are loaded.
    Pick,
    /// The series of one of the picked rows is loaded.
    Series { row: Box<Intent>, picked: Picked },
}

impl ClaimStage<'_> {
    fn first(sweeps: &Sweeps) -> Self {
        if sweeps.is_due() {
            Self::Sweep
        } else {
            Self::Pick
        }
    }
}

/// The rows of one pick, sorted one by one.
#[derive(Debug)]
struct Picked {
    rest: IntoIter<Intent>,
    /// They can be handed out.
    free: Vec<Intent>,
    /// They head a lane although their life is over.
    over: Vec<Intent>,
    set_back: usize,
}

impl<'a> ClaimProgress<'a> {
    pub(super) fn new(claim: &'a Claim, sweeps: &Sweeps) -> Self {
        let stage = match &claim.grant {
            Some(grant) => ClaimStage::Grant(grant),
            None => ClaimStage::first(sweeps),
        };
        Self {
            claim,
            probes: claim.probes(),
            set_back: 0,
            stage,
        }
    }

    pub(super) fn needs(&self, now: Micros) -> Needs<'_> {
        match &self.stage {
            ClaimStage::Grant(grant) => Needs::Record(grant),
            ClaimStage::Sweep => sweep_needs(SWEEP, now),
            ClaimStage::Pick => Needs::Lanes {
                probes: Cow::Borrowed(&self.probes),
                max: rows_max(self.claim),
            },
            ClaimStage::Series { row, .. } => {
                Needs::Series(row.ties.series.as_deref().unwrap_or_default())
            }
        }
    }

    pub(super) fn decide(
        mut self,
        mut view: View,
        cx: &mut Cx<'_>,
    ) -> Result<Decided<'a>, Refusal> {
        Ok(match self.stage {
            ClaimStage::Grant(_) => {
                let granted = live(view.record, cx.now).is_some();
                if !granted && !plant::on(Plant::ClaimWithoutGrant) {
                    return Err(Refusal::NotGranted);
                }
                self.stage = ClaimStage::first(cx.sweeps);
                self.again(Vec::new())
            }
            ClaimStage::Sweep => {
                cx.sweeps.add(view.intents.len(), SWEEP.limit);
                let rows = view.intents.into_iter();
                let writes = rows.flat_map(|row| on_time(row, cx)).collect();
                self.set_back = 0;
                self.stage = ClaimStage::Pick;
                self.again(writes)
            }
            ClaimStage::Pick => {
                let rows = view.intents.into_iter();
                let (over, live): (Vec<_>, Vec<_>) = rows.partition(|row| row.expires_at <= cx.now);
                let picked = Picked {
                    free: Vec::with_capacity(live.len()),
                    rest: live.into_iter(),
                    over,
                    set_back: 0,
                };
                self.stage = ClaimStage::Pick;
                self.sort(picked, Vec::new(), cx)
            }
            ClaimStage::Series { row, mut picked } => {
                let series = view.series.pop().flatten().unwrap_or_default();
                let taken = (picked.free.iter()).any(|free| free.ties.series == row.ties.series);
                let writes = set_back(&row, &series, taken, self.claim, cx);
                if writes.is_some() {
                    picked.set_back += 1;
                } else {
                    picked.free.push(*row);
                }
                self.stage = ClaimStage::Pick;
                self.sort(picked, writes.unwrap_or_default(), cx)
            }
        })
    }

    /// Sorts the picked rows up to the next one whose series is to be loaded, and decides after the last one.
    fn sort(mut self, mut picked: Picked, mut writes: Vec<Write>, cx: &mut Cx<'_>) -> Decided<'a> {
        while let Some(row) = picked.rest.next() {
            if row.ties.series.is_some() {
                let row = Box::new(row);
                self.stage = ClaimStage::Series { row, picked };
                return self.again(writes);
            }
            picked.free.push(row);
        }
        self.set_back += picked.set_back;
        let enough = picked.set_back == 0 || self.set_back >= SET_BACK_PER_CLAIM_MAX;
        if !picked.over.is_empty() || !enough {
            let over = picked.over.into_iter();
            writes.extend(over.flat_map(|row| on_time(row, cx)));
            return self.again(writes);
        }
        // One sweep is bounded: as long as more is due and nothing was found, time acts again.
        if picked.free.is_empty() && cx.sweeps.is_due() {
            self.stage = ClaimStage::Sweep;
            return self.again(writes);
        }
        let mut decision = hand_out(picked.free, self.claim, cx);
        writes.append(&mut decision.writes);
        Decided::Done(Decision { writes, ..decision })
    }

    fn again(self, writes: Vec<Write>) -> Decided<'a> {
        let next = Pending::claim(self);
        Decided::Again { writes, next }
    }
}

const SWEEP: Sweep = Sweep {
    limit: limits::SWEEP_ROWS_MAX,
};

/// The rows that were picked become leases.
pub(super) fn hand_out(picked: Vec<Intent>, claim: &Claim, cx: &mut Cx<'_>) -> Decision {
    let mut writes = Vec::with_capacity(picked.len() * 2);
    let mut claimed = Vec::with_capacity(picked.len());
    let worker = claim.worker_id.as_deref();
    for mut intent in picked {
        // Lanes are named by hashes, so the fields themselves are compared. Whether a row is due was decided when it was put
        // into its lanes, perhaps by a node whose clock is a little ahead.
        if !may_take(claim, &intent) || intent.expires_at <= cx.now {
            continue;
        }
        let mut was = intent.state;
        let takes_over =
            was == State::Dispatched && intent.profile.profile().expiry == Expiry::TakeOver;
        if takes_over {
            intent.state = State::Queued;
            intent.cause = Cause::LeaseExpired;
            let source = FactSource::by_time(Verb::Expire).of_worker(intent.worker.as_deref());
            writes.push(fact(Some(was), &mut intent, source, cx));
        }
        let awaits_ack = intent.awaits_ack();
        if awaits_ack {
            intent.state = State::Queued;
            let source = FactSource::by(&claim.holder, Verb::Retry).of_worker(worker);
            writes.push(fact(Some(was), &mut intent, source, cx));
        }
        let from = intent.state;
        lease(&mut intent, &claim.holder, claim.lease_us, cx);
        intent.worker.clone_from(&claim.worker_id);
        if awaits_ack {
            // It is leased already, so that no waiting claim is woken for it.
            let queued = Intent {
                state: from,
                ..intent.clone()
            };
            writes.push(Write::Change {
                was,
                intent: queued,
            });
            was = from;
        }
        let source = FactSource::by(&claim.holder, Verb::Claim).of_worker(worker);
        writes.push(fact(Some(from), &mut intent, source, cx));
        writes.push(Write::Change {
            was,
            intent: intent.clone(),
        });
        claimed.push(intent);
    }
    Decision {
        writes,
        answer: Answer::Claimed(claimed),
    }
}

/// Sets a row back if another one of its series is held, or will be by the same claim. It is queued again when that one is
/// settled, or at the latest when its lease ends. A lapsed lease of its own is over then, so that it does not count as held.
fn set_back(
    row: &Intent,
    series: &Series,
    taken: bool,
    claim: &Claim,
    cx: &mut Cx<'_>,
) -> Option<Vec<Write>> {
    let lease_until = if taken {
        Some(cx.now.plus(claim.lease_us))
    } else {
        series.held.as_ref().and_then(|held| held.lease_until)
    };
    let until = lease_until.filter(|until| *until > cx.now)?;
    let (was, mut intent, mut writes) = (row.state, row.clone(), Vec::with_capacity(2));
    if was == State::Dispatched && intent.profile.profile().expiry == Expiry::TakeOver {
        let source = FactSource::by_time(Verb::Expire).of_worker(intent.worker.as_deref());
        intent.state = State::Queued;
        intent.cause = Cause::LeaseExpired;
        intent.forget_holder();
        intent.release();
        intent.set_back(until);
        step(&mut writes, was, intent, source, cx);
    } else {
        intent.set_back(until);
        writes.push(Write::Change { was, intent });
    }
    Some(writes)
}

/// One row by its id, even if it is not due.
pub(super) fn take(mut intent: Intent, take: &Take, cx: &mut Cx<'_>) -> Result<Decision, Refusal> {
    let profile = intent.profile.profile();
    if profile.face != take.face {
        return Err(Refusal::NotFound);
    }
    if intent.is_leased(cx.now) {
        return Err(Refusal::Held);
    }
    let was = intent.state;
    let Hold { holder, lease_us } = &take.hold;
    intent.run_at = intent.run_at.min(cx.now);
    lease(&mut intent, holder, *lease_us, cx);
    if !profile.allows(was, Verb::Claim, intent.state) {
        return Err(Refusal::IllegalState);
    }
    let mut writes = Vec::with_capacity(2);
    let source = FactSource::by(holder, Verb::Claim).with(take.detail.clone());
    step(&mut writes, was, intent.clone(), source, cx);
    Ok(Decision {
        writes,
        answer: Answer::Claimed(vec![intent]),
    })
}

/// Gives the row a new lease. A delivered row stays delivered.
pub(super) fn lease(intent: &mut Intent, holder: &str, lease_us: i64, cx: &mut Cx<'_>) {
    if !plant::on(Plant::ForgetAttempt) {
        intent.attempts += 1;
    }
    if intent.state != State::Delivered {
        intent.state = State::Dispatched;
    }
    intent.cause = Cause::None;
    intent.holder = Some(holder.to_owned());
    intent.worker = None;
    intent.token = Some(Token(cx.entropy.draw().to_be_bytes()));
    intent.claimed_at = Some(cx.now);
    intent.lease_until = Some(cx.now.plus(lease_us));
    intent.reshelve(cx.now);
}

fn may_take(claim: &Claim, intent: &Intent) -> bool {
    let audience = match &claim.audience {
        Audience::Caller => {
            intent.is_for_all() || intent.owner == claim.holder || plant::on(Plant::PrivateIsPublic)
        }
        Audience::Publisher(owner) => intent.owner == *owner,
    };
    let capable = |needed: &String| {
        claim.capabilities.iter().any(|offered| {
            offered == needed
                || plant::on(Plant::CapabilityByPrefix) && offered.starts_with(needed.as_str())
        })
    };
    audience
        && intent.profile.profile().face == claim.face
        && (intent.namespace == claim.namespace || plant::on(Plant::CrossNamespaces))
        && claim.goal.as_ref().is_none_or(|goal| intent.goal == *goal)
        && intent
            .target
            .as_ref()
            .is_none_or(|target| claim.worker_id.as_ref() == Some(target))
        && intent.capability.as_ref().is_none_or(capable)
}
