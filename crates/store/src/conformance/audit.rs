//! Checks from a dump alone whether the parts of a store are consistent with each other.
//!
//! The audit shares no code with the backends' own checks, so a bug in one is found by the other.

use std::collections::{BTreeMap, HashMap, HashSet};

use consign_kernel::fact::Fact;
use consign_kernel::ids::{Micros, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::lane::{Lanes, Probe};
use consign_kernel::profile::{Expiry, LifeEnd, ProfileId};
use consign_kernel::state::State;

use crate::Dump;
use crate::ledger::Counter;

/// Returns a description of every inconsistency; empty if there is none.
pub fn audit(dump: &Dump) -> Vec<String> {
    let mut findings = Vec::new();
    audit_rows(dump, &mut findings);
    audit_lanes(dump, &mut findings);
    audit_counts(dump, &mut findings);
    audit_facts(dump, &mut findings);
    findings
}

fn audit_rows(dump: &Dump, findings: &mut Vec<String>) {
    let (mut ids, mut seqs, mut tokens) = (HashSet::new(), HashSet::new(), HashSet::new());
    for row in &dump.intents {
        let mut wrong = |what: &str| findings.push(format!("{}: {what}", row.id));
        if !ids.insert(row.id) || !seqs.insert(row.seq) {
            wrong("its id or its sequence is used twice");
        }
        let held = row.demands_lease();
        if held != row.token.is_some() || held != row.lease_until.is_some() {
            wrong("state and lease disagree");
        }
        if row.worker.is_some() && row.holder.is_none() {
            wrong("it has a worker and no holder");
        }
        if row.token.is_some_and(|token| !tokens.insert(token.0)) {
            wrong("two leases share a token");
        }
        let profile = row.profile.profile();
        // Where attempts are numbered, an attempt that an operator requests may exceed the maximum.
        // A lease that runs out queues some rows again, whatever number of attempts they have had.
        let unlimited = matches!(
            profile.expiry,
            Expiry::DueNow | Expiry::DueIn { .. } | Expiry::InPlace | Expiry::StayLeased
        );
        let limited = !profile.numbers_attempts && !unlimited;
        if limited && row.attempts > row.attempts_max {
            wrong("more attempts than allowed");
        }
        if row.profile.profile().is_terminal(row.state) != row.settled_at.is_some() {
            wrong("state and end disagree");
        }
        if !shelved(row) {
            wrong("it lies on the wrong shelf");
        }
    }
}

fn ends_by_day(row: &Intent) -> bool {
    row.profile == ProfileId::AtpPermission
}

/// Whether it was queued again past its life, and the next sweep ends it.
fn ends_by_sweep(row: &Intent) -> bool {
    let ends = matches!(row.profile.profile().life_end, LifeEnd::Dead { .. });
    (ends || is_removed(row)) && row.wake_at == row.expires_at
}

/// Whether the end of its life is its removal.
fn is_removed(row: &Intent) -> bool {
    row.profile.profile().life_end == LifeEnd::Remove
}

/// Whether the row is on the shelf, and has the wake time, at which a sweep finds it.
fn shelved(row: &Intent) -> bool {
    match row.shelf {
        // A row that waits behind another of its series may wake later than its own due time.
        Shelf::Delayed => {
            let at = row.run_at.min(row.expires_at);
            let behind = row.ties.series.is_some() && row.wake_at >= at;
            match row.state {
                // A permission expires by the time of day, but its wake time is engine time.
                State::Received | State::Validated if ends_by_day(row) => true,
                State::Received if is_removed(row) => row.wake_at == at,
                State::Received | State::Validated => row.wake_at == row.expires_at,
                State::Delivered if is_removed(row) => row.wake_at == row.expires_at,
                State::Delivered if row.awaits_ack() => row.wake_at == Micros::MAX,
                State::Dispatched | State::Delivered => row.wake_at == row.run_at,
                State::Queued => row.wake_at == at || behind || ends_by_sweep(row),
                State::DeadLetter => row.is_unconsented(),
                State::Acked | State::Failed => false,
            }
        }
        Shelf::Ready => {
            let waits = row.state == State::Queued || row.awaits_ack();
            waits && row.wake_at == row.expires_at
        }
        Shelf::Leased => row.lease_until == Some(row.wake_at),
        Shelf::Lapsed => {
            let out = matches!(row.state, State::Dispatched | State::Delivered);
            out && row.wake_at == row.expires_at
        }
        Shelf::Parked => matches!(row.state, State::Queued | State::Dispatched),
        Shelf::Done => row.profile.profile().is_terminal(row.state),
    }
}

fn audit_lanes(dump: &Dump, findings: &mut Vec<String>) {
    let mut stored: BTreeMap<Seq, &Vec<Probe>> = dump
        .lanes
        .iter()
        .map(|(seq, lanes)| (*seq, lanes))
        .collect();
    for row in dump.intents.iter().filter(|row| row.shelf.claimable()) {
        let expected: Vec<Probe> = Lanes::of(row).probes().collect();
        if stored.remove(&row.seq) != Some(&expected) {
            findings.push(format!("{}: claimable, but not in its lanes", row.id));
        }
    }
    findings.extend(
        stored
            .keys()
            .map(|seq| format!("{seq:?}: in a lane, but not claimable")),
    );
}

fn audit_counts(dump: &Dump, findings: &mut Vec<String>) {
    let mut counted: BTreeMap<Counter, i64> = BTreeMap::new();
    for row in &dump.intents {
        let profile = row.profile.profile();
        let state = Counter::State {
            face: profile.face,
            namespace: row.namespace.clone(),
            state: row.state,
        };
        *counted.entry(state).or_default() += 1;
        if !profile.is_terminal(row.state) {
            let unsettled = Counter::Unsettled {
                face: profile.face,
                owner: row.owner.clone(),
            };
            *counted.entry(unsettled).or_default() += 1;
        }
        for counter in Counter::unconsented(row) {
            *counted.entry(counter).or_default() += 1;
        }
        for counter in Counter::messages(row) {
            *counted.entry(counter).or_default() += 1;
        }
    }
    let counted: Vec<(String, i64)> = counted
        .into_iter()
        .map(|(counter, count)| (format!("{counter:?}"), count))
        .collect();
    if counted != dump.counts {
        findings.push(format!(
            "counters say {:?}, the rows say {counted:?}",
            dump.counts
        ));
    }
}

/// The facts of an intent form a chain that ends at the row's state. The oldest facts may be deleted already.
fn audit_facts(dump: &Dump, findings: &mut Vec<String>) {
    if !dump
        .facts
        .is_sorted_by(|a, b| a.seq < b.seq && a.at <= b.at)
    {
        findings.push("facts are out of order".to_owned());
    }
    let mut last: HashMap<Seq, &Fact> = HashMap::new();
    for fact in &dump.facts {
        if let Some(before) = last.insert(fact.intent, fact)
            && (fact.from != Some(before.to) || fact.previous != Some(before.seq))
        {
            findings.push(format!("{fact:?} does not follow {before:?}"));
        }
    }
    for row in &dump.intents {
        if let Some(fact) = last.get(&row.seq)
            && (fact.to != row.state
                || fact.attempt > row.attempts
                || row.last_fact != Some(fact.seq))
        {
            findings.push(format!("{}: its row does not follow from {fact:?}", row.id));
        }
    }
}
