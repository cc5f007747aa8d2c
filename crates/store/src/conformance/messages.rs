//! Messages: rows that begin with a walk and a once-key, and the listings by sender and recipient.

use consign_kernel::command::{
    Answer, Begin, Command, EarlierFact, Extend, FirstStep, Hold, NewIntent, OnceGuard, Purge,
    Restore, Settle, Settlement, Take,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, IntentId, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::{Cause, State, Verb};

use super::{World, in_face};
use crate::{MessageFilter, MessageTally, MessagesOf, SeqPage, TypedReads as _};

const NODE: &str = "node";

fn nonce(text: &str) -> OnceKey {
    OnceKey {
        scope: Scope::BeamNonce,
        owner: String::new(),
        key: text.to_owned(),
    }
}

fn step(verb: Verb, detail: &str) -> FirstStep {
    FirstStep {
        verb,
        detail: Some(detail.to_owned()),
    }
}

fn message(world: &World, number: u64, from: &str, to: &str, walk: Vec<FirstStep>) -> Begin {
    let claims = walk.iter().any(|step| step.verb == Verb::Claim);
    Begin {
        id: IntentId::new(world.now(), Seq(number), u128::from(number)),
        item: NewIntent {
            owner: to.to_owned(),
            once: Some(OnceGuard {
                key: nonce(&number.to_string()),
                fingerprint: [7; 32],
                lifetime_us: 60 * SECOND_US,
            }),
            ties: Ties {
                sender: Some(from.to_owned()),
                ..Ties::default()
            },
            ..in_face(ProfileId::BeamBus)
        },
        hold: claims.then(|| Hold {
            holder: NODE.to_owned(),
            lease_us: 60 * SECOND_US,
        }),
        within: None,
        walk,
        detail: Some("begun".to_owned()),
    }
}

async fn begin(world: &World, begin: Begin) -> Result<Intent, Refusal> {
    match world.step(Command::Begin(Box::new(begin))).await {
        Ok(Answer::Begun(row)) => Ok(*row),
        Err(refusal) => Err(refusal),
        other => panic!("a begin answered {other:?}"),
    }
}

async fn details(world: &World, row: &Intent) -> Vec<(State, Option<String>)> {
    let facts = world
        .store
        .facts(row.seq, 100)
        .await
        .expect("facts are read");
    let detail = |fact: consign_kernel::fact::Fact| (fact.to, fact.detail);
    facts.into_iter().map(detail).collect()
}

pub async fn a_message_walks_to_its_first_lease_in_one_commit(world: World) {
    let walk = vec![
        step(Verb::Validate, "checked"),
        step(Verb::Claim, "routed"),
        step(Verb::Extend, "by socket"),
    ];
    let row = begin(&world, message(&world, 1, "alice", "bob", walk))
        .await
        .expect("a new message begins");
    assert_eq!((row.state, row.attempts), (State::Dispatched, 1));
    assert_eq!(world.load(row.id).await, row);
    let settle = Settle {
        id: row.id,
        holder: NODE.to_owned(),
        token: row.token.expect("a lease has a token"),
        how: Settlement::Deliver,
        detail: Some("accepted".to_owned()),
    };
    assert!(world.step(Command::Settle(settle)).await.is_ok());
    let expected = [
        (State::Received, "begun"),
        (State::Validated, "checked"),
        (State::Dispatched, "routed"),
        (State::Dispatched, "by socket"),
        (State::Delivered, "accepted"),
    ];
    let expected = expected.map(|(state, detail)| (state, Some(detail.to_owned())));
    assert_eq!(details(&world, &row).await, expected);
    world.is_sound().await;
}

pub async fn a_walk_takes_only_legal_steps(world: World) {
    for walk in [
        vec![step(Verb::Complete, "")],
        vec![step(Verb::Validate, ""), step(Verb::Deliver, "")],
        vec![step(Verb::Extend, "")],
    ] {
        let refused = begin(&world, message(&world, 1, "alice", "bob", walk)).await;
        assert_eq!(refused, Err(Refusal::IllegalState));
    }
    let unused = world.store.first_use(nonce("1")).await;
    assert_eq!(unused.expect("once-keys are read"), None);
    world.is_sound().await;
}

pub async fn a_used_nonce_names_the_first_message(world: World) {
    let first = begin(&world, message(&world, 1, "alice", "bob", Vec::new()))
        .await
        .expect("a new message begins");
    let again = Begin {
        id: IntentId::new(world.now(), Seq(2), 2),
        ..message(&world, 1, "alice", "bob", Vec::new())
    };
    assert_eq!(
        begin(&world, again.clone()).await,
        Err(Refusal::AlreadyBegun { id: first.id })
    );
    let mut other = again;
    if let Some(guard) = &mut other.item.once {
        guard.fingerprint = [8; 32];
    }
    assert_eq!(
        begin(&world, other).await,
        Err(Refusal::OnceConflict { index: 0 })
    );
    let used = world.store.first_use(nonce("1")).await;
    let used = used.expect("once-keys are read").expect("the key is used");
    assert_eq!(used.intent, Some(first.id));
    world.clock.advance(60 * SECOND_US);
    let expired = world.store.first_use(nonce("1")).await;
    assert_eq!(expired.expect("once-keys are read"), None);
    world.is_sound().await;
}

pub async fn messages_are_listed_by_their_parties(world: World) {
    for (number, from, to) in [
        (1, "alice", "bob"),
        (2, "carol", "bob"),
        (3, "alice", "dave"),
        (4, "alice", "bob"),
    ] {
        begin(&world, message(&world, number, from, to, Vec::new()))
            .await
            .expect("a new message begins");
    }
    world.publish(in_face(ProfileId::Intent)).await;
    let numbers = async |of: MessagesOf, page: SeqPage, limit: u32| {
        let filter = MessageFilter {
            profile: ProfileId::BeamBus,
            of,
            page,
            limit,
        };
        let found = world.store.messages(filter).await.expect("a listing");
        let number = |row: Intent| (row.id.0[15], row.seq);
        found.into_iter().map(number).collect::<Vec<_>>()
    };
    let only = |found: &[(u8, Seq)]| found.iter().map(|(number, _)| *number).collect::<Vec<_>>();
    let from_first = SeqPage::After(Seq(0));
    let all = numbers(MessagesOf::All, from_first, 9).await;
    assert_eq!(only(&all), [1, 2, 3, 4]);
    let newest = numbers(MessagesOf::All, SeqPage::NEWEST, 2).await;
    assert_eq!(only(&newest), [4, 3]);
    let older = numbers(MessagesOf::All, SeqPage::Before(newest[1].1), 9).await;
    assert_eq!(only(&older), [2, 1]);
    let sent = numbers(MessagesOf::Sender("alice".to_owned()), SeqPage::NEWEST, 9).await;
    assert_eq!(only(&sent), [4, 3, 1]);
    let got = numbers(MessagesOf::Recipient("bob".to_owned()), from_first, 9).await;
    assert_eq!(only(&got), [1, 2, 4]);
    world.is_sound().await;
}

pub async fn messages_are_counted_by_their_parties_and_times(world: World) {
    let counts = async |tally: MessageTally, from: &str, limit: u32| {
        let counts = world
            .store
            .message_counts(Face::Beam, tally, from.to_owned(), limit);
        let counts = counts.await.expect("counts are read").into_iter();
        counts.map(|one| (one.name, one.count)).collect::<Vec<_>>()
    };
    let named = |list: &[(&str, u64)]| {
        let named = list.iter();
        named
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect::<Vec<_>>()
    };
    for (number, from, to) in [
        (1, "alice", "bob"),
        (2, "carol", "bob"),
        (3, "alice", "dave"),
    ] {
        let begun = begin(&world, message(&world, number, from, to, Vec::new())).await;
        begun.expect("a new message begins");
    }
    let first = MessageTally::interval_of(world.now());
    world.clock.advance(MessageTally::INTERVAL_US);
    let begun = begin(&world, message(&world, 4, "dave", "bob", Vec::new())).await;
    begun.expect("a new message begins");
    world.publish(in_face(ProfileId::Intent)).await;
    let (sent, received) = (MessageTally::Sender, MessageTally::Recipient);
    assert_eq!(
        counts(sent, "", 9).await,
        named(&[("alice", 2), ("carol", 1), ("dave", 1)])
    );
    assert_eq!(counts(sent, "b", 1).await, named(&[("carol", 1)]));
    assert_eq!(
        counts(received, "", 9).await,
        named(&[("bob", 3), ("dave", 1)])
    );
    let second = MessageTally::interval_of(world.now());
    let both = named(&[(&first, 3), (&second, 1)]);
    assert_eq!(counts(MessageTally::Interval, "", 9).await, both);
    assert_eq!(counts(MessageTally::Interval, &second, 9).await, both[1..]);
    let purge = Purge {
        face: Face::Beam,
        namespace: None,
        after: Seq(0),
        limit: 10,
    };
    assert!(world.step(Command::Purge(purge)).await.is_ok());
    for tally in [sent, received, MessageTally::Interval] {
        assert_eq!(counts(tally, "", 9).await, [], "{tally:?}");
    }
    world.is_sound().await;
}

pub async fn a_recipient_finds_what_waits_for_its_acknowledgement(world: World) {
    let mut rows = Vec::new();
    for number in 1..=3 {
        let walk = vec![step(Verb::Claim, "routed")];
        let row = begin(&world, message(&world, number, "alice", "bob", walk)).await;
        rows.push(row.expect("a new message begins"));
    }
    for row in &rows[..2] {
        let delivered = world.settle(row, Settlement::Deliver).await;
        assert!(delivered.is_ok(), "{delivered:?}");
    }
    let awaiting = async || {
        let filter = MessageFilter {
            profile: ProfileId::BeamBus,
            of: MessagesOf::AwaitingAck("bob".to_owned()),
            page: SeqPage::After(Seq(0)),
            limit: 9,
        };
        let found = world.store.messages(filter).await.expect("a listing");
        found.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(awaiting().await, [rows[0].id, rows[1].id]);
    let ack = consign_kernel::command::Advance::by_system(rows[0].id, Face::Beam, Verb::Complete);
    assert!(world.step(Command::Advance(Box::new(ack))).await.is_ok());
    assert_eq!(awaiting().await, [rows[1].id]);
    world.is_sound().await;
}

pub async fn later_steps_of_a_message_carry_their_details(world: World) {
    let row = begin(&world, message(&world, 1, "alice", "bob", Vec::new()))
        .await
        .expect("a new message begins");
    let take = Take {
        id: row.id,
        face: Face::Beam,
        hold: Hold {
            holder: NODE.to_owned(),
            lease_us: 60 * SECOND_US,
        },
        detail: Some("taken".to_owned()),
    };
    let held = match world.step(Command::Take(take)).await {
        Ok(Answer::Claimed(mut rows)) => rows.remove(0),
        other => panic!("a take answered {other:?}"),
    };
    let extend = Extend {
        id: held.id,
        holder: NODE.to_owned(),
        token: held.token.expect("a lease has a token"),
        lease_us: 60 * SECOND_US,
        detail: Some("second route".to_owned()),
    };
    assert!(world.step(Command::Extend(extend)).await.is_ok());
    let expected = [
        (State::Received, "begun"),
        (State::Dispatched, "taken"),
        (State::Dispatched, "second route"),
    ];
    let expected = expected.map(|(state, detail)| (state, Some(detail.to_owned())));
    assert_eq!(details(&world, &row).await, expected);
    world.is_sound().await;
}

pub async fn a_restored_message_brings_its_history_and_its_nonce(world: World) {
    let model = begin(&world, message(&world, 1, "alice", "bob", Vec::new()))
        .await
        .expect("a new message begins");
    let long_ago = world.now().minus(90 * DAY_US);
    let earlier = |verb: Verb, to: State, after_us: i64| EarlierFact {
        at: long_ago.plus(after_us),
        verb,
        to,
        actor: Some("alice".to_owned()),
        detail: Some(to.name().to_owned()),
    };
    let mut restore = Restore {
        intent: Intent {
            id: IntentId([9; 16]),
            state: State::Acked,
            cause: Cause::Completed,
            created_at: long_ago,
            settled_at: Some(long_ago.plus(3)),
            ..model.clone()
        },
        history: vec![
            earlier(Verb::Admit, State::Received, 0),
            // The other system allowed this step.
            earlier(Verb::Deliver, State::Delivered, 2),
            earlier(Verb::Complete, State::Acked, 3),
        ],
        once: Some(OnceGuard {
            key: nonce("elsewhere"),
            fingerprint: [7; 32],
            lifetime_us: 60 * SECOND_US,
        }),
    };
    let step = |restore: &Restore| world.step(Command::Restore(Box::new(restore.clone())));
    assert_eq!(step(&restore).await, Ok(Answer::Restored));
    let stored = world.load(restore.intent.id).await;
    assert_eq!(stored.settled_at, Some(long_ago.plus(3)));
    assert_eq!(
        stored.wake_at,
        world.now().plus(limits::RETENTION_US),
        "its retention begins with the import"
    );
    let facts = world.store.facts(stored.seq, 9).await.expect("facts");
    let told: Vec<_> = (facts.iter())
        .map(|fact| (fact.from, fact.to, fact.cause, fact.time_of_day(), fact.at))
        .collect();
    let now = world.now();
    let expected = [
        (None, State::Received, Cause::None, long_ago, now),
        (
            Some(State::Received),
            State::Delivered,
            Cause::None,
            long_ago.plus(2),
            now,
        ),
        (
            Some(State::Delivered),
            State::Acked,
            Cause::Completed,
            long_ago.plus(3),
            now,
        ),
    ];
    assert_eq!(told, expected);

    assert_eq!(step(&restore).await, Err(Refusal::Exists));
    restore.intent.id = IntentId([8; 16]);
    assert_eq!(step(&restore).await, Err(Refusal::Exists));
    let guard = restore.once.as_mut().expect("it has a key");
    guard.fingerprint = [6; 32];
    assert_eq!(
        step(&restore).await,
        Err(Refusal::OnceConflict { index: 0 })
    );
    let guard = restore.once.as_mut().expect("it has a key");
    guard.key = nonce("a third");
    restore.history.pop();
    assert_eq!(step(&restore).await, Err(Refusal::IllegalState));
    world.is_sound().await;
}
