//! Intents in all states, with values that are hard to copy.

use consign_kernel::command::{Answer, Claim, Command, Gate, NewIntent, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{DAY_US, HOUR_US, IntentId, SECOND_US};
use consign_kernel::intent::{Outcome, ResultKind};
use consign_kernel::limits;
use consign_kernel::record::{Key, Kind, Put};
use consign_store::conformance::{World, claim_by, guarded, item, mesh_message};

/// A tenth of the rows is settled in some way, a tenth is leased, and there are some of every other kind.
pub(super) async fn fill(world: &World, rows: usize) {
    assert!(passes(world, "twice").await);
    world.clock.advance(limits::NONCE_US);
    for batch in 0..rows.div_ceil(100) {
        let first = batch * 100;
        let numbers = first..rows.min(first + 100);
        let items = numbers.map(new_intent).collect();
        world.admit(items).await.unwrap();
        world.clock.advance(17);
    }
    for round in 0..rows.div_ceil(100) {
        for row in claimed(
            world,
            if round.is_multiple_of(2) {
                "alice"
            } else {
                "bob"
            },
            20,
        )
        .await
        {
            match row.seq.0 % 4 {
                0 => {
                    let result = Some(Outcome {
                        kind: if row.seq.0.is_multiple_of(8) {
                            ResultKind::Text
                        } else {
                            ResultKind::Json
                        },
                        body: format!("\"done \0 {}\"", row.seq.0),
                    });
                    let how = Settlement::Complete { result };
                    world.settle(&row, how).await.unwrap();
                }
                1 => drop(world.fail(&row, "no\0luck \u{10ffff}").await.unwrap()),
                2 => drop(world.complete(&row).await.unwrap()),
                // It stays leased.
                _ => {}
            }
        }
    }
    fill_beside(world, rows).await;
}

/// Records, nonces, rows that an operator changed and rows whose lease expired.
async fn fill_beside(world: &World, rows: usize) {
    for number in 0..rows.div_ceil(20) {
        let owner = if number.is_multiple_of(2) {
            "alice"
        } else {
            "b\0b"
        };
        let put = Put {
            key: Key {
                kind: Kind::Kv,
                owner: owner.to_owned(),
                name: format!(
                    "{}name {number}",
                    if number.is_multiple_of(3) { "\0" } else { "" }
                ),
            },
            value: format!("value\0{number}"),
            expires_at: number.is_multiple_of(2).then(|| world.now().plus(HOUR_US)),
            expect: None,
        };
        world.step(Command::Put(put)).await.unwrap();
        assert!(passes(world, &format!("nonce {number}")).await);
    }
    for number in 0..rows.div_ceil(50) {
        let id = format!("c\0{number}");
        let id = (!number.is_multiple_of(5)).then_some(id);
        let mut message = mesh_message(world, number as u64, id.as_deref());
        if let Some(guard) = &mut message.item.once
            && number.is_multiple_of(2)
        {
            guard.lifetime_us = i64::MAX;
        }
        let begun = world.step(Command::Begin(Box::new(message))).await;
        begun.unwrap();
    }
    // The first use has expired, so the nonce is stored twice.
    assert!(passes(world, "twice").await);
    let dump = world.store.dump().await.unwrap();
    for row in dump.intents.iter().step_by(97) {
        let _refused_if_done = world.cancel(row.id).await;
    }
    world.clock.advance(61 * SECOND_US);
    for row in dump.intents.iter().skip(3).step_by(59) {
        world.observe(row.id).await;
    }
    claimed(world, "carol", 10).await;
}

async fn claimed(world: &World, holder: &str, max: u32) -> Vec<consign_kernel::intent::Intent> {
    world
        .claim(Claim {
            max,
            worker_id: Some("w1".to_owned()),
            capabilities: vec!["gpu".to_owned()],
            ..claim_by(holder)
        })
        .await
}

fn new_intent(number: usize) -> NewIntent {
    let owner = ["alice", "bob", "b\0b"][number % 3];
    let plain = if number.is_multiple_of(5) {
        guarded(owner, &format!("key\0 {number}"), 1)
    } else {
        item()
    };
    let payload = match number % 50 {
        0 => format!("\"{}\"", "x".repeat(7_000)),
        1 => "\"zero \0 and \u{10ffff}0 and \u{10ffff}\"".to_owned(),
        _ => format!("{{\"n\":{number}}}"),
    };
    NewIntent {
        owner: owner.to_owned(),
        namespace: if number.is_multiple_of(11) {
            "other\0space"
        } else {
            "default"
        }
        .to_owned(),
        goal: ["greet", "wave", "no\0d"][number % 3].to_owned(),
        public: number.is_multiple_of(2),
        target: number.is_multiple_of(13).then(|| "w1".to_owned()),
        capability: number.is_multiple_of(17).then(|| "gpu".to_owned()),
        priority: i32::try_from(number % 7).unwrap(),
        payload,
        traceparent: number
            .is_multiple_of(4)
            .then(|| format!("00-{number:032x}-{number:016x}-01")),
        delay_us: if number.is_multiple_of(9) { HOUR_US } else { 0 },
        ttl_us: DAY_US,
        attempts_max: if number.is_multiple_of(6) { 1 } else { 3 },
        ..plain
    }
}

/// Whether the nonce was accepted.
pub(super) async fn passes(world: &World, nonce: &str) -> bool {
    let gate = Gate {
        caller: "main".to_owned(),
        metered: false,
        nonce: Some(nonce.to_owned()),
        cost: 1,
    };
    let look = Command::Observe(IntentId([1; 16]));
    match world.ask(Some(gate), vec![look]).await {
        Ok(answers) => {
            assert_eq!(answers, [Ok(Answer::Observed(None))]);
            true
        }
        Err(Refusal::Replay) => false,
        other => panic!("{other:?}"),
    }
}
