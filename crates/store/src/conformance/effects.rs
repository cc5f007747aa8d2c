//! Permissions and transactions: rows outside of any queue that only move forward, and whose lease may change its holder
//! without a change of state.

use consign_kernel::command::{
    Answer, Audience, Begin, Claim, Command, Hold, NewIntent, Operate, Recover, Settlement, Sweep,
    Take, Within,
};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, HOUR_US, IntentId, Micros, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::record::{Key, Kind, Put};
use consign_kernel::state::{Cause, State, Verb};

use super::{World, claim_by, in_face};
use crate::{Clock as _, TypedReads as _};

const LEASE_US: i64 = 60 * SECOND_US;

fn named(n: u8, world: &World) -> IntentId {
    IntentId::new(world.now(), Seq(u64::from(n)), u128::from(n))
}

async fn begin(world: &World, n: u8, item: NewIntent, holder: Option<&str>) -> Intent {
    let begin = Begin {
        walk: Vec::new(),
        detail: None,
        id: named(n, world),
        item,
        hold: holder.map(|holder| Hold {
            holder: holder.to_owned(),
            lease_us: LEASE_US,
        }),
        within: None,
    };
    match world.step(Command::Begin(Box::new(begin))).await {
        Ok(Answer::Begun(row)) => *row,
        other => panic!("a beginning answered {other:?}"),
    }
}

/// Requests a permission with its record, subject to the agent's quota.
async fn asked_for(world: &World, n: u8, of: &str, ttl_us: i64) -> Result<Intent, Refusal> {
    let item = NewIntent {
        ttl_us,
        goal: format!("int_{n}"),
        target: Some(of.to_owned()),
        ..in_face(ProfileId::AtpPermission)
    };
    let begin = Begin {
        walk: Vec::new(),
        detail: None,
        id: named(n, world),
        item,
        hold: None,
        within: Some(Within { each: 2, all: 3 }),
    };
    let begun = world.step(Command::Begin(Box::new(begin))).await?;
    let Answer::Begun(row) = begun else {
        panic!("a beginning answered {begun:?}");
    };
    let row = *row;
    let put = Put {
        key: record_of(&row),
        value: "{}".to_owned(),
        expires_at: None,
        expect: None,
    };
    world.step(Command::Put(put)).await?;
    Ok(row)
}

fn record_of(row: &Intent) -> Key {
    Key {
        kind: Kind::Permission,
        owner: String::new(),
        name: row.goal.clone(),
    }
}

/// Whether the row, its record and its facts exist.
async fn is_kept(world: &World, row: &Intent) -> [bool; 3] {
    let record = world.store.record(record_of(row)).await;
    [
        world.get(row.id).await.is_some(),
        record.expect("storage works").is_some(),
        !world.facts(row).await.is_empty(),
    ]
}

async fn sweep(world: &World) {
    let sweep = Command::Sweep(Sweep { limit: 512 });
    world.step(sweep).await.expect("a sweep is never refused");
}

pub async fn what_nobody_consented_to_goes_without_a_trace_an_hour_after_its_end(world: World) {
    let left = asked_for(&world, 1, "a", 10 * SECOND_US)
        .await
        .expect("there is room");
    let allowed = asked_for(&world, 2, "a", 10 * SECOND_US)
        .await
        .expect("there is room");
    let withdrawn = asked_for(&world, 3, "b", HOUR_US)
        .await
        .expect("there is room");
    let used = [
        Command::validate(operate(&allowed)),
        Command::Cancel(operate(&withdrawn)),
    ];
    for step in used {
        assert_eq!(world.step(step).await, Ok(Answer::Operated));
    }
    world.clock.advance(10 * SECOND_US);
    sweep(&world).await;
    assert_eq!(world.load(left.id).await.state, State::DeadLetter);
    world.clock.advance(HOUR_US - 1);
    sweep(&world).await;
    for row in [&left, &allowed, &withdrawn] {
        assert_eq!(is_kept(&world, row).await, [true; 3]);
    }
    world.clock.advance(1);
    sweep(&world).await;
    assert_eq!(is_kept(&world, &left).await, [false; 3]);
    assert_eq!(
        is_kept(&world, &withdrawn).await,
        [true; 3],
        "until its own end"
    );
    world.clock.advance(HOUR_US);
    sweep(&world).await;
    assert_eq!(is_kept(&world, &withdrawn).await, [false; 3]);
    world.clock.advance(30 * DAY_US);
    sweep(&world).await;
    assert_eq!(is_kept(&world, &allowed).await, [true; 3], "for good");
    // Its expiry and its removal are due in the same sweep, as after a long downtime.
    let late = asked_for(&world, 4, "c", SECOND_US)
        .await
        .expect("there is room");
    world.clock.advance(HOUR_US + SECOND_US);
    let sweeps = [Sweep { limit: 512 }; 2].map(Command::Sweep);
    world.steps(sweeps.to_vec()).await;
    assert_eq!(is_kept(&world, &late).await, [false; 3]);
    world.is_sound().await;
}

pub async fn what_nobody_consented_to_is_bounded_for_each_and_for_all(world: World) {
    let of_one = Err(Refusal::CapReached { open: 2, limit: 2 });
    let of_all = Err(Refusal::CapReached { open: 3, limit: 3 });
    let first = asked_for(&world, 1, "a", 10 * SECOND_US)
        .await
        .expect("there is room");
    asked_for(&world, 2, "a", 10 * SECOND_US)
        .await
        .expect("there is room");
    assert_eq!(asked_for(&world, 3, "a", SECOND_US).await, of_one);
    asked_for(&world, 4, "b", 10 * SECOND_US)
        .await
        .expect("there is room");
    assert_eq!(asked_for(&world, 5, "c", SECOND_US).await, of_all);
    // A consented permission does not count against the quota.
    let allowed = world.step(Command::validate(operate(&first))).await;
    assert_eq!(allowed, Ok(Answer::Operated));
    asked_for(&world, 6, "a", 10 * SECOND_US)
        .await
        .expect("there is room");
    assert_eq!(asked_for(&world, 7, "a", SECOND_US).await, of_one);
    // An expired one counts until it is removed.
    world.clock.advance(10 * SECOND_US);
    sweep(&world).await;
    assert_eq!(asked_for(&world, 8, "a", SECOND_US).await, of_one);
    world.clock.advance(HOUR_US);
    sweep(&world).await;
    asked_for(&world, 9, "a", SECOND_US)
        .await
        .expect("there is room");
    world.is_sound().await;
}

pub async fn a_permission_ends_by_the_time_of_day_and_not_by_engine_time(world: World) {
    let minute_us = 60 * SECOND_US;
    // Engine time is an hour ahead: the clock was set back.
    world.clock.set_day_ahead(-HOUR_US);
    let row = permission(&world, 1, 10 * minute_us).await;
    let day = world.clock.time_of_day();
    assert_eq!(row.expires_at, day.plus(10 * minute_us));
    world.clock.advance(9 * minute_us);
    sweep(&world).await;
    assert_eq!(world.load(row.id).await.state, State::Received);
    // The clock is set back again while the permission waits.
    world.clock.set_day_ahead(-2 * HOUR_US);
    world.clock.advance(minute_us);
    sweep(&world).await;
    let seen = world.load(row.id).await;
    assert_eq!(seen.state, State::Received);
    assert!(
        seen.wake_at > world.now(),
        "or it would be looked at on and on"
    );
    let allowed = world.step(Command::validate(operate(&row))).await;
    assert_eq!(allowed, Ok(Answer::Operated));
    world.clock.advance(HOUR_US);
    sweep(&world).await;
    let over = world.load(row.id).await;
    assert_eq!(
        (over.state, over.cause),
        (State::DeadLetter, Cause::Expired)
    );

    // Engine time is behind: the machine was suspended.
    world.clock.set_day_ahead(0);
    let row = permission(&world, 2, 10 * minute_us).await;
    world.clock.set_day_ahead(10 * minute_us);
    let refused = world.step(Command::validate(operate(&row))).await;
    assert_eq!(refused, Err(Refusal::IllegalState));
    world.is_sound().await;
}

async fn permission(world: &World, n: u8, ttl_us: i64) -> Intent {
    let item = NewIntent {
        ttl_us,
        ..in_face(ProfileId::AtpPermission)
    };
    begin(world, n, item, None).await
}

async fn transaction(world: &World, n: u8, holder: &str) -> Intent {
    begin(world, n, in_face(ProfileId::AtpTransaction), Some(holder)).await
}

fn operate(row: &Intent) -> Operate {
    Operate {
        id: row.id,
        face: Face::Transaction,
        reason: "asked".to_owned(),
    }
}

fn take(row: &Intent, holder: &str) -> Command {
    Command::Take(Take {
        detail: None,
        id: row.id,
        face: Face::Transaction,
        hold: Hold {
            holder: holder.to_owned(),
            lease_us: LEASE_US,
        },
    })
}

/// Claims the rows that have no live lease.
async fn lapsed(world: &World, holder: &str) -> Vec<Intent> {
    let claim = Claim {
        face: Face::Transaction,
        audience: Audience::Publisher("alice".to_owned()),
        max: 10,
        ..claim_by(holder)
    };
    world.claim(claim).await
}

pub async fn a_permission_is_received_allowed_and_over(world: World) {
    let row = permission(&world, 1, 10 * SECOND_US).await;
    assert_eq!((row.state, row.id), (State::Received, named(1, &world)));
    assert_eq!(world.load(row.id).await, row);
    let allowed = world.step(Command::validate(operate(&row))).await;
    assert_eq!(allowed, Ok(Answer::Operated));
    let again = world.step(Command::validate(operate(&row))).await;
    assert_eq!(again, Err(Refusal::IllegalState));
    assert!(lapsed(&world, "node").await.is_empty(), "nobody claims it");

    world.clock.advance(10 * SECOND_US);
    let over = world.observe(row.id).await;
    assert_eq!(
        (over.state, over.cause),
        (State::DeadLetter, Cause::Expired)
    );
    let cancelled = world.step(Command::Cancel(operate(&row))).await;
    assert_eq!(cancelled, Err(Refusal::IllegalState));
    let verbs = [Verb::Admit, Verb::Validate, Verb::Expire];
    assert_eq!(world.verbs(&over).await, verbs);
}

pub async fn a_permission_past_its_time_is_not_allowed_any_more(world: World) {
    let late = permission(&world, 1, SECOND_US).await;
    let early = permission(&world, 2, 9 * SECOND_US).await;
    world.clock.advance(SECOND_US);
    let refused = world.step(Command::validate(operate(&late))).await;
    assert_eq!(refused, Err(Refusal::IllegalState));
    let cancelled = world.step(Command::Cancel(operate(&early))).await;
    assert_eq!(cancelled, Ok(Answer::Operated));
    assert_eq!(world.load(early.id).await.cause, Cause::Cancelled);
}

pub async fn a_transaction_is_held_from_its_first_commit_on(world: World) {
    let row = transaction(&world, 1, "node").await;
    assert_eq!((row.state, row.shelf), (State::Dispatched, Shelf::Leased));
    assert_eq!(row.expires_at, Micros::MAX);
    assert!(lapsed(&world, "other").await.is_empty());
    let refused = world.step(take(&row, "other")).await;
    assert_eq!(refused, Err(Refusal::Held));

    let early = world
        .settle(&row, Settlement::Complete { result: None })
        .await;
    assert_eq!(early, Err(Refusal::IllegalState), "only by way of executed");
    world
        .settle(&row, Settlement::Deliver)
        .await
        .expect("its holder may");
    world.extend(&row, LEASE_US).await.expect("its holder may");
    world
        .settle(&row, Settlement::Complete { result: None })
        .await
        .expect("its holder may");
    let settled = world.load(row.id).await;
    assert_eq!((settled.state, settled.shelf), (State::Acked, Shelf::Done));
    let verbs = [Verb::Admit, Verb::Deliver, Verb::Extend, Verb::Complete];
    assert_eq!(world.verbs(&settled).await, verbs);
}

pub async fn what_was_let_go_stays_and_is_found_again(world: World) {
    let executing = transaction(&world, 1, "node").await;
    let executed = transaction(&world, 2, "node").await;
    world
        .settle(&executed, Settlement::Deliver)
        .await
        .expect("its holder may");
    for row in [&executing, &executed] {
        let after_us = 5 * SECOND_US;
        let gone = world.settle(row, Settlement::LetGo { after_us }).await;
        assert!(gone.is_ok(), "{gone:?}");
        let late = world.settle(row, Settlement::Deliver).await;
        assert_eq!(late, Err(Refusal::LeaseLost));
    }
    assert!(lapsed(&world, "sweep").await.is_empty(), "not yet");
    world.is_sound().await;
    world.clock.advance(5 * SECOND_US);
    let found = lapsed(&world, "sweep").await;
    let states: Vec<_> = found.iter().map(|row| (row.id, row.state)).collect();
    let expected = [
        (executing.id, State::Dispatched),
        (executed.id, State::Delivered),
    ];
    assert_eq!(states, expected);
    assert!(found.iter().all(|row| row.attempts == 2));

    // The same after a lease that expired long ago.
    world.clock.advance(400 * 86_400 * SECOND_US);
    assert_eq!(lapsed(&world, "late").await.len(), 2);
}

pub async fn one_row_is_taken_by_its_name_before_its_turn(world: World) {
    let row = transaction(&world, 1, "node").await;
    let after_us = 60 * SECOND_US;
    world
        .settle(&row, Settlement::LetGo { after_us })
        .await
        .expect("its holder may");
    let Ok(Answer::Claimed(taken)) = world.step(take(&row, "callback")).await else {
        panic!("nobody holds it");
    };
    assert_eq!(taken[0].holder.as_deref(), Some("callback"));
    assert_ne!(taken[0].token, row.token);
    world
        .settle(&taken[0], Settlement::Deliver)
        .await
        .expect("its holder may");
    world
        .settle(&taken[0], Settlement::Complete { result: None })
        .await
        .expect("its holder may");
    let done = world.step(take(&row, "callback")).await;
    assert_eq!(done, Err(Refusal::IllegalState), "it is settled");
    let other = permission(&world, 2, SECOND_US).await;
    let refused = world.step(take(&other, "callback")).await;
    assert_eq!(refused, Err(Refusal::IllegalState));
}

pub async fn what_is_settled_is_left_by_compensation_alone(world: World) {
    let row = transaction(&world, 1, "node").await;
    let early = world.step(Command::compensate(operate(&row))).await;
    assert_eq!(early, Err(Refusal::IllegalState), "its outcome is unknown");
    world
        .settle(&row, Settlement::Deliver)
        .await
        .expect("its holder may");
    world
        .settle(&row, Settlement::Complete { result: None })
        .await
        .expect("its holder may");
    for command in [
        Command::validate(operate(&row)),
        Command::Cancel(operate(&row)),
        Command::Requeue(operate(&row)),
    ] {
        assert_eq!(world.step(command).await, Err(Refusal::IllegalState));
    }
    let undone = world.step(Command::compensate(operate(&row))).await;
    assert_eq!(undone, Ok(Answer::Operated));
    let undone = world.load(row.id).await;
    assert_eq!(
        (undone.state, undone.cause),
        (State::Failed, Cause::Compensated)
    );
    let twice = world.step(Command::compensate(operate(&row))).await;
    assert_eq!(twice, Err(Refusal::IllegalState));
}

pub async fn a_refused_effect_ends_its_transaction_and_a_voided_one_its_lease(world: World) {
    let declined = transaction(&world, 1, "node").await;
    let error = "card_declined".to_owned();
    world
        .settle(&declined, Settlement::Reject { error })
        .await
        .expect("its holder may");
    let declined = world.load(declined.id).await;
    assert_eq!(
        (declined.state, declined.cause),
        (State::Failed, Cause::Rejected)
    );
    let voided = transaction(&world, 2, "node").await;
    world
        .settle(&voided, Settlement::Deliver)
        .await
        .expect("its holder may");
    let undone = world.step(Command::compensate(operate(&voided))).await;
    assert_eq!(undone, Ok(Answer::Operated));
    let late = world
        .settle(&voided, Settlement::Complete { result: None })
        .await;
    assert_eq!(late, Err(Refusal::LeaseLost));
    assert_eq!(world.load(voided.id).await.cause, Cause::Voided);
}

pub async fn a_dead_process_leaves_its_transactions_where_they_are(world: World) {
    let holder = Recover::holder("here", "1");
    let executing = transaction(&world, 1, &holder).await;
    let executed = transaction(&world, 2, &holder).await;
    world
        .settle(&executed, Settlement::Deliver)
        .await
        .expect("its holder may");
    let elsewhere = transaction(&world, 3, &Recover::holder("there", "1")).await;
    let recover = Command::Recover(Recover {
        face: Face::Transaction,
        node: "here".to_owned(),
        start: "2".to_owned(),
        limit: 100,
    });
    let Ok(Answer::Recovered(rows)) = world.step(recover).await else {
        panic!("recovery is never refused");
    };
    let states: Vec<_> = rows.iter().map(|row| (row.id, row.state)).collect();
    let expected = [
        (executing.id, State::Dispatched),
        (executed.id, State::Delivered),
    ];
    assert_eq!(states, expected);
    world.is_sound().await;
    assert_eq!(lapsed(&world, "here/2").await.len(), 2, "at once");
    assert_eq!(
        world.load(elsewhere.id).await.holder,
        elsewhere.holder,
        "another node's are its own"
    );
}

pub async fn what_is_under_way_is_found_in_the_order_of_admission(world: World) {
    let mut rows = Vec::new();
    for n in 1..=5 {
        rows.push(transaction(&world, n, "node").await);
    }
    permission(&world, 6, SECOND_US).await;
    world.publish(in_face(ProfileId::Intent)).await;
    let after_us = 60 * SECOND_US;
    let let_go = world.settle(&rows[0], Settlement::LetGo { after_us }).await;
    assert!(let_go.is_ok());
    for row in &rows[2..4] {
        let delivered = world.settle(row, Settlement::Deliver).await;
        assert!(delivered.is_ok());
    }
    let done = world
        .settle(&rows[2], Settlement::Complete { result: None })
        .await;
    assert!(done.is_ok());
    let found = async |state, after: Seq, limit| -> Vec<IntentId> {
        let profile = ProfileId::AtpTransaction;
        let found = world.store.active_rows(profile, state, after, limit).await;
        found
            .expect("storage works")
            .iter()
            .map(|row| row.id)
            .collect()
    };
    let executing = [rows[0].id, rows[1].id, rows[4].id];
    for _ in 0..2 {
        assert_eq!(found(State::Dispatched, Seq(0), 10).await, executing);
        assert_eq!(found(State::Dispatched, Seq(0), 2).await, executing[..2]);
        let behind = found(State::Dispatched, rows[0].seq, 10).await;
        assert_eq!(behind, executing[1..]);
        assert_eq!(found(State::Delivered, Seq(0), 10).await, [rows[3].id]);
        assert_eq!(found(State::Acked, Seq(0), 10).await, []);
        // The same when all leases have expired.
        world.clock.advance(2 * LEASE_US);
        let swept = world.step(Command::Sweep(Sweep { limit: 100 })).await;
        assert!(swept.is_ok());
    }
}

pub async fn ended_permissions_and_transactions_are_in_nobodys_way(world: World) {
    let over = permission(&world, 1, SECOND_US).await;
    let consent = world.step(Command::validate(operate(&over))).await;
    assert_eq!(consent, Ok(Answer::Operated));
    let settled = transaction(&world, 2, "node").await;
    for how in [Settlement::Deliver, Settlement::Complete { result: None }] {
        assert!(world.settle(&settled, how).await.is_ok());
    }
    world.clock.advance(SECOND_US);
    world.observe(over.id).await;
    for id in [over.id, settled.id] {
        let row = world.load(id).await;
        assert_eq!((row.shelf, row.wake_at), (Shelf::Done, Micros::MAX));
    }
}
