//! Do the parts of the model agree with each other? The same questions that the check of a file asks.

use std::collections::BTreeMap;

use consign_kernel::intent::Intent;
use consign_kernel::lane::Lanes;
use consign_kernel::state::State;

use super::Data;
use crate::ledger::Counter;

pub(super) fn check(data: &Data) -> Vec<String> {
    let mut findings = Vec::new();
    let mut counted: BTreeMap<Counter, i64> = BTreeMap::new();
    for intent in data.intents.values() {
        check_row(data, intent, &mut findings);
        count(intent, &mut counted);
    }
    if data.lanes.keys().any(|seq| !data.intents.contains_key(seq)) {
        findings.push("lanes without a row".to_owned());
    }
    let stored = data.counts.iter().filter(|(_, count)| **count != 0);
    if !stored.clone().eq(counted.iter()) {
        let stored: Vec<_> = stored.collect();
        findings.push(format!("counters {stored:?}, but the rows say {counted:?}"));
    }
    if data
        .intents
        .keys()
        .last()
        .is_some_and(|seq| seq.0 > data.position.seq)
    {
        findings.push("position: the sequence lies behind the last intent".to_owned());
    }
    if data
        .facts
        .keys()
        .last()
        .is_some_and(|seq| seq.0 > data.position.fact)
    {
        findings.push("position: the last fact lies ahead".to_owned());
    }
    findings
}

fn check_row(data: &Data, intent: &Intent, findings: &mut Vec<String>) {
    let id = intent.id;
    let lanes = intent.shelf.claimable().then(|| Lanes::of(intent));
    if data.lanes.get(&intent.seq) != lanes.as_ref() {
        findings.push(format!("intent {id}: lanes do not follow from the row"));
    }
    if data.ids.get(&id) != Some(&intent.seq) {
        findings.push(format!("intent {id}: cannot be found by its id"));
    }
    let leased = intent.state == State::Dispatched;
    if leased != intent.token.is_some() || leased != intent.lease_until.is_some() {
        findings.push(format!(
            "intent {id}: state {} and lease disagree",
            intent.state
        ));
    }
    let profile = intent.profile.profile();
    if profile.word(intent.state, intent.cause).is_none() {
        findings.push(format!(
            "intent {id}: state {} does not belong to its profile",
            intent.state
        ));
    }
}

fn count(intent: &Intent, counted: &mut BTreeMap<Counter, i64>) {
    let profile = intent.profile.profile();
    let state = Counter::State {
        face: profile.face,
        namespace: intent.namespace.clone(),
        state: intent.state,
    };
    *counted.entry(state).or_default() += 1;
    if !profile.is_terminal(intent.state) {
        let unsettled = Counter::Unsettled {
            face: profile.face,
            owner: intent.owner.clone(),
        };
        *counted.entry(unsettled).or_default() += 1;
    }
}
