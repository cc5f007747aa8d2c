//! Records: put-if-version, expiry, listing, and deletion.

use consign_kernel::command::{Answer, Command, Forget};
use consign_kernel::error::Refusal;
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::record::{Key, Kind, Put, Record};

use super::World;
use crate::TypedReads as _;

fn key(owner: &str, name: &str) -> Key {
    Key {
        kind: Kind::Kv,
        owner: owner.to_owned(),
        name: name.to_owned(),
    }
}

async fn put(
    world: &World,
    key: Key,
    value: &str,
    expires_at: Option<Micros>,
    expect: Option<u64>,
) -> Result<u64, Refusal> {
    let put = Put {
        key,
        value: value.to_owned(),
        expires_at,
        expect,
    };
    let answer = world.step(Command::Put(put)).await?;
    let Answer::Put { version } = answer else {
        panic!("a put answered {answer:?}");
    };
    Ok(version)
}

async fn get(world: &World, key: Key) -> Option<Record> {
    world.store.record(key).await.expect("storage works")
}

async fn delete(world: &World, key: Key) -> Result<Answer, Refusal> {
    world.step(Command::Delete(key)).await
}

async fn names(world: &World, owner: &str, after: &str, limit: u32) -> Vec<String> {
    let found = world
        .store
        .records(Kind::Kv, owner.to_owned(), after.to_owned(), limit)
        .await
        .expect("storage works");
    found.into_iter().map(|record| record.key.name).collect()
}

pub async fn a_record_is_read_as_it_was_put_ip_130(world: World) {
    assert_eq!(get(&world, key("alice", "k")).await, None);
    assert_eq!(
        put(&world, key("alice", "k"), "v\0ü", None, None).await,
        Ok(1)
    );
    assert_eq!(put(&world, key("alice", "k"), "", None, None).await, Ok(2));
    let expected = Record {
        key: key("alice", "k"),
        version: 2,
        value: String::new(),
        expires_at: None,
    };
    assert_eq!(get(&world, key("alice", "k")).await, Some(expected));
}

pub async fn a_put_goes_through_only_on_the_version_it_saw(world: World) {
    let stale = Err(Refusal::VersionMismatch);
    assert_eq!(put(&world, key("a", "k"), "x", None, Some(1)).await, stale);
    assert_eq!(
        put(&world, key("a", "k"), "first", None, Some(0)).await,
        Ok(1)
    );
    assert_eq!(put(&world, key("a", "k"), "x", None, Some(0)).await, stale);
    assert_eq!(
        put(&world, key("a", "k"), "second", None, Some(1)).await,
        Ok(2)
    );
    assert_eq!(put(&world, key("a", "k"), "x", None, Some(1)).await, stale);
    let stored = get(&world, key("a", "k")).await;
    assert_eq!(stored.map(|record| record.value).as_deref(), Some("second"));
}

pub async fn a_deleted_record_is_gone(world: World) {
    let existed = |existed| Ok(Answer::Deleted { existed });
    assert_eq!(delete(&world, key("a", "k")).await, existed(false));
    assert_eq!(put(&world, key("a", "k"), "v", None, None).await, Ok(1));
    assert_eq!(delete(&world, key("b", "k")).await, existed(false));
    assert_eq!(delete(&world, key("a", "k")).await, existed(true));
    assert_eq!(get(&world, key("a", "k")).await, None);
}

pub async fn an_expired_record_counts_as_absent_ip_131(world: World) {
    let until = world.now().plus(SECOND_US);
    for name in ["put", "delete", "read"] {
        assert_eq!(
            put(&world, key("a", name), "v", Some(until), None).await,
            Ok(1)
        );
    }
    world.clock.advance(SECOND_US - 1);
    assert!(get(&world, key("a", "read")).await.is_some());
    world.clock.advance(1);
    assert_eq!(get(&world, key("a", "read")).await, None);
    assert_eq!(names(&world, "a", "", 10).await, [""; 0]);
    assert_eq!(
        put(&world, key("a", "put"), "new", None, Some(0)).await,
        Ok(1),
        "only if absent, and it is"
    );
    assert_eq!(
        delete(&world, key("a", "delete")).await,
        Ok(Answer::Deleted { existed: false })
    );
}

pub async fn owners_and_kinds_never_meet_ip_132(world: World) {
    assert_eq!(put(&world, key("a", "k"), "of a", None, None).await, Ok(1));
    assert_eq!(put(&world, key("b", "k"), "of b", None, None).await, Ok(1));
    let receipt = Key {
        kind: Kind::Receipt,
        ..key("a", "k")
    };
    assert_eq!(get(&world, receipt).await, None);
    let stored = get(&world, key("a", "k")).await;
    assert_eq!(stored.map(|record| record.value).as_deref(), Some("of a"));
    assert_eq!(names(&world, "a", "", 10).await, ["k"]);
    assert_eq!(names(&world, "", "", 10).await, [""; 0]);
}

pub async fn records_are_listed_by_name_in_pages(world: World) {
    for name in ["b", "a", "ü", "B", "ab", "c"] {
        assert!(put(&world, key("o", name), "", None, None).await.is_ok());
    }
    assert_eq!(names(&world, "o", "", 3).await, ["B", "a", "ab"]);
    assert_eq!(names(&world, "o", "ab", 3).await, ["b", "c", "ü"]);
    assert_eq!(names(&world, "o", "ü", 3).await, [""; 0]);
    assert_eq!(names(&world, "o", "aa", 1).await, ["ab"]);
}

pub async fn records_are_read_by_their_keys(world: World) {
    let until = world.now().plus(SECOND_US);
    for (owner, name, expires_at) in [
        ("a", "k", None),
        ("b", "k", None),
        ("a", "other", None),
        ("a", "expired", Some(until)),
    ] {
        let stored = put(&world, key(owner, name), owner, expires_at, None).await;
        assert_eq!(stored, Ok(1));
    }
    world.clock.advance(SECOND_US);
    let of_another_kind = Key {
        kind: Kind::Receipt,
        ..key("a", "other")
    };
    let keys = vec![
        key("a", "k"),
        key("a", "expired"),
        of_another_kind,
        key("b", "k"),
        key("a", "missing"),
    ];
    let mut found = world.store.records_by_key(keys).await.expect("a read");
    found.sort_by(|one, other| one.key.owner.cmp(&other.key.owner));
    let found: Vec<_> = found
        .iter()
        .map(|record| (record.key.clone(), &*record.value, record.version))
        .collect();
    assert_eq!(found, [(key("a", "k"), "a", 1), (key("b", "k"), "b", 1)]);
    let none = world.store.records_by_key(vec![]).await.expect("a read");
    assert_eq!(none, []);
}

async fn forget(world: &World, forget: Forget) -> u64 {
    match world.step(Command::Forget(forget)).await {
        Ok(Answer::Forgotten { rows }) => rows,
        other => panic!("forgetting answered {other:?}"),
    }
}

pub async fn expired_records_are_forgotten_oldest_first(world: World) {
    for (n, name) in ["late", "early", "middle"].into_iter().enumerate() {
        let until = world.now().plus([3, 1, 2][n]);
        assert!(
            put(&world, key("a", name), "", Some(until), None)
                .await
                .is_ok()
        );
    }
    assert!(
        put(&world, key("a", "for ever"), "", None, None)
            .await
            .is_ok()
    );
    let records = |limit| Forget::Records {
        kind: Kind::Kv,
        ahead_us: 0,
        limit,
    };
    assert_eq!(forget(&world, records(10)).await, 0);
    world.clock.advance(3);
    assert_eq!(forget(&world, records(2)).await, 2);
    let left = world.store.dump().await.expect("storage works").records;
    let left: Vec<_> = left.iter().map(|record| record.key.name.as_str()).collect();
    assert_eq!(left, ["for ever", "late"]);
    assert_eq!(forget(&world, records(2)).await, 1);
    let later = Some(world.now().plus(10));
    assert!(
        put(&world, key("a", "later"), "", later, None)
            .await
            .is_ok()
    );
    let ahead = |ahead_us| Forget::Records {
        kind: Kind::Kv,
        ahead_us,
        limit: 2,
    };
    assert_eq!(forget(&world, ahead(9)).await, 0);
    assert_eq!(forget(&world, ahead(-10)).await, 0);
    assert_eq!(forget(&world, ahead(10)).await, 1, "though it lives");
}

pub async fn forgetting_all_of_a_kind_spares_other_kinds(world: World) {
    assert!(put(&world, key("a", "k"), "", None, None).await.is_ok());
    let receipt = Key {
        kind: Kind::Receipt,
        ..key("a", "k")
    };
    assert!(put(&world, receipt.clone(), "", None, None).await.is_ok());
    let another = put(&world, key("b", "k"), "", None, None).await;
    assert!(another.is_ok());
    let kind = Kind::Kv;
    let all = |limit| Forget::AllRecords { kind, limit };
    assert_eq!(forget(&world, all(1)).await, 1, "no more than asked for");
    assert!(get(&world, key("b", "k")).await.is_some());
    assert_eq!(forget(&world, all(10)).await, 1);
    assert_eq!(get(&world, key("a", "k")).await, None);
    assert!(get(&world, receipt).await.is_some());
}
