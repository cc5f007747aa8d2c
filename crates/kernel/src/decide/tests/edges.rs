//! Every edge of every profile's table is taken by some command, so a table contains no step that no rule executes.

use std::collections::BTreeSet;

use super::{LEASE_US, NOW, TOKEN, changed, claim, decided, facts, item, row};
use crate::command::{
    Admit, Advance, Begin, Clean, Command, Extend, Hold, HolderRetry, Operate, Recover, Settle,
    Settlement, Sweep, Take,
};
use crate::error::Refusal;
use crate::ids::{IntentId, Micros, SECOND_US};
use crate::intent::{Intent, Outcome, ResultKind, Shelf};
use crate::limits;
use crate::profile::{Delivery, Face, Profile, ProfileId, Retention};
use crate::state::{Cause, State, Verb};

type Edge = (Option<State>, Verb, State);

const ID: IntentId = IntentId([1; 16]);
const HOLDER: &str = "node/first";

fn listed(profile: &Profile) -> BTreeSet<Edge> {
    let steps = profile
        .rows
        .iter()
        .flat_map(|row| row.to.iter().map(|to| (Some(row.from), row.on, *to)));
    let starts = profile
        .start
        .iter()
        .map(|state| (None, Verb::Admit, *state));
    steps.chain(starts).collect()
}

fn settlements() -> Vec<Settlement> {
    let error = || "no".to_owned();
    let mut all = vec![
        Settlement::Complete { result: None },
        Settlement::Fail { error: error() },
        Settlement::FailSince {
            error: error(),
            since: NOW,
        },
        Settlement::FailWith {
            error: error(),
            retry: HolderRetry::Never,
        },
        Settlement::FailWith {
            error: error(),
            retry: HolderRetry::After { us: LEASE_US },
        },
        Settlement::Deliver,
        Settlement::Reject { error: error() },
        Settlement::LetGo { after_us: LEASE_US },
        Settlement::GiveBack,
        Settlement::HandOver,
        Settlement::RetryLater {
            after_us: LEASE_US,
            error: None,
        },
        Settlement::Kill { error: error() },
    ];
    for again in [false, true] {
        all.push(Settlement::FailAttempt {
            error: error(),
            timed_out: false,
            again,
        });
    }
    all
}

/// Every command that can act on the one stored row.
fn commands(face: Face) -> Vec<Command> {
    let hold = Hold {
        holder: HOLDER.to_owned(),
        lease_us: LEASE_US,
    };
    let operate = || Operate {
        id: ID,
        face,
        reason: "by hand".to_owned(),
    };
    let mut all = vec![
        Command::Take(Take {
            id: ID,
            face,
            hold,
            detail: None,
        }),
        Command::Extend(Extend {
            detail: None,
            id: ID,
            holder: HOLDER.to_owned(),
            token: TOKEN,
            lease_us: LEASE_US,
        }),
        Command::Cancel(operate()),
        Command::Requeue(operate()),
        Command::Observe(ID),
        Command::Sweep(Sweep { limit: 10 }),
        Command::Recover(Recover {
            face,
            node: "node".to_owned(),
            start: "second".to_owned(),
            limit: 10,
        }),
        Command::Clean(Clean {
            face,
            retention_us: limits::RETENTION_US,
            limit: 10,
        }),
    ];
    all.extend(Verb::ALL.iter().map(|&verb| {
        let reason = "asked".to_owned();
        Command::Advance(Box::new(Advance::by_operator(ID, face, verb, reason)))
    }));
    all.extend(settlements().into_iter().map(|how| {
        Command::Settle(Settle {
            detail: None,
            id: ID,
            holder: HOLDER.to_owned(),
            token: TOKEN,
            how,
        })
    }));
    all
}

/// The row in the forms that a ledger can contain: leased or not, with attempts left or without, with an early expiry or not.
fn variants(profile: ProfileId, state: State) -> Vec<Intent> {
    let mut variants = Vec::new();
    for (held, attempts, over) in [
        (false, 1, false),
        (false, 1, true),
        (true, 1, false),
        (true, 1, true),
        (true, 3, false),
    ] {
        let mut row = row(profile, state);
        row.attempts = attempts;
        row.release();
        let delivered = profile.profile().delivered;
        let ends_lease = matches!(delivered, Delivery::AwaitsAck | Delivery::Rests);
        let can_be_leased = state == State::Dispatched || state == State::Delivered && !ends_lease;
        if held && can_be_leased {
            row.holder = Some(HOLDER.to_owned());
            row.token = Some(TOKEN);
            row.lease_until = Some(NOW.plus(LEASE_US));
        }
        if over {
            row.expires_at = NOW.plus(LEASE_US / 2);
        }
        row.reshelve(NOW);
        variants.push(row);
    }
    variants
}

fn starts(profile: ProfileId) -> Vec<Command> {
    let begin = |hold| {
        Command::Begin(Box::new(Begin {
            walk: Vec::new(),
            detail: None,
            id: ID,
            item: item(profile),
            hold,
            within: None,
        }))
    };
    let mut all = vec![
        begin(None),
        begin(Some(Hold {
            holder: HOLDER.to_owned(),
            lease_us: LEASE_US,
        })),
    ];
    if profile.profile().start.contains(&State::Queued) {
        all.push(Command::Admit(Admit {
            items: vec![item(profile)],
            cap: None,
        }));
    }
    all
}

fn taken(profile: ProfileId) -> BTreeSet<Edge> {
    let face = profile.profile().face;
    let mut edges = BTreeSet::new();
    let mut run = |rows: &[Intent], command: &Command, now: Micros| {
        if let Ok(decision) = decided(rows, command, now) {
            let steps = facts(&decision.writes);
            edges.extend(steps.iter().map(|fact| (fact.from, fact.verb, fact.to)));
        }
    };
    for command in starts(profile) {
        run(&[], &command, NOW);
    }
    let known = |state: &&State| profile.profile().word(**state, Cause::None).is_some();
    for &state in State::ALL.iter().filter(known) {
        for row in variants(profile, state) {
            for now in [NOW, NOW.plus(LEASE_US)] {
                for command in commands(face) {
                    run(std::slice::from_ref(&row), &command, now);
                }
            }
            if row.shelf.claimable() {
                run(
                    std::slice::from_ref(&row),
                    &Command::Claim(claim(face, 1)),
                    NOW,
                );
            }
        }
    }
    edges
}

#[test]
fn every_edge_of_every_profile_is_taken_by_some_command() {
    let mut missing = Vec::new();
    for &profile in ProfileId::ALL {
        let taken = taken(profile);
        for (from, verb, to) in listed(profile.profile()).difference(&taken) {
            let from = from.map_or("start", State::name);
            missing.push(format!("{profile:?}: {from} {verb} {to}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn unleased_steps_are_legal_and_none_leaves_a_dispatched_row() {
    for &id in ProfileId::ALL {
        let profile = id.profile();
        for (from, verb) in profile.unleased {
            assert!(profile.row(*from, *verb).is_some(), "{id:?} {from} {verb}");
            assert_ne!(*from, State::Dispatched, "{id:?}: it has a holder");
        }
    }
}

#[test]
fn a_message_past_its_maximum_age_is_dead_and_not_deleted() {
    let mut pending = row(ProfileId::MeshOutbox, State::Queued);
    let late = pending.expires_at;
    let sweep = Command::Sweep(Sweep { limit: 10 });
    let clean = Command::Clean(Clean {
        face: Face::Mesh,
        retention_us: limits::RETENTION_US,
        limit: 10,
    });
    let mut inflight = row(ProfileId::MeshOutbox, State::Dispatched);
    inflight.lease_until = Some(late);
    inflight.reshelve(NOW);
    pending.reshelve(NOW);
    for row in [pending, inflight] {
        for command in [&sweep, &clean] {
            let decision = decided(std::slice::from_ref(&row), command, late).unwrap();
            let dead = changed(&decision.writes).pop().expect("it is written");
            assert_eq!(
                (dead.state, dead.cause),
                (State::DeadLetter, Cause::Expired)
            );
            assert_eq!(dead.last_error.as_deref(), Some("max_age_exceeded"));
            assert_eq!(facts(&decision.writes).len(), 1);
        }
    }
}

#[test]
fn a_message_that_waits_for_its_recipient_has_no_lease_and_its_ack_needs_none() {
    let deliver = Command::Settle(Settle {
        detail: None,
        id: ID,
        holder: "alice".to_owned(),
        token: TOKEN,
        how: Settlement::Deliver,
    });
    let held = row(ProfileId::BeamBus, State::Dispatched);
    let decision = decided(&[held], &deliver, NOW).unwrap();
    let delivered = changed(&decision.writes)[0].clone();
    assert_eq!(
        (delivered.shelf, delivered.wake_at),
        (Shelf::Ready, delivered.expires_at)
    );
    assert_eq!(delivered.lease_until, None);
    let take = Command::Take(Take {
        detail: None,
        id: ID,
        face: Face::Beam,
        hold: Hold {
            holder: HOLDER.to_owned(),
            lease_us: LEASE_US,
        },
    });
    let rows = std::slice::from_ref(&delivered);
    assert_eq!(decided(rows, &take, NOW), Err(Refusal::IllegalState));
    let result = Outcome {
        kind: ResultKind::Json,
        body: "{}".to_owned(),
    };
    let ack = |result| {
        Command::Advance(Box::new(Advance {
            actor: Some("bob".to_owned()),
            result,
            ..Advance::by_system(ID, Face::Beam, Verb::Complete)
        }))
    };
    let decision = decided(rows, &ack(Some(result.clone())), NOW).unwrap();
    let acked = changed(&decision.writes)[0].clone();
    assert_eq!((acked.state, &acked.result), (State::Acked, &Some(result)));
    let again = decided(std::slice::from_ref(&acked), &ack(None), NOW.plus(1)).unwrap();
    assert_eq!(changed(&again.writes)[0].result, acked.result);
    assert_eq!(changed(&again.writes)[0].settled_at, acked.settled_at);
    let Command::Advance(mut once) = ack(None) else {
        panic!("an acknowledgement is a step");
    };
    once.refuse_repeated = true;
    let once = Command::Advance(once);
    assert!(decided(rows, &once, NOW).is_ok());
    let repeated = decided(std::slice::from_ref(&acked), &once, NOW.plus(1));
    assert_eq!(repeated, Err(Refusal::IllegalState));
    let mut queued = delivered;
    queued.state = State::Queued;
    assert_eq!(
        decided(&[queued], &ack(None), NOW),
        Err(Refusal::IllegalState)
    );
}

#[test]
fn a_step_is_refused_if_the_row_is_not_as_its_caller_saw_it() {
    let step = |from, attempt| {
        Command::Advance(Box::new(Advance {
            from,
            attempt,
            ..Advance::by_system(ID, Face::Beam, Verb::Complete)
        }))
    };
    let mut acked = row(ProfileId::BeamBus, State::Acked);
    acked.attempts = 2;
    let rows = std::slice::from_ref(&acked);
    assert!(decided(rows, &step(None, None), NOW).is_ok());
    assert!(decided(rows, &step(Some(State::Acked), Some(2)), NOW).is_ok());
    for (from, attempt) in [
        (Some(State::Delivered), None),
        (None, Some(1)),
        (Some(State::Acked), Some(3)),
    ] {
        let refused = decided(rows, &step(from, attempt), NOW);
        assert_eq!(refused, Err(Refusal::IllegalState));
    }
}

#[test]
fn a_lease_free_step_cannot_pass_the_holder_of_a_lease() {
    for &id in ProfileId::ALL {
        if id.profile().word(State::Dispatched, Cause::None).is_none() {
            continue;
        }
        let held = row(id, State::Dispatched);
        for &verb in Verb::ALL {
            let step = Advance::by_system(ID, id.profile().face, verb);
            let refused = decided(
                std::slice::from_ref(&held),
                &Command::Advance(Box::new(step)),
                NOW,
            );
            assert_eq!(refused, Err(Refusal::IllegalState), "{id:?} {verb}");
        }
    }
}

#[test]
fn the_bus_computes_its_delay_from_the_nonce_in_the_payload() {
    let delay_s = |payload: &str, how| {
        let settle = Command::Settle(Settle {
            detail: None,
            id: ID,
            holder: "alice".to_owned(),
            token: TOKEN,
            how,
        });
        let held = Intent {
            backoff_us: SECOND_US,
            payload: payload.to_owned(),
            ..row(ProfileId::BeamBus, State::Dispatched)
        };
        let decision = decided(&[held], &settle, NOW).unwrap();
        (changed(&decision.writes)[0].run_at.0 - NOW.0) / SECOND_US
    };
    let failed = |payload: &str| {
        let error = "no".to_owned();
        delay_s(payload, Settlement::Fail { error })
    };
    assert_eq!(failed(r#"{"nonce":"bus-1","payload":{}}"#), 34);
    assert_eq!(
        failed(r#"{"payload":{"nonce":"bus-1"},"nonce":"retry-nonce-1"}"#),
        28
    );
    // Without a nonce the id of the row is as good, because it never changes either.
    assert_eq!(failed("{}"), failed(r#"{"nonce":7}"#));
    let since = Settlement::FailSince {
        error: "no".to_owned(),
        since: Micros(NOW.0 - 4 * SECOND_US),
    };
    assert_eq!(delay_s(r#"{"nonce":"bus-1"}"#, since), 30);
    let later = Settlement::RetryLater {
        after_us: 7 * SECOND_US,
        error: None,
    };
    assert_eq!(delay_s("{}", later), 7);
}

#[test]
fn an_aborted_message_is_not_aborted_again() {
    let cancel = Command::Cancel(Operate {
        id: ID,
        face: Face::Mesh,
        reason: "by hand".to_owned(),
    });
    let decision = decided(&[row(ProfileId::MeshOutbox, State::Queued)], &cancel, NOW).unwrap();
    let aborted = changed(&decision.writes)[0].clone();
    assert_eq!(aborted.cause, Cause::Aborted);
    assert_eq!(
        decided(&[aborted], &cancel, NOW),
        Err(Refusal::IllegalState)
    );
}

#[test]
fn the_profiles_of_a_face_agree_on_retention() {
    for &id in ProfileId::ALL {
        let profile = id.profile();
        let of_face = profile.face.retention_us().map(Retention::ForUs);
        let agrees = profile.retention == Retention::Forever || Some(profile.retention) == of_face;
        assert!(agrees, "{id:?}");
    }
}
