//! The gate: keys, nonces and quotas, whose changes are kept even when the steps are refused.

use consign_kernel::command::{Answer, Command, Forget, Gate};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::limits;
use consign_kernel::record::{ApiKey, Put};

use super::World;
use crate::TypedReads as _;

fn signed(caller: &str, nonce: &str) -> Gate {
    Gate {
        caller: caller.to_owned(),
        metered: false,
        nonce: Some(nonce.to_owned()),
        cost: 1,
    }
}

fn metered(caller: &str, cost: u32) -> Gate {
    Gate {
        caller: caller.to_owned(),
        metered: true,
        nonce: None,
        cost,
    }
}

async fn pass(world: &World, gate: Gate) -> Result<(), Refusal> {
    let look = Command::Observe(IntentId([1; 16]));
    world.ask(Some(gate), vec![look]).await.map(|answers| {
        assert_eq!(answers, [Ok(Answer::Observed(None))]);
    })
}

async fn make_key(world: &World, id: &str) {
    let key = ApiKey {
        digest: "00".to_owned(),
        sealed: "sealed".to_owned(),
        label: "a tester".to_owned(),
        created_at: world.now().0,
        total_requests: 0,
        window_at: 0,
        window_count: 0,
        ..ApiKey::default()
    };
    let put = Put {
        key: ApiKey::key(id),
        value: serde(&key),
        expires_at: None,
        expect: Some(0),
    };
    assert_eq!(
        world.step(Command::Put(put)).await,
        Ok(Answer::Put { version: 1 })
    );
}

/// A key with further members, which follow those that every key has.
async fn make_key_with(world: &World, id: &str, further: &str) {
    make_key(world, id).await;
    let plain = serde(&ApiKey::default());
    let put = Put {
        key: ApiKey::key(id),
        value: format!("{},{further}}}", plain.trim_end_matches('}')),
        expires_at: None,
        expect: None,
    };
    assert_eq!(
        world.step(Command::Put(put)).await,
        Ok(Answer::Put { version: 2 })
    );
}

pub async fn a_key_may_have_a_rate_of_its_own(world: World) {
    make_key_with(&world, "k1", r#""rate":3"#).await;
    for _ in 0..3 {
        assert_eq!(pass(&world, metered("k1", 1)).await, Ok(()));
    }
    assert_eq!(
        pass(&world, metered("k1", 1)).await,
        Err(Refusal::RateLimited { retry_after_s: 60 })
    );
    let stored = world.store.record(ApiKey::key("k1")).await;
    let stored = stored.ok().flatten().map(|record| record.value);
    let used = format!(r#""last_used_at":{}"#, world.now().0);
    assert!(stored.is_some_and(|value| value.contains(&used)), "{used}");
}

pub async fn an_expired_key_passes_nothing(world: World) {
    let end = world.now().plus(10 * SECOND_US);
    make_key_with(&world, "k1", &format!(r#""expires_at":{}"#, end.0)).await;
    assert_eq!(pass(&world, metered("k1", 1)).await, Ok(()));
    world.clock.advance(10 * SECOND_US);
    for cost in [0, 1] {
        let refused = pass(&world, metered("k1", cost)).await;
        assert_eq!(refused, Err(Refusal::KeyExpired));
    }
}

/// The stored form, written by hand: the store crate does not depend on a JSON library.
fn serde(key: &ApiKey) -> String {
    format!(
        r#"{{"digest":"{}","sealed":"{}","label":"{}","created_at":{},"total_requests":{},"window_at":{},"window_count":{}}}"#,
        key.digest,
        key.sealed,
        key.label,
        key.created_at,
        key.total_requests,
        key.window_at,
        key.window_count
    )
}

async fn stored(world: &World, id: &str) -> String {
    let record = world.store.record(ApiKey::key(id)).await;
    let record = record.expect("storage works").expect("the key exists");
    record.value
}

pub async fn a_nonce_passes_once_per_caller_ip_055_ip_056(world: World) {
    assert_eq!(pass(&world, signed("alice", "n")).await, Ok(()));
    assert_eq!(
        pass(&world, signed("alice", "n")).await,
        Err(Refusal::Replay)
    );
    assert_eq!(pass(&world, signed("alice", "m")).await, Ok(()));
    assert_eq!(pass(&world, signed("bob", "n")).await, Ok(()));
}

pub async fn a_nonce_is_burnt_even_if_the_step_is_refused(world: World) {
    let requeue = Command::Requeue(consign_kernel::command::Operate {
        id: IntentId([1; 16]),
        face: consign_kernel::profile::Face::Intent,
        reason: String::new(),
    });
    let reply = world.ask(Some(signed("alice", "n")), vec![requeue]).await;
    assert_eq!(reply, Ok(vec![Err(Refusal::NotFound)]));
    assert_eq!(
        pass(&world, signed("alice", "n")).await,
        Err(Refusal::Replay)
    );
}

pub async fn a_nonce_is_burnt_even_if_the_allowance_is_used_up(world: World) {
    make_key(&world, "tester").await;
    let with_nonce = |cost| Gate {
        nonce: Some("n".to_owned()),
        ..metered("tester", cost)
    };
    let too_much = limits::RATE_REQUESTS_MAX + 1;
    assert_eq!(
        pass(&world, with_nonce(too_much)).await,
        Err(Refusal::RateLimited { retry_after_s: 60 })
    );
    assert_eq!(pass(&world, with_nonce(1)).await, Err(Refusal::Replay));
}

pub async fn a_nonce_is_remembered_for_eleven_minutes(world: World) {
    assert_eq!(pass(&world, signed("alice", "n")).await, Ok(()));
    world.clock.advance(660 * SECOND_US - 1);
    assert_eq!(
        pass(&world, signed("alice", "n")).await,
        Err(Refusal::Replay)
    );
    world.clock.advance(1);
    assert_eq!(pass(&world, signed("alice", "n")).await, Ok(()));
}

pub async fn sixty_requests_a_minute_pass_and_no_more_ip_094_ip_176(world: World) {
    make_key(&world, "tester").await;
    make_key(&world, "other").await;
    world.clock.advance(SECOND_US / 2);
    for n in 0..limits::RATE_REQUESTS_MAX {
        assert_eq!(
            pass(&world, metered("tester", 1)).await,
            Ok(()),
            "request {n}"
        );
    }
    let limited = |retry_after_s| Err(Refusal::RateLimited { retry_after_s });
    assert_eq!(pass(&world, metered("tester", 1)).await, limited(60));
    assert_eq!(
        pass(&world, metered("other", 1)).await,
        Ok(()),
        "each has its own"
    );
    world.clock.advance(60 * SECOND_US - 1);
    assert_eq!(pass(&world, metered("tester", 1)).await, limited(1));
    assert!(
        stored(&world, "tester")
            .await
            .contains(r#""total_requests":60"#)
    );
    world.clock.advance(1);
    assert_eq!(pass(&world, metered("tester", 1)).await, Ok(()));
    assert!(
        stored(&world, "tester")
            .await
            .contains(r#""window_count":1"#)
    );
}

pub async fn a_batch_takes_as_much_allowance_as_it_costs(world: World) {
    make_key(&world, "tester").await;
    let max = limits::RATE_REQUESTS_MAX;
    assert_eq!(pass(&world, metered("tester", max - 2)).await, Ok(()));
    assert!(
        pass(&world, metered("tester", 3)).await.is_err(),
        "and takes nothing"
    );
    assert_eq!(pass(&world, metered("tester", 2)).await, Ok(()));
    assert!(pass(&world, metered("tester", 1)).await.is_err());
    assert_eq!(
        pass(&world, metered("tester", 0)).await,
        Ok(()),
        "what costs nothing passes"
    );
}

pub async fn the_main_key_has_no_allowance_to_use_up_ip_177(world: World) {
    let main = Gate {
        caller: "main".to_owned(),
        metered: false,
        nonce: None,
        cost: 1_000,
    };
    for _ in 0..3 {
        assert_eq!(pass(&world, main.clone()).await, Ok(()));
    }
}

pub async fn a_revoked_key_is_refused_and_leaves_no_trace_ip_138(world: World) {
    make_key(&world, "tester").await;
    assert_eq!(pass(&world, metered("tester", 1)).await, Ok(()));
    let revoke = vec![
        Command::Delete(ApiKey::key("tester")),
        Command::Forget(Forget::OnceOf {
            owner: "tester".to_owned(),
        }),
    ];
    world.steps(revoke).await;
    let before = world.store.dump().await.expect("storage works");
    let gate = Gate {
        nonce: Some("n".to_owned()),
        ..metered("tester", 1)
    };
    assert_eq!(pass(&world, gate).await, Err(Refusal::UnknownKey));
    assert_eq!(world.store.dump().await.expect("storage works"), before);
}

pub async fn a_key_past_its_time_is_unknown(world: World) {
    make_key(&world, "tester").await;
    let value = stored(&world, "tester").await;
    let put = Put {
        key: ApiKey::key("tester"),
        value,
        expires_at: Some(world.now().plus(SECOND_US)),
        expect: Some(1),
    };
    assert!(world.step(Command::Put(put)).await.is_ok());
    assert_eq!(pass(&world, metered("tester", 1)).await, Ok(()));
    world.clock.advance(SECOND_US);
    assert_eq!(
        pass(&world, metered("tester", 1)).await,
        Err(Refusal::UnknownKey)
    );
}
