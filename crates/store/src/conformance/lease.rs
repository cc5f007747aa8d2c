//! Leases: who may use one, when it expires, and the effects of its expiry.

use consign_kernel::command::{Answer, Command, Extend, NewIntent, Settle, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, SECOND_US, Token};
use consign_kernel::intent::{Intent, Shelf};
use consign_kernel::state::{Cause, State, Verb};

use super::{World, claim_by, item};

const LEASE_US: i64 = 60 * SECOND_US;

/// Every way of using a lease.
fn uses(id: IntentId, holder: &str, token: Token) -> [Command; 3] {
    let settle = |how| {
        Command::Settle(Settle {
            detail: None,
            id,
            holder: holder.to_owned(),
            token,
            how,
        })
    };
    [
        Command::Extend(Extend {
            detail: None,
            id,
            holder: holder.to_owned(),
            token,
            lease_us: LEASE_US,
        }),
        settle(Settlement::Complete { result: None }),
        settle(Settlement::Fail {
            error: "no".to_owned(),
        }),
    ]
}

/// All of them are refused, and the content does not change.
async fn refuses(world: &World, id: IntentId, holder: &str, token: Token, refusal: Refusal) {
    let before = world.store.dump().await.expect("storage works");
    for using in uses(id, holder, token) {
        assert_eq!(
            world.step(using.clone()).await,
            Err(refusal.clone()),
            "{using:?}"
        );
    }
    assert_eq!(world.store.dump().await.expect("storage works"), before);
}

fn token(row: &Intent) -> Token {
    row.token.expect("a claimed intent has a token")
}

pub async fn only_holder_and_token_together_use_a_lease_ip_007_ip_109_ip_118_ip_122_ip_188(
    world: World,
) {
    let id = world.publish(item()).await;
    let queued = Token([0; 16]);
    refuses(&world, id, "alice", queued, Refusal::LeaseLost).await;
    let held = world.take("alice").await;
    let mut other = token(&held);
    other.0[15] ^= 1;
    refuses(&world, id, "alice", other, Refusal::LeaseLost).await;
    refuses(&world, id, "bob", token(&held), Refusal::LeaseLost).await;
    let unknown = IntentId([1; 16]);
    refuses(&world, unknown, "alice", token(&held), Refusal::NotFound).await;
    assert!(world.complete(&held).await.is_ok());
}

pub async fn a_lease_ends_at_its_instant_ip_020_ip_029_ip_030_ip_031_ip_110(world: World) {
    let id = world.publish(item()).await;
    let held = world.take("alice").await;
    world.clock.advance(LEASE_US - 1);
    assert!(world.extend(&held, 1).await.is_ok(), "it still runs");
    world.clock.advance(1);
    refuses(&world, id, "alice", token(&held), Refusal::LeaseLost).await;
}

pub async fn extending_counts_from_now_ip_106(world: World) {
    let id = world.publish(item()).await;
    let held = world.take("alice").await;
    world.clock.advance(30 * SECOND_US);
    let until = world.now().plus(10 * SECOND_US);
    assert_eq!(
        world.extend(&held, 10 * SECOND_US).await,
        Ok(Answer::Extended { until }),
        "a lease can also become shorter"
    );
    let stored = world.load(id).await;
    assert_eq!(stored.lease_until, Some(until));
    assert_eq!((stored.shelf, stored.wake_at), (Shelf::Leased, until));
    assert_eq!(stored.token, held.token, "the token stays");
    world.clock.advance(10 * SECOND_US);
    assert_eq!(world.extend(&held, LEASE_US).await, Err(Refusal::LeaseLost));
}

pub async fn an_extended_lease_outlives_its_first_end(world: World) {
    world.publish(item()).await;
    let held = world.take("alice").await;
    world.clock.advance(LEASE_US - 1);
    assert!(world.extend(&held, LEASE_US).await.is_ok());
    world.clock.advance(LEASE_US - 1);
    assert_eq!(world.claim(claim_by("alice")).await, []);
    assert!(world.complete(&held).await.is_ok());
}

pub async fn an_expired_lease_is_taken_over_at_once_ip_002_ip_016_ip_100(world: World) {
    let id = world.publish(item()).await;
    let first = world.take("alice").await;
    let due = first.run_at;
    world.clock.advance(LEASE_US);
    let second = world.take("alice").await;
    assert_eq!((second.id, second.attempts), (id, 2));
    assert_eq!(second.run_at, due, "no back-off");
    assert_ne!(second.token, first.token);
    assert_eq!(
        world.verbs(&second).await,
        [Verb::Admit, Verb::Claim, Verb::Expire, Verb::Claim]
    );
    let facts = world.facts(&second).await;
    assert_eq!(
        (facts[2].from, facts[2].to, facts[2].cause, facts[2].attempt),
        (
            Some(State::Dispatched),
            State::Queued,
            Cause::LeaseExpired,
            1
        )
    );
    assert_eq!(
        (facts[3].from, facts[3].to, facts[3].attempt),
        (Some(State::Queued), State::Dispatched, 2)
    );
    refuses(&world, id, "alice", token(&first), Refusal::LeaseLost).await;
    assert!(world.complete(&second).await.is_ok());
}

pub async fn looking_at_a_lapsed_lease_takes_nothing_from_the_next_claim_ip_016(world: World) {
    let id = world.publish(item()).await;
    let first = world.take("alice").await;
    world.clock.advance(LEASE_US);
    let seen = world.observe(id).await;
    assert_eq!((seen.state, seen.shelf), (State::Dispatched, Shelf::Lapsed));
    assert_eq!(world.verbs(&seen).await, [Verb::Admit, Verb::Claim]);
    refuses(&world, id, "alice", token(&first), Refusal::LeaseLost).await;
    assert_eq!(world.take("alice").await.attempts, 2);
}

async fn exhausted(world: &World) -> Intent {
    world
        .publish(NewIntent {
            attempts_max: 2,
            ..item()
        })
        .await;
    world.take("alice").await;
    world.clock.advance(LEASE_US);
    let held = world.take("alice").await;
    world.clock.advance(LEASE_US);
    held
}

async fn is_dead(world: &World, row: &Intent) {
    let dead = world.load(row.id).await;
    assert_eq!(
        (dead.state, dead.cause),
        (State::DeadLetter, Cause::Exhausted)
    );
    assert_eq!(dead.last_error.as_deref(), Some("Max retries exceeded"));
    assert_eq!(dead.settled_at, Some(world.now()));
    assert_eq!((dead.token, dead.lease_until), (None, None));
    assert_eq!(
        dead.holder.as_deref(),
        Some("alice"),
        "it may still read the outcome"
    );
    assert_eq!(world.verbs(&dead).await.last(), Some(&Verb::Expire));
    refuses(world, row.id, "alice", token(row), Refusal::LeaseLost).await;
}

pub async fn an_exhausted_lease_dies_when_anybody_claims_ip_017_ip_026_ip_166(world: World) {
    let held = exhausted(&world).await;
    assert_eq!(world.claim(claim_by("bob")).await, []);
    is_dead(&world, &held).await;
}

pub async fn an_exhausted_lease_dies_when_it_is_looked_at_ip_017_ip_026(world: World) {
    let held = exhausted(&world).await;
    assert_eq!(world.observe(held.id).await.state, State::DeadLetter);
    is_dead(&world, &held).await;
}

pub async fn the_last_error_is_kept_as_the_reason_of_death(world: World) {
    world
        .publish(NewIntent {
            attempts_max: 2,
            ..item()
        })
        .await;
    let first = world.take("alice").await;
    assert!(world.fail(&first, "disk on fire").await.is_ok());
    world.clock.advance(60 * SECOND_US);
    let second = world.take("alice").await;
    world.clock.advance(LEASE_US);
    let dead = world.observe(second.id).await;
    assert_eq!(dead.state, State::DeadLetter);
    assert_eq!(dead.last_error.as_deref(), Some("disk on fire"));
}

pub async fn observing_what_is_not_there_answers_none(world: World) {
    assert_eq!(
        world.step(Command::Observe(IntentId([1; 16]))).await,
        Ok(Answer::Observed(None))
    );
}
