//! Claims: which row is leased, to which holder, in which order.

use std::collections::HashSet;

use consign_kernel::command::{Audience, Claim, NewIntent};
use consign_kernel::ids::{DAY_US, HOUR_US, IntentId, SECOND_US};
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::State;

use super::{World, claim_by, in_face, item};

async fn ids(world: &World, claim: Claim) -> Vec<IntentId> {
    world.claim(claim).await.iter().map(|row| row.id).collect()
}

pub async fn a_claim_takes_a_lease_ip_012_ip_021_ip_020(world: World) {
    let id = world.publish(item()).await;
    let taken = world.take("alice").await;
    assert_eq!((taken.id, taken.state), (id, State::Dispatched));
    assert_eq!(taken.attempts, 1);
    assert_eq!(taken.holder.as_deref(), Some("alice"));
    assert!(taken.token.is_some());
    assert_eq!(taken.claimed_at, Some(world.now()));
    assert_eq!(taken.lease_until, Some(world.now().plus(60 * SECOND_US)));
    assert_eq!(world.load(id).await, taken, "the answer is what was stored");
}

pub async fn second_claim_finds_nothing_ip_004_ip_095(world: World) {
    world.publish(item()).await;
    world.take("alice").await;
    assert_eq!(world.claim(claim_by("alice")).await, []);
}

pub async fn order_is_priority_then_due_time_then_attempts_then_admission_ip_037_ip_078(
    world: World,
) {
    // The row with an earlier attempt gets the same due time as fresh rows.
    let tried = world.publish(item()).await;
    let held = world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    let (low, high) = (item(), item());
    let low = world.publish(NewIntent { priority: 1, ..low }).await;
    let later = world
        .publish(NewIntent {
            delay_us: SECOND_US,
            ..item()
        })
        .await;
    let first = world.publish(item()).await;
    let second = world.publish(item()).await;
    let high = world
        .publish(NewIntent {
            priority: 900,
            delay_us: 2 * SECOND_US,
            ..high
        })
        .await;
    world.clock.advance(2 * SECOND_US);
    assert_eq!(held.id, tried);
    let all = Claim {
        max: 10,
        ..claim_by("alice")
    };
    assert_eq!(
        ids(&world, all).await,
        [high, tried, first, second, later, low],
        "its old due time puts the tried one before the fresh ones"
    );
}

pub async fn fewer_attempts_win_between_equal_due_times_ip_078(world: World) {
    let made = world
        .admit(vec![item(), item(), item()])
        .await
        .expect("it is admitted");
    // All three share a due time; the first has two attempts, the second one, the third none.
    let first = world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    let again = world.claim(claim_by("alice")).await;
    assert_eq!(again[0].id, made[1].id, "an untried one comes first");
    assert_eq!(first.id, made[0].id);
    world.clock.advance(60 * SECOND_US);
    let all = Claim {
        max: 10,
        ..claim_by("alice")
    };
    let order: Vec<_> = world
        .claim(all)
        .await
        .iter()
        .map(|row| (row.id, row.attempts))
        .collect();
    assert_eq!(order, [(made[2].id, 1), (made[0].id, 2), (made[1].id, 2)]);
}

pub async fn namespaces_never_mix_ip_074_ip_075_ip_167(world: World) {
    for public in [false, true] {
        world
            .publish(NewIntent {
                namespace: "a".to_owned(),
                public,
                ..item()
            })
            .await;
    }
    let in_namespace = |namespace: &str| Claim {
        namespace: namespace.to_owned(),
        max: 10,
        ..claim_by("alice")
    };
    for other in ["default", "A", "", "a.b", "a "] {
        assert_eq!(world.claim(in_namespace(other)).await, [], "{other:?}");
    }
    assert_eq!(world.claim(in_namespace("a")).await.len(), 2);
}

pub async fn private_is_for_its_owner_and_public_for_all_ip_076_ip_077(world: World) {
    let private = world.publish(item()).await;
    let public = world
        .publish(NewIntent {
            public: true,
            ..item()
        })
        .await;
    let all = |holder| Claim {
        max: 10,
        ..claim_by(holder)
    };
    assert_eq!(ids(&world, all("bob")).await, [public]);
    assert_eq!(ids(&world, all("alice")).await, [private]);
}

pub async fn own_public_intents_are_found_once(world: World) {
    for _ in 0..3 {
        world
            .publish(NewIntent {
                public: true,
                ..item()
            })
            .await;
    }
    let all = Claim {
        max: 10,
        ..claim_by("alice")
    };
    let found = ids(&world, all).await;
    assert_eq!(found.len(), 3);
    assert_eq!(found.iter().collect::<HashSet<_>>().len(), 3);
}

pub async fn a_target_is_for_the_worker_of_that_name_ip_041_ip_079_ip_080(world: World) {
    let targeted = world
        .publish(NewIntent {
            target: Some("w1".to_owned()),
            ..item()
        })
        .await;
    let free = world.publish(item()).await;
    let by = |worker: Option<&str>| Claim {
        worker_id: worker.map(str::to_owned),
        max: 10,
        ..claim_by("alice")
    };
    assert_eq!(ids(&world, by(Some("w2"))).await, [free]);
    for other in [None, Some("W1"), Some("w"), Some("w11"), Some("")] {
        assert_eq!(ids(&world, by(other)).await, [], "{other:?}");
    }
    assert_eq!(ids(&world, by(Some("w1"))).await, [targeted]);
}

pub async fn capabilities_match_whole_and_by_case_ip_042_ip_081_ip_082(world: World) {
    let gpu = world
        .publish(NewIntent {
            capability: Some("gpu".to_owned()),
            ..item()
        })
        .await;
    let free = world.publish(item()).await;
    let with = |capabilities: &[&str]| Claim {
        capabilities: capabilities.iter().map(|&text| text.to_owned()).collect(),
        max: 10,
        ..claim_by("alice")
    };
    assert_eq!(ids(&world, with(&[])).await, [free]);
    assert_eq!(
        ids(&world, with(&["gpu2", "GPU", "g", "", "cpu"])).await,
        []
    );
    assert_eq!(ids(&world, with(&["cpu", "gpu", "gpu"])).await, [gpu]);
}

pub async fn a_goal_filters_exactly_and_its_absence_takes_all_ip_096(world: World) {
    let mut made = Vec::new();
    for (goal, public) in [("a", false), ("b", true), ("ab", true)] {
        let goal = goal.to_owned();
        made.push(
            world
                .publish(NewIntent {
                    goal,
                    public,
                    ..item()
                })
                .await,
        );
    }
    let for_goal = |holder, goal: &str| Claim {
        goal: Some(goal.to_owned()),
        max: 10,
        ..claim_by(holder)
    };
    assert_eq!(ids(&world, for_goal("bob", "a")).await, []);
    assert_eq!(ids(&world, for_goal("alice", "")).await, []);
    assert_eq!(ids(&world, for_goal("bob", "b")).await, [made[1]]);
    let rest = Claim {
        max: 10,
        ..claim_by("alice")
    };
    assert_eq!(ids(&world, rest).await, [made[0], made[2]]);
}

pub async fn a_publisher_audience_takes_that_publishers_only(world: World) {
    let private = world.publish(item()).await;
    let owner = "bob".to_owned();
    let bobs = world
        .publish(NewIntent {
            owner,
            public: true,
            ..item()
        })
        .await;
    let of = |publisher: &str| Claim {
        audience: Audience::Publisher(publisher.to_owned()),
        max: 10,
        ..claim_by("main")
    };
    assert_eq!(ids(&world, of("nobody")).await, []);
    assert_eq!(ids(&world, of("alice")).await, [private]);
    assert_eq!(ids(&world, of("bob")).await, [bobs]);
    assert_eq!(world.load(private).await.holder.as_deref(), Some("main"));
}

pub async fn faces_never_see_each_others_rows(world: World) {
    let job = world
        .publish(NewIntent {
            public: true,
            ..in_face(ProfileId::Automation)
        })
        .await;
    assert_eq!(world.claim(claim_by("alice")).await, []);
    let automation = Claim {
        face: Face::Automation,
        ..claim_by("alice")
    };
    assert_eq!(ids(&world, automation).await, [job]);
}

pub async fn lanes_compete_by_rank_whatever_their_kind(world: World) {
    let mut expected = Vec::new();
    let kinds: [(Option<&str>, Option<&str>, bool); 6] = [
        (None, None, true),
        (Some("w1"), None, false),
        (None, Some("gpu"), true),
        (Some("w1"), Some("gpu"), false),
        (None, None, false),
        (Some("w1"), Some("gpu"), true),
    ];
    for (rank, (target, capability, public)) in kinds.into_iter().enumerate() {
        let made = NewIntent {
            target: target.map(str::to_owned),
            capability: capability.map(str::to_owned),
            public,
            priority: 100 + i32::try_from(rank).expect("there are six kinds"),
            ..item()
        };
        expected.insert(0, world.publish(made).await);
    }
    let claim = Claim {
        worker_id: Some("w1".to_owned()),
        capabilities: vec!["gpu".to_owned()],
        ..claim_by("alice")
    };
    let mut taken = Vec::new();
    for _ in 0..expected.len() {
        taken.extend(ids(&world, claim.clone()).await);
    }
    assert_eq!(taken, expected);
}

pub async fn a_batch_claim_is_bounded_and_gives_each_its_own_token_ip_104_ip_164(world: World) {
    for _ in 0..2 {
        world.admit(vec![item(); 75]).await.expect("it is admitted");
    }
    let greedy = Claim {
        max: u32::MAX,
        ..claim_by("alice")
    };
    let none = Claim {
        max: 0,
        ..claim_by("alice")
    };
    assert_eq!(
        world.claim(none).await.len(),
        1,
        "a claim asks for one at least"
    );
    let taken = world.claim(greedy.clone()).await;
    assert_eq!(taken.len(), limits::CLAIM_BATCH_MAX as usize);
    let rest = world.claim(greedy).await;
    assert_eq!(rest.len(), 49);
    let tokens: HashSet<_> = taken
        .iter()
        .chain(&rest)
        .filter_map(|row| row.token.map(|token| token.0))
        .collect();
    assert_eq!(tokens.len(), 149);
}

pub async fn past_its_life_nothing_is_offered_ip_098(world: World) {
    let id = world
        .publish(NewIntent {
            ttl_us: HOUR_US,
            ..item()
        })
        .await;
    world.clock.advance(HOUR_US);
    assert_eq!(world.claim(claim_by("alice")).await, []);
    assert_eq!(
        world.observe(id).await.state,
        State::Queued,
        "it does not die of it"
    );
    world.clock.advance(DAY_US);
    assert_eq!(world.claim(claim_by("alice")).await, []);
}

pub async fn a_lapsed_lease_past_its_life_is_not_offered(world: World) {
    world
        .publish(NewIntent {
            ttl_us: 90 * SECOND_US,
            ..item()
        })
        .await;
    world.take("alice").await;
    world.clock.advance(90 * SECOND_US);
    assert_eq!(world.claim(claim_by("alice")).await, []);
}

pub async fn used_up_attempts_are_not_offered_ip_099(world: World) {
    world
        .publish(NewIntent {
            attempts_max: 1,
            ..item()
        })
        .await;
    world.take("alice").await;
    world.clock.advance(60 * SECOND_US);
    assert_eq!(world.claim(claim_by("alice")).await, []);
}

pub async fn a_heap_of_expired_heads_hides_no_live_row(world: World) {
    let expired = NewIntent {
        priority: 900,
        ttl_us: SECOND_US,
        ..item()
    };
    let heap = limits::SWEEP_ROWS_MAX as usize + 188;
    for _ in 0..heap / 100 {
        world
            .admit(vec![expired.clone(); 100])
            .await
            .expect("it is admitted");
    }
    let live = world.publish(item()).await;
    world.clock.advance(SECOND_US);
    assert_eq!(world.take("alice").await.id, live);
}

pub async fn a_flood_that_came_due_elsewhere_hides_no_row_that_came_due_here_ip_100(world: World) {
    let flood = NewIntent {
        namespace: "elsewhere".to_owned(),
        delay_us: SECOND_US,
        ..item()
    };
    for _ in 0..=limits::SWEEP_ROWS_MAX / 100 + 1 {
        world
            .admit(vec![flood.clone(); 100])
            .await
            .expect("it is admitted");
    }
    let due = NewIntent {
        delay_us: 2 * SECOND_US,
        ..item()
    };
    let due = world.publish(due).await;
    world.clock.advance(2 * SECOND_US);
    assert_eq!(world.take("alice").await.id, due);
}
