//! Searches of operators: rows of all owners and protocols, by a filter, in bounded pages.

use consign_kernel::command::{Command, NewIntent, Operate};
use consign_kernel::filter::Filter;
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::profile::{Face, ProfileId};

use super::{World, in_face, item};
use crate::{Search, SearchPage, TypedReads as _};

fn search(world: &World, filter: &str, limit: u32) -> Search {
    Search {
        filter: Filter::parse(filter).expect("the filter is right"),
        now: world.now(),
        after: None,
        unchanged_since: None,
        limit,
        scan_max: 5_000,
    }
}

async fn page(world: &World, search: Search) -> SearchPage {
    world.store.search(search).await.expect("storage works")
}

/// All pages of a search.
async fn pages(world: &World, mut search: Search) -> Vec<IntentId> {
    let mut ids = Vec::new();
    loop {
        let found = page(world, search.clone()).await;
        assert!(found.outlines.len() <= search.limit as usize);
        assert!(found.examined <= search.scan_max);
        ids.extend(found.outlines.iter().map(|row| row.id));
        match found.next {
            Some(next) => search.after = Some(next),
            None => return ids,
        }
    }
}

pub async fn a_search_finds_rows_of_all_owners_and_protocols(world: World) {
    let of = |owner: &str, goal: &str| NewIntent {
        owner: owner.to_owned(),
        goal: goal.to_owned(),
        payload: format!(r#"{{"to":"{owner}"}}"#),
        ..item()
    };
    let first = world.publish(of("alice", "mail.send")).await;
    world.clock.advance(60 * SECOND_US);
    let second = world.publish(of("bob", "mail.read")).await;
    let third = world.publish(of("bob", "print")).await;
    let job = world.publish(in_face(ProfileId::Automation)).await;
    let check = async |filter: &str, expected: &[IntentId]| {
        for limit in [1, 2, 100] {
            let found = pages(&world, search(&world, filter, limit)).await;
            assert_eq!(found, expected, "{filter} by {limit}");
        }
    };
    check("", &[job, third, second, first]).await;
    check("face:automation", &[job]).await;
    check("owner:bob", &[third, second]).await;
    check("goal:mail.*", &[second, first]).await;
    check("owner:bob goal:mail.*", &[second]).await;
    check("payload.to=alice", &[first]).await;
    check("owner:bob payload.to=alice", &[]).await;
    check("age>30s", &[first]).await;
    check("state:open -owner:alice", &[third, second]).await;
    check("state:queued", &[job]).await;
    check("state:open state:dead", &[]).await;
    check(&format!("id:{first},{third}"), &[third, first]).await;
    check(&format!("id:{first} owner:bob"), &[]).await;
    let held = world.take("alice").await;
    assert_eq!(held.id, first);
    check("state:claimed", &[first]).await;
    check("state:claimed goal:print", &[]).await;
    check("state:claimed,open", &[third, second, first]).await;
    assert!(world.fail(&held, "Mailbox FULL").await.is_ok());
    check(r#"error:"mailbox full""#, &[first]).await;
}

pub async fn dead_letters_are_found_by_their_death_latest_first(world: World) {
    let made = world.admit(vec![item(); 4]).await.expect("it is admitted");
    let job = world.publish(in_face(ProfileId::Automation)).await;
    let cancel = |id, face| {
        Command::Cancel(Operate {
            id,
            face,
            reason: "no".to_owned(),
        })
    };
    for (id, face) in [
        (made[2].id, Face::Intent),
        (job, Face::Automation),
        (made[0].id, Face::Intent),
        (made[3].id, Face::Intent),
    ] {
        assert!(world.step(cancel(id, face)).await.is_ok());
        world.clock.advance(SECOND_US);
    }
    let all = [made[3].id, made[0].id, job, made[2].id];
    for limit in [1, 2, 3, 100] {
        let found = pages(&world, search(&world, "state:dead", limit)).await;
        assert_eq!(found, all, "by {limit}");
    }
    let found = pages(&world, search(&world, "state:dead face:intent", 2)).await;
    assert_eq!(found, [made[3].id, made[0].id, made[2].id]);
    // A row that dies while a list is read appears in none of its later pages.
    let first = page(&world, search(&world, "state:dead", 1)).await;
    assert!(world.step(cancel(made[1].id, Face::Intent)).await.is_ok());
    let rest = Search {
        after: first.next,
        ..search(&world, "state:dead", 100)
    };
    assert_eq!(pages(&world, rest).await, all[1..]);
}

pub async fn a_search_examines_no_more_rows_than_it_may(world: World) {
    let rare = world
        .publish(NewIntent {
            goal: "rare".to_owned(),
            ..item()
        })
        .await;
    world.admit(vec![item(); 50]).await.expect("it is admitted");
    let sparse = |after| Search {
        after,
        scan_max: 20,
        ..search(&world, "goal:rare", 10)
    };
    let (mut after, mut examined) = (None, Vec::new());
    let found = loop {
        let found = page(&world, sparse(after)).await;
        examined.push(found.examined);
        after = found.next;
        if after.is_none() {
            break found;
        }
        assert_eq!(found.outlines, []);
    };
    assert_eq!(examined, [20, 20, 11]);
    assert_eq!(found.outlines[0].id, rare);
    // A page that is full leaves the other rows to the next one.
    let found = page(&world, search(&world, "", 5)).await;
    assert_eq!((found.outlines.len(), found.examined), (5, 5));
}

pub async fn a_search_can_leave_out_what_changed_since_a_fact(world: World) {
    let made = world.admit(vec![item(); 3]).await.expect("it is admitted");
    let since = world.store.highest_fact().await.expect("storage works");
    world.publish(item()).await;
    assert!(world.cancel(made[1].id).await.is_ok());
    let found = Search {
        unchanged_since: Some(since),
        ..search(&world, "", 100)
    };
    assert_eq!(pages(&world, found).await, [made[2].id, made[0].id]);
}
