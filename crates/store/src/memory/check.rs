//! Checks that the parts of the model are consistent, as the check of a file does.

use std::collections::BTreeMap;

use consign_kernel::intent::Intent;
use consign_kernel::lane::Lanes;

use super::ModelData;
use crate::check;
use crate::ledger::Counter;

pub(super) fn check(data: &ModelData) -> Vec<String> {
    let mut findings = Vec::new();
    let mut counted: BTreeMap<Counter, i64> = BTreeMap::new();
    for intent in data.intents.values() {
        check_row(data, intent, &mut findings);
        check::row(intent, &mut findings);
        check::count(intent, &mut counted);
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
        findings.push("position: the sequence is behind the last intent".to_owned());
    }
    if data
        .facts
        .keys()
        .last()
        .is_some_and(|seq| seq.0 > data.position.fact)
    {
        findings.push("position: the last fact is ahead".to_owned());
    }
    findings
}

fn check_row(data: &ModelData, intent: &Intent, findings: &mut Vec<String>) {
    let id = intent.id;
    let lanes = intent.shelf.claimable().then(|| Lanes::of(intent));
    if data.lanes.get(&intent.seq) != lanes.as_ref() {
        findings.push(format!("intent {id}: lanes do not follow from the row"));
    }
    if data.ids.get(&id) != Some(&intent.seq) {
        findings.push(format!("intent {id}: cannot be found by its id"));
    }
}
