//! Walks every table completely. The effects of a rule inside a legal step are tested with the rule.

use std::collections::BTreeSet;

use super::{Expiry, Face, LifeEnd, Profile, ProfileId, diagram, diagrams};
use crate::state::State::{
    Acked, DeadLetter, Delivered, Dispatched, Failed, Queued, Received, Validated,
};
use crate::state::{Cause, State, Verb};

fn profiles() -> impl Iterator<Item = &'static Profile> {
    ProfileId::ALL.iter().map(|id| id.profile())
}

/// Every state that is reachable from a start edge.
fn reachable(profile: &Profile) -> BTreeSet<State> {
    let mut seen: BTreeSet<State> = profile.start.iter().copied().collect();
    loop {
        let next: BTreeSet<State> = profile
            .rows
            .iter()
            .filter(|row| seen.contains(&row.from))
            .flat_map(|row| row.to.iter().copied())
            .chain(seen.iter().copied())
            .collect();
        if next == seen {
            return seen;
        }
        seen = next;
    }
}

/// Walks all (state, verb, state) triples and lists the legal ones as `from verb to`.
fn legal_steps(profile: &Profile) -> BTreeSet<String> {
    let mut legal = BTreeSet::new();
    for from in State::ALL {
        for verb in Verb::ALL {
            for to in State::ALL {
                if profile.allows(*from, *verb, *to) {
                    legal.insert(format!("{from} {verb} {to}"));
                }
            }
        }
    }
    legal
}

#[test]
fn a_step_without_a_row_is_refused() {
    for profile in profiles() {
        let listed: BTreeSet<_> = profile
            .rows
            .iter()
            .flat_map(|row| row.to.iter().map(move |to| (row.from, row.on, *to)))
            .map(|(from, verb, to)| format!("{from} {verb} {to}"))
            .collect();
        assert_eq!(legal_steps(profile), listed, "{:?}", profile.id);
        for from in State::ALL {
            for verb in Verb::ALL {
                let has_row = profile
                    .rows
                    .iter()
                    .any(|row| (row.from, row.on) == (*from, *verb));
                assert_eq!(profile.row(*from, *verb).is_some(), has_row);
            }
        }
    }
}

#[test]
fn no_pair_has_two_rows_and_no_row_is_without_a_target() {
    for profile in profiles() {
        let pairs: BTreeSet<_> = profile.rows.iter().map(|row| (row.from, row.on)).collect();
        assert_eq!(pairs.len(), profile.rows.len(), "{:?}", profile.id);
        assert!(profile.rows.iter().all(|row| !row.to.is_empty()));
        assert!(!profile.start.is_empty());
    }
}

#[test]
fn every_state_a_table_names_can_be_reached() {
    for profile in profiles() {
        let reachable = reachable(profile);
        for row in profile.rows {
            assert!(reachable.contains(&row.from), "{:?} {row:?}", profile.id);
        }
        for state in profile.terminal {
            assert!(reachable.contains(state), "{:?} {state}", profile.id);
        }
    }
}

#[test]
fn a_state_has_a_word_for_every_cause_exactly_when_it_can_be_reached() {
    for profile in profiles() {
        let reachable = reachable(profile);
        for state in State::ALL {
            for cause in Cause::ALL {
                assert_eq!(
                    profile.word(*state, *cause).is_some(),
                    reachable.contains(state),
                    "{:?} {state} {cause}",
                    profile.id
                );
            }
        }
    }
}

#[test]
fn a_terminal_state_is_left_only_by_the_listed_ways() {
    for profile in profiles() {
        for row in profile
            .rows
            .iter()
            .filter(|row| profile.is_terminal(row.from))
        {
            let pair = (row.from, row.on);
            let stays = row.to == [row.from];
            assert!(
                stays || profile.operator.contains(&pair) || profile.exits.contains(&pair),
                "{:?} {row:?}",
                profile.id
            );
        }
        for (from, verb) in profile.exits {
            assert!(profile.is_terminal(*from), "{:?} {from} {verb}", profile.id);
        }
    }
}

#[test]
fn a_state_that_is_not_terminal_has_a_way_on() {
    for profile in profiles() {
        for from in reachable(profile) {
            let leaves = State::ALL
                .iter()
                .any(|to| *to != from && profile.joins(Some(from), *to));
            assert!(
                leaves || profile.is_terminal(from) || profile.life_end == LifeEnd::Remove,
                "{:?} {from}",
                profile.id
            );
        }
    }
}

#[test]
fn what_an_operator_is_offered_is_legal() {
    for profile in profiles() {
        for (from, verb) in profile.operator.iter().chain(profile.exits) {
            assert!(
                profile.row(*from, *verb).is_some(),
                "{:?} {from} {verb}",
                profile.id
            );
        }
        for state in State::ALL {
            for verb in profile.operator_verbs(*state) {
                assert!(profile.operator.contains(&(*state, verb)));
            }
        }
    }
}

#[test]
fn a_profile_is_found_by_the_number_it_is_stored_under() {
    for (code, id) in (0_u8..).zip(ProfileId::ALL) {
        assert_eq!(id.code(), code);
        assert_eq!(ProfileId::from_code(code), Some(*id));
        assert_eq!(id.profile().id, *id);
    }
    let names: Vec<_> = ProfileId::ALL.iter().map(|id| id.name()).collect();
    assert_eq!(
        names.join(" "),
        "intent automation mesh_outbox beam_directory beam_bus atp_permission atp_transaction \
         mesh_message mesh_delivery mesh_queue"
    );
    let faces: BTreeSet<_> = profiles().map(|profile| profile.face).collect();
    assert_eq!(faces.len(), Face::ALL.len());
}

#[test]
fn intent_steps_are_exactly_these() {
    let expected = [
        "queued claim dispatched",
        "queued cancel dead_letter",
        "queued requeue queued",
        "dispatched claim dispatched",
        "dispatched extend dispatched",
        "dispatched complete acked",
        "dispatched fail queued",
        "dispatched fail dead_letter",
        "dispatched expire queued",
        "dispatched expire dead_letter",
        "dispatched cancel dead_letter",
        "dispatched requeue queued",
        "acked cancel dead_letter",
        "acked requeue queued",
        "dead_letter cancel dead_letter",
        "dead_letter requeue queued",
    ];
    let expected: BTreeSet<_> = expected.into_iter().map(String::from).collect();
    assert_eq!(legal_steps(ProfileId::Intent.profile()), expected);
}

#[test]
fn an_operator_may_cancel_or_requeue_an_intent_in_any_state() {
    let intent = ProfileId::Intent.profile();
    for state in reachable(intent) {
        assert!(intent.allows(state, Verb::Cancel, DeadLetter));
        assert!(intent.allows(state, Verb::Requeue, Queued));
        let offered: Vec<_> = intent.operator_verbs(state).collect();
        assert_eq!(offered, [Verb::Cancel, Verb::Requeue], "{state}");
    }
}

#[test]
fn ip_010_an_intent_is_open_claimed_fulfilled_or_dead_whatever_the_cause() {
    let intent = ProfileId::Intent.profile();
    let word = |state: State| -> BTreeSet<_> {
        Cause::ALL
            .iter()
            .map(|cause| intent.word(state, *cause))
            .collect()
    };
    assert_eq!(word(Queued), BTreeSet::from([Some("open")]));
    assert_eq!(word(Dispatched), BTreeSet::from([Some("claimed")]));
    assert_eq!(word(Acked), BTreeSet::from([Some("fulfilled")]));
    assert_eq!(word(DeadLetter), BTreeSet::from([Some("dead")]));
    assert_eq!(reachable(intent).len(), 4);
}

#[test]
fn the_cause_tells_timed_out_from_failed_and_aborted_from_dead() {
    let job = ProfileId::Automation.profile();
    assert_eq!(job.word(Failed, Cause::TimedOut), Some("timed_out"));
    assert_eq!(job.word(Failed, Cause::LeaseExpired), Some("timed_out"));
    assert_eq!(job.word(Failed, Cause::WorkerFailed), Some("failed"));
    assert_eq!(job.word(DeadLetter, Cause::TimedOut), Some("dead"));
    let outbox = ProfileId::MeshOutbox.profile();
    assert_eq!(outbox.word(DeadLetter, Cause::Aborted), Some("aborted"));
    assert_eq!(outbox.word(DeadLetter, Cause::Cancelled), Some("aborted"));
    assert_eq!(outbox.word(DeadLetter, Cause::Expired), Some("dead"));
}

#[test]
fn a_failing_automation_attempt_passes_through_failed() {
    let job = ProfileId::Automation.profile();
    for verb in [Verb::Fail, Verb::Expire] {
        let row = job.row(Dispatched, verb).expect("a running job may fail");
        assert_eq!(row.to, [Failed]);
    }
    assert!(job.allows(Failed, Verb::Retry, Queued));
    assert!(job.allows(Failed, Verb::Kill, DeadLetter));
}

/// Beam's table as pairs: one line per state before, one column per state after, in code order.
fn beam_pairs(profile: &Profile) -> Vec<String> {
    std::iter::once(None)
        .chain(State::ALL.iter().copied().map(Some))
        .map(|from| {
            State::ALL
                .iter()
                .map(|to| if profile.joins(from, *to) { 'y' } else { '-' })
                .collect()
        })
        .collect()
}

#[test]
fn be_002_be_006_all_72_pairs_of_the_directory_agree_with_the_protocol() {
    let expected = [
        "y-------", "yyy---yy", "-yyy--yy", "--yy--yy", "--yyy-yy", "--y-yyyy", "-----y--",
        "--y---y-", "--y----y",
    ];
    let pairs = beam_pairs(ProfileId::BeamDirectory.profile());
    assert_eq!(pairs, expected);
    assert_eq!(pairs.concat().matches('y').count(), 30);
}

#[test]
fn be_003_the_bus_adds_only_received_to_dispatched() {
    let directory = ProfileId::BeamDirectory.profile();
    let bus = ProfileId::BeamBus.profile();
    for from in State::ALL {
        for to in State::ALL {
            let added = (*from, *to) == (Received, Dispatched);
            assert_eq!(
                bus.joins(Some(*from), *to),
                directory.joins(Some(*from), *to) || added,
                "{from} {to}"
            );
        }
    }
    assert_eq!(bus.start, directory.start);
}

#[test]
fn be_001_be_007_beam_keeps_our_words_and_frees_dead_letters_by_requeue_alone() {
    for id in [ProfileId::BeamDirectory, ProfileId::BeamBus] {
        let profile = id.profile();
        for state in State::ALL {
            assert_eq!(profile.word(*state, Cause::None), Some(state.name()));
        }
        for verb in Verb::ALL {
            let freed = profile.allows(DeadLetter, *verb, Queued);
            assert_eq!(freed, *verb == Verb::Requeue, "{verb}");
        }
    }
}

#[test]
fn atp_has_no_operator_edges_and_never_goes_back() {
    let order = |state: State| match state {
        Received => 0,
        Validated => 1,
        Dispatched => 2,
        Delivered => 3,
        Acked => 4,
        Failed | DeadLetter => 5,
        Queued => panic!("ATP queues nothing"),
    };
    for id in [ProfileId::AtpPermission, ProfileId::AtpTransaction] {
        let profile = id.profile();
        assert_eq!(profile.operator, []);
        for row in profile.rows {
            for to in row.to {
                assert!(order(*to) >= order(row.from), "{row:?}");
            }
        }
    }
}

#[test]
fn a_settled_transaction_is_left_only_by_compensation_and_an_executing_one_never_expires() {
    let transaction = ProfileId::AtpTransaction.profile();
    for verb in Verb::ALL {
        let row = transaction.row(Acked, *verb);
        assert_eq!(row.is_some(), *verb == Verb::Compensate, "{verb}");
        assert!(transaction.row(Failed, *verb).is_none(), "{verb}");
    }
    assert!(transaction.allows(Acked, Verb::Compensate, Failed));
    assert!(transaction.row(Dispatched, Verb::Expire).is_none());
    assert!(
        !transaction.joins(Some(Dispatched), Acked),
        "settled only by way of executed"
    );
    assert_eq!(transaction.expiry, Expiry::StayLeased);
}

#[test]
fn expiry_of_a_lease_follows_the_profile() {
    let expiries: Vec<_> = profiles().map(|profile| profile.expiry).collect();
    let expected = [
        Expiry::TakeOver,
        Expiry::FailAttempt,
        Expiry::DueIn { ms: 500 },
        Expiry::Fail,
        Expiry::DueNow,
        Expiry::NoLease,
        Expiry::StayLeased,
        Expiry::NoLease,
        Expiry::InPlace,
        Expiry::TakeOver,
    ];
    assert_eq!(expiries, expected);
    for profile in profiles() {
        let target = match profile.expiry {
            Expiry::TakeOver | Expiry::DueNow | Expiry::InPlace | Expiry::DueIn { .. } => {
                Some(Queued)
            }
            Expiry::FailAttempt | Expiry::Fail => Some(Failed),
            Expiry::StayLeased | Expiry::NoLease => None,
        };
        let row = profile.row(Dispatched, Verb::Expire);
        assert_eq!(row.map(|row| row.to[0]), target, "{:?}", profile.id);
    }
}

#[test]
fn a_diagram_shows_words_verbs_and_who_may_take_them() {
    let drawing = diagram(ProfileId::Intent.profile());
    let expected = "\
stateDiagram-v2
    state \"open\" as queued
    state \"claimed\" as dispatched
    state \"fulfilled\" as acked
    state \"dead\" as dead_letter
    [*] --> queued : admit
    queued --> queued : requeue (operator)
    queued --> dispatched : claim
    queued --> dead_letter : cancel (operator)
    dispatched --> queued : fail, expire, requeue (operator)
    dispatched --> dispatched : claim, extend
    dispatched --> acked : complete
    dispatched --> dead_letter : fail, expire, cancel (operator)
    acked --> queued : requeue (operator)
    acked --> dead_letter : cancel (operator)
    dead_letter --> queued : requeue (operator)
    dead_letter --> dead_letter : cancel (operator)
    acked --> [*]
    dead_letter --> [*]
";
    assert_eq!(drawing, expected);
    for profile in profiles() {
        assert!(diagrams().contains(&diagram(profile)));
    }
}
