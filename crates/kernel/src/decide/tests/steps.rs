//! Commands against every profile and state: written steps are legal, and illegal steps are refused.

use std::collections::HashSet;

use super::{LEASE_US, NOW, TOKEN, changed, claim, decided, facts, item, row};
use crate::command::{Admit, Answer, Clean, Command, Extend, Operate, Settle, Settlement, Sweep};
use crate::decide::Write;
use crate::error::Refusal;
use crate::ids::{IntentId, Micros};
use crate::intent::{Intent, Shelf};
use crate::profile::{Face, ProfileId};
use crate::state::{State, Verb};

fn operate(face: Face) -> Operate {
    Operate {
        id: IntentId([1; 16]),
        face,
        reason: "by hand".to_owned(),
    }
}

fn settle(how: Settlement) -> Command {
    Command::Settle(Settle {
        detail: None,
        id: IntentId([1; 16]),
        holder: "alice".to_owned(),
        token: TOKEN,
        how,
    })
}

fn complete() -> Command {
    settle(Settlement::Complete { result: None })
}

fn fail() -> Command {
    settle(Settlement::Fail {
        error: "no".to_owned(),
    })
}

fn extend() -> Command {
    Command::Extend(Extend {
        detail: None,
        id: IntentId([1; 16]),
        holder: "alice".to_owned(),
        token: TOKEN,
        lease_us: LEASE_US,
    })
}

/// Every command that acts on a stored row.
fn commands(face: Face) -> Vec<Command> {
    vec![
        extend(),
        complete(),
        fail(),
        Command::Cancel(operate(face)),
        Command::Requeue(operate(face)),
        Command::CancelUnfinished(operate(face)),
        Command::RequeueUnfinished(operate(face)),
        Command::Observe(IntentId([1; 16])),
        Command::Sweep(Sweep { limit: 10 }),
        Command::Clean(Clean {
            face,
            retention_us: crate::limits::RETENTION_US,
            limit: 10,
        }),
    ]
}

/// The facts form a chain of legal steps from the previous state of the row to the written one.
fn is_legal(before: &Intent, writes: &[Write], what: &str) {
    let profile = before.profile.profile();
    let mut at = before.state;
    for fact in facts(writes) {
        assert_eq!(fact.from, Some(at), "{what}");
        assert!(profile.allows(at, fact.verb, fact.to), "{what}: {fact:?}");
        at = fact.to;
    }
    if let Some(last) = changed(writes).last() {
        assert_eq!(last.state, at, "{what}: a row moves with a fact only");
        assert!(profile.word(last.state, last.cause).is_some(), "{what}");
        assert_eq!(
            profile.is_terminal(last.state),
            last.settled_at.is_some(),
            "{what}"
        );
    }
}

#[test]
fn whatever_is_written_is_a_legal_step_of_the_profile() {
    let instants = [
        NOW,
        NOW.plus(LEASE_US),
        NOW.plus(400 * LEASE_US),
        Micros::MAX,
    ];
    for &profile in ProfileId::ALL {
        let face = profile.profile().face;
        let known = |state: &&State| profile.profile().word(**state, crate::state::Cause::None);
        for &state in State::ALL.iter().filter(|state| known(state).is_some()) {
            for attempts in [1, 3] {
                let mut row = row(profile, state);
                row.attempts = attempts;
                for (command, now) in commands(face)
                    .iter()
                    .flat_map(|command| instants.map(|now| (command, now)))
                {
                    let what = format!("{profile:?} {state:?} {attempts} {command:?} at {now:?}");
                    if let Ok(decision) = decided(std::slice::from_ref(&row), command, now) {
                        is_legal(&row, &decision.writes, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn a_claim_of_whatever_can_be_claimed_is_a_legal_step() {
    let now = NOW.plus(LEASE_US);
    for &profile in ProfileId::ALL {
        let command = Command::Claim(claim(profile.profile().face, 1));
        let queued = row(profile, State::Queued);
        let mut lapsed = row(profile, State::Dispatched);
        lapsed.shelf = Shelf::Lapsed;
        for row in [queued, lapsed] {
            let reachable = profile.profile().row(row.state, Verb::Claim).is_some();
            if reachable {
                let decision = decided(std::slice::from_ref(&row), &command, now).unwrap();
                assert_eq!(changed(&decision.writes).len(), 1);
                is_legal(
                    &row,
                    &decision.writes,
                    &format!("{profile:?} {:?}", row.state),
                );
            }
        }
    }
}

#[test]
fn what_the_table_leaves_out_is_refused() {
    use ProfileId::{AtpTransaction, Automation, BeamDirectory, Intent, MeshOutbox};
    use State::{Acked, DeadLetter, Dispatched, Queued};
    let illegal = Refusal::IllegalState;
    let lost = Refusal::LeaseLost;
    let cases = [
        (Intent, Queued, complete(), &lost),
        (Intent, Acked, fail(), &lost),
        (Intent, DeadLetter, extend(), &lost),
        (Automation, Dispatched, fail(), &illegal),
        (BeamDirectory, Dispatched, complete(), &illegal),
        (AtpTransaction, Dispatched, complete(), &illegal),
        (
            Automation,
            Acked,
            Command::Cancel(operate(Face::Automation)),
            &illegal,
        ),
        (
            Automation,
            Queued,
            Command::Requeue(operate(Face::Automation)),
            &illegal,
        ),
        (
            MeshOutbox,
            DeadLetter,
            Command::Requeue(operate(Face::Mesh)),
            &illegal,
        ),
        (
            AtpTransaction,
            Dispatched,
            Command::Cancel(operate(Face::Transaction)),
            &illegal,
        ),
        (
            Automation,
            Queued,
            Command::Cancel(operate(Face::Intent)),
            &Refusal::NotFound,
        ),
        (
            Intent,
            Acked,
            Command::CancelUnfinished(operate(Face::Intent)),
            &Refusal::Completed,
        ),
        (
            Intent,
            Acked,
            Command::RequeueUnfinished(operate(Face::Intent)),
            &Refusal::Completed,
        ),
        (
            Automation,
            Acked,
            Command::CancelUnfinished(operate(Face::Intent)),
            &Refusal::NotFound,
        ),
    ];
    for (profile, state, command, refusal) in cases {
        assert_eq!(
            decided(&[row(profile, state)], &command, NOW).as_ref(),
            Err(refusal),
            "{profile:?} {state:?} {command:?}"
        );
    }
}

#[test]
fn a_command_for_a_row_that_is_not_there_is_refused() {
    for command in commands(Face::Intent).iter().take(5) {
        assert_eq!(
            decided(&[], command, NOW),
            Err(Refusal::NotFound),
            "{command:?}"
        );
    }
}

#[test]
fn the_same_inputs_give_the_same_decision() {
    let row = row(ProfileId::Intent, State::Dispatched);
    for command in commands(Face::Intent) {
        for now in [NOW, NOW.plus(LEASE_US)] {
            let decide = || decided(std::slice::from_ref(&row), &command, now);
            assert_eq!(decide(), decide());
        }
    }
}

#[test]
fn a_batch_claim_draws_a_token_for_each_ip_104_ip_164() {
    let rows: Vec<Intent> = (0..100)
        .map(|n| Intent {
            id: IntentId([n; 16]),
            ..row(ProfileId::Intent, State::Queued)
        })
        .collect();
    let decision = decided(&rows, &Command::Claim(claim(Face::Intent, 100)), NOW).unwrap();
    let Answer::Claimed(claimed) = decision.answer else {
        panic!("a claim answers what was claimed");
    };
    let tokens: HashSet<_> = claimed
        .iter()
        .map(|row| row.token.unwrap().reveal())
        .collect();
    assert_eq!(tokens.len(), 100);
    assert!(tokens.iter().all(|token| token.len() == 32));
}

#[test]
fn a_batch_admission_names_each_intent_differently_ip_043() {
    let admit = Command::Admit(Admit {
        items: vec![item(ProfileId::Intent); 100],
        cap: None,
    });
    let decision = decided(&[], &admit, NOW).unwrap();
    let Answer::Admitted(admitted) = decision.answer else {
        panic!("an admission answers what was admitted");
    };
    let ids: HashSet<_> = admitted.iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), 100);
    assert_eq!(facts(&decision.writes).len(), 100);
}

/// A row is in a lane because it was due by the clock of the node that queued it.
#[test]
fn a_row_that_a_faster_clock_made_ready_is_handed_out() {
    let mut early = row(ProfileId::Intent, State::Queued);
    early.run_at = NOW.plus(1);
    let claim = Command::Claim(claim(Face::Intent, 10));
    let decision = decided(&[early], &claim, NOW).unwrap();
    assert_eq!(changed(&decision.writes).len(), 1);
}

/// Lanes are named by hashes: a row of another lane with the same hash must not be leased.
#[test]
fn a_row_of_a_lane_is_compared_field_by_field_before_it_is_handed_out() {
    type Spoil = fn(&mut Intent);
    let spoils: [Spoil; 7] = [
        |row| row.namespace = "other".to_owned(),
        |row| row.owner = "bob".to_owned(),
        |row| row.target = Some("w1".to_owned()),
        |row| row.capability = Some("gpu".to_owned()),
        |row| row.goal = "wave".to_owned(),
        |row| row.profile = ProfileId::Automation,
        |row| row.expires_at = NOW,
    ];
    let mut asked = claim(Face::Intent, 10);
    asked.goal = Some("greet".to_owned());
    asked.worker_id = Some("w2".to_owned());
    asked.capabilities = vec!["gpu2".to_owned()];
    let fit = row(ProfileId::Intent, State::Queued);
    let mut rows = vec![fit.clone()];
    for spoil in spoils {
        let mut unfit = fit.clone();
        spoil(&mut unfit);
        rows.push(unfit);
    }
    let decision = decided(&rows, &Command::Claim(asked), NOW).unwrap();
    assert_eq!(changed(&decision.writes).len(), 1);
    assert_eq!(facts(&decision.writes).len(), 1);
}
