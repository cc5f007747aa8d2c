//! Messages that wait for their recipient, and holders that work on them in its name.

use super::{LEASE_US, NOW, TOKEN, changed, claim, decided, facts, row};
use crate::command::{Answer, Audience, Claim, Command, Settle, Settlement, Sweep};
use crate::ids::IntentId;
use crate::intent::{Intent, Outcome, ResultKind, Shelf};
use crate::lane::{Column, Lanes};
use crate::profile::{Face, ProfileId};
use crate::state::{State, Verb};

type Step = (Option<State>, Verb, State);

fn public(state: State) -> Intent {
    Intent {
        public: true,
        ..row(ProfileId::BeamBus, state)
    }
}

fn claim_of(audience: Audience, holder: &str) -> Command {
    Command::Claim(Claim {
        audience,
        holder: holder.to_owned(),
        ..claim(Face::Beam, 1)
    })
}

fn steps(command: &Command, row: &Intent) -> (Vec<Step>, Intent) {
    let decision = decided(std::slice::from_ref(row), command, NOW).unwrap();
    let steps = facts(&decision.writes)
        .iter()
        .map(|fact| (fact.from, fact.verb, fact.to))
        .collect();
    let last = changed(&decision.writes).pop().expect("it is written");
    (steps, last.clone())
}

#[test]
fn a_delivered_message_is_in_the_lanes_of_its_recipient_alone() {
    let delivered = public(State::Delivered);
    assert_eq!(delivered.shelf, Shelf::Ready);
    let lanes = Lanes::of(&delivered);
    assert_eq!((lanes.public, lanes.public_goal), (None, None));
    let queued = Lanes::of(&public(State::Queued));
    assert_eq!(lanes.own, queued.own);
    assert_eq!(lanes.own_goal, queued.own_goal);
    assert!(queued.get(Column::Public).is_some());
}

#[test]
fn only_a_claim_that_names_the_recipient_takes_a_delivered_message() {
    let delivered = public(State::Delivered);
    let rows = std::slice::from_ref(&delivered);
    let by_node = claim_of(Audience::Caller, "node");
    let decision = decided(rows, &by_node, NOW).unwrap();
    assert_eq!(decision.answer, Answer::Claimed(Vec::new()));
    let other = claim_of(Audience::Publisher("bob".to_owned()), "worker");
    let decision = decided(rows, &other, NOW).unwrap();
    assert_eq!(decision.answer, Answer::Claimed(Vec::new()));

    let by_worker = claim_of(Audience::Publisher("alice".to_owned()), "worker");
    let (taken, held) = steps(&by_worker, &delivered);
    assert_eq!(
        taken,
        [
            (Some(State::Delivered), Verb::Retry, State::Queued),
            (Some(State::Queued), Verb::Claim, State::Dispatched),
        ]
    );
    assert_eq!(held.holder.as_deref(), Some("worker"));
    assert!(held.is_leased(NOW));
    assert_eq!(held.attempts, delivered.attempts + 1);
}

#[test]
fn a_delivered_message_past_its_life_still_waits_for_its_recipient_but_for_no_claim() {
    let mut delivered = public(State::Delivered);
    delivered.reshelve(delivered.expires_at);
    assert_eq!(delivered.shelf, Shelf::Delayed);
    let mut ready = public(State::Delivered);
    ready.wake_at = ready.expires_at;
    let late = ready.expires_at;
    let sweep = Command::Sweep(Sweep { limit: 10 });
    let decision = decided(std::slice::from_ref(&ready), &sweep, late).unwrap();
    let swept = changed(&decision.writes).pop().expect("it is written");
    assert_eq!(
        (swept.state, swept.shelf),
        (State::Delivered, Shelf::Delayed)
    );
}

#[test]
fn a_holder_that_completes_a_message_delivers_it_in_the_same_commit() {
    let result = Some(Outcome {
        kind: ResultKind::Json,
        body: "{}".to_owned(),
    });
    let complete = Command::Settle(Settle {
        id: IntentId([1; 16]),
        holder: "alice".to_owned(),
        token: TOKEN,
        how: Settlement::Complete {
            result: result.clone(),
        },
        detail: None,
    });
    let held = row(ProfileId::BeamBus, State::Dispatched);
    let (taken, acked) = steps(&complete, &held);
    assert_eq!(
        taken,
        [
            (Some(State::Dispatched), Verb::Deliver, State::Delivered),
            (Some(State::Delivered), Verb::Complete, State::Acked),
        ]
    );
    assert_eq!((acked.result, acked.settled_at), (result, Some(NOW)));
    assert_eq!((acked.token, acked.lease_until), (None, None));
}

#[test]
fn a_message_that_is_handed_over_is_delivered_without_an_attempt() {
    let hand_over = Command::Settle(Settle {
        id: IntentId([1; 16]),
        holder: "alice".to_owned(),
        token: TOKEN,
        how: Settlement::HandOver,
        detail: None,
    });
    let held = row(ProfileId::BeamBus, State::Dispatched);
    assert_eq!(held.attempts, 1);
    let (taken, delivered) = steps(&hand_over, &held);
    let deliver = (Some(State::Dispatched), Verb::Deliver, State::Delivered);
    assert_eq!(taken, [deliver]);
    assert_eq!((delivered.attempts, delivered.shelf), (0, Shelf::Ready));
}

#[test]
fn a_message_whose_holder_vanished_waits_for_every_claim_again() {
    let held = Intent {
        public: true,
        ..row(ProfileId::BeamBus, State::Dispatched)
    };
    let late = NOW.plus(LEASE_US);
    let sweep = Command::Sweep(Sweep { limit: 10 });
    let decision = decided(std::slice::from_ref(&held), &sweep, late).unwrap();
    let queued = changed(&decision.writes).pop().expect("it is written");
    assert_eq!((queued.state, queued.shelf), (State::Queued, Shelf::Ready));
    assert!(queued.is_for_all());
}
