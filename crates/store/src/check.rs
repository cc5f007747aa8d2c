//! The checks of a row that all backends share.

use std::collections::BTreeMap;

use consign_kernel::intent::Intent;
use consign_kernel::lane::Lanes;

use crate::ledger::Counter;

/// Checks that the fields of a row are consistent.
pub(crate) fn row(intent: &Intent, findings: &mut Vec<String>) {
    let id = intent.id;
    let leased = intent.demands_lease();
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
    if intent.last_fact.is_none() {
        findings.push(format!("intent {id}: has no history"));
    }
}

/// Counts a row as the commits should have counted it.
pub(crate) fn count(intent: &Intent, counted: &mut BTreeMap<Counter, i64>) {
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
    for counter in Counter::unconsented(intent) {
        *counted.entry(counter).or_default() += 1;
    }
    for counter in Counter::messages(intent) {
        *counted.entry(counter).or_default() += 1;
    }
}

/// Checks that the stored lanes follow from the row.
pub(crate) fn lanes(
    intent: &Intent,
    lanes: Option<&Lanes>,
    stored: [Option<i64>; 4],
    findings: &mut Vec<String>,
) {
    let expected = lanes.map_or([None; 4], |lanes| {
        [
            Some(lanes.own),
            Some(lanes.own_goal),
            lanes.public,
            lanes.public_goal,
        ]
    });
    if stored != expected {
        findings.push(format!(
            "intent {}: lanes do not follow from the row",
            intent.id
        ));
    }
}

/// Checks that the stored counters match the rows.
pub(crate) fn counters(
    stored: Vec<(Counter, i64)>,
    mut counted: BTreeMap<Counter, i64>,
    findings: &mut Vec<String>,
) {
    for (counter, stored) in stored {
        let real = counted.remove(&counter).unwrap_or(0);
        if real != stored {
            findings.push(format!(
                "counter {counter:?}: {stored} stored, {real} found"
            ));
        }
    }
    findings.extend(
        counted
            .into_iter()
            .map(|(counter, real)| format!("counter {counter:?}: 0 stored, {real} found")),
    );
}
