//! API keys: creation, authentication, revocation, sealing.

use consign_engine::{Authenticated, Error, KeyEnd, KeySettings, Operator, key_id};
use consign_kernel::ids::SECOND_US;
use consign_kernel::record::{ApiKey, KeyScope, Kind};
use consign_store::TypedReads as _;

use crate::world::{MAIN, World};

#[tokio::test]
async fn a_key_works_from_when_it_is_made_until_it_is_revoked() {
    let world = World::new();
    let operator = Operator::vouched();
    let key = world
        .engine
        .create_key(operator, "alice", &[])
        .await
        .unwrap();
    assert!(key.secret.starts_with("tk_") && key.secret.len() == 43);
    let caller = world
        .engine
        .authenticate(&key.secret)
        .await
        .unwrap()
        .caller()
        .unwrap();
    assert_eq!(
        (caller.id(), caller.is_main()),
        (key_id(&key.secret).as_str(), false)
    );
    assert!(
        world
            .engine
            .revoke_key(operator, &key.secret)
            .await
            .unwrap()
    );
    assert!(
        world
            .engine
            .authenticate(&key.secret)
            .await
            .unwrap()
            .caller()
            .is_none()
    );
    assert!(
        !world
            .engine
            .revoke_key(operator, &key.secret)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_request_in_flight_when_its_key_is_revoked_is_refused_at_the_gate() {
    let world = World::new();
    let (key, caller) = world.tester().await;
    world
        .engine
        .revoke_key(Operator::vouched(), &key.id)
        .await
        .unwrap();
    let refused = world.engine.pass(caller.gate(None, 1)).await.unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Refused(consign_kernel::error::Refusal::UnknownKey)
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn the_main_key_is_recognised_and_nothing_close_to_it() {
    let world = World::new();
    assert!(
        world
            .engine
            .authenticate(MAIN)
            .await
            .unwrap()
            .caller()
            .unwrap()
            .is_main()
    );
    for wrong in ["", "ck_mai", "ck_main ", "CK_MAIN", "main"] {
        assert!(
            world
                .engine
                .authenticate(wrong)
                .await
                .unwrap()
                .caller()
                .is_none(),
            "{wrong:?}"
        );
    }
}

#[tokio::test]
async fn a_key_at_rest_is_sealed_and_a_wrong_seal_is_noticed_at_start() {
    let world = World::new();
    world.engine.check_seal().await.unwrap();
    let key = world
        .engine
        .create_key(Operator::vouched(), "alice", &[])
        .await
        .unwrap();
    let records = world
        .store
        .records(Kind::ApiKey, String::new(), String::new(), 10)
        .await
        .unwrap();
    assert!(
        !records[0].value.contains(&key.secret[3..]),
        "the key is stored in the clear"
    );
    assert_eq!(records[0].key, ApiKey::key(&key.id));
    world.engine.check_seal().await.unwrap();
    let wrong = world
        .restarted_with_seal([8; 32])
        .check_seal()
        .await
        .unwrap_err();
    assert!(matches!(wrong, Error::Seal(_)), "{wrong}");
}

#[tokio::test]
async fn keys_are_listed_without_their_text() {
    let world = World::new();
    let key = world
        .engine
        .create_key(Operator::vouched(), "alice", &[])
        .await
        .unwrap();
    let listed = world.engine.keys(Operator::vouched()).await.unwrap();
    assert_eq!(
        (listed[0].id.as_str(), listed[0].owner.as_str()),
        (key.id.as_str(), "alice")
    );
    assert!(!format!("{listed:?}{key:?}").contains(&key.secret));
}

#[tokio::test]
async fn grants_belong_to_one_namespace_and_one_key_and_end_with_the_key() {
    let world = World::new();
    let (engine, operator) = (&world.engine, Operator::vouched());
    let granted = ["beam.a".to_owned(), "beam.a-b".to_owned()];
    let first = engine
        .create_key(operator, "first", &granted)
        .await
        .unwrap();
    let second = engine.create_key(operator, "second", &[]).await.unwrap();
    for namespace in ["beam.a.b", "beam.a", "beam.a"] {
        assert!(engine.grant(operator, &second.id, namespace).await.unwrap());
    }
    let any = async |namespace: &str| engine.is_granted_to_any(namespace).await.unwrap();
    for namespace in ["beam.a", "beam.a-b", "beam.a.b"] {
        assert!(any(namespace).await, "{namespace}");
    }
    // Names before, between and after those that are granted.
    for namespace in [
        "beam", "beam.", "beam.A", "beam.a-", "beam.a.", "beam.aa", "beam.z",
    ] {
        assert!(!any(namespace).await, "{namespace}");
    }
    assert_eq!(engine.grants(operator).await.unwrap().len(), 4);
    let keys = engine.keys(operator).await.unwrap();
    let of = |id: &str| {
        let key = keys.iter().find(|key| key.id == id).unwrap();
        let mut grants = key.grants.clone();
        grants.sort_unstable();
        grants
    };
    assert_eq!(of(&first.id), ["beam.a", "beam.a-b"]);
    assert_eq!(of(&second.id), ["beam.a", "beam.a.b"]);

    engine.revoke_key(operator, &first.secret).await.unwrap();
    assert!(any("beam.a").await && !any("beam.a-b").await);
    let revoked = engine.revoke_grant(operator, &second.id, "beam.a").await;
    assert!(revoked.unwrap() && !any("beam.a").await);
    // A key that is gone gets no grant, and leaves none behind.
    assert!(!engine.grant(operator, &first.id, "beam.a").await.unwrap());
    assert!(!any("beam.a").await);
    assert!(engine.grant(operator, MAIN, "beam.a").await.unwrap());
    let grants = engine.grants(operator).await.unwrap();
    assert!(grants.iter().any(|grant| grant.key_id == "main"));
}

#[tokio::test]
async fn a_rotated_key_keeps_its_id_and_its_old_secret_works_until_the_overlap_ends() {
    let world = World::new();
    let (engine, operator) = (&world.engine, Operator::vouched());
    let first = engine.create_key(operator, "alice", &[]).await.unwrap();
    let rotate = |overlap_us| engine.rotate_key(operator, &first.id, overlap_us);
    let second = rotate(10 * SECOND_US).await.unwrap().unwrap();
    assert_eq!((&second.id, &second.owner), (&first.id, &first.owner));
    assert_ne!(second.secret, first.secret);
    let id_of = async |secret: &str| {
        let caller = engine.authenticate(secret).await.unwrap().caller();
        caller.map(|caller| caller.id().to_owned())
    };
    for secret in [&first.secret, &second.secret] {
        assert_eq!(id_of(secret).await.as_ref(), Some(&first.id));
        assert_eq!(&engine.resolve_key_id(secret).await.unwrap(), &first.id);
    }

    // A second rotation within the overlap leaves both earlier secrets their time.
    let third = rotate(20 * SECOND_US).await.unwrap().unwrap();
    for secret in [&first.secret, &second.secret, &third.secret] {
        assert_eq!(id_of(secret).await.as_ref(), Some(&first.id));
    }
    world.clock.advance_s(10);
    let ended = engine.authenticate(&first.secret).await.unwrap();
    assert!(matches!(ended, Authenticated::Expired(_)), "{ended:?}");
    assert!(id_of(&second.secret).await.is_some());
    world.clock.advance_s(10);
    assert_eq!(id_of(&second.secret).await, None);
    assert_eq!(id_of(&third.secret).await.as_ref(), Some(&first.id));

    assert!(engine.revoke_key(operator, &third.secret).await.unwrap());
    for secret in [&first.secret, &second.secret, &third.secret] {
        let refused = engine.authenticate(secret).await.unwrap();
        assert_eq!(refused, Authenticated::Unknown);
    }
    for kind in [Kind::ApiKey, Kind::ApiKeyAlias] {
        assert_eq!(engine.records(kind, "", "", 9).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_key_that_is_rotated_often_keeps_few_secrets() {
    let world = World::new();
    let (engine, operator) = (&world.engine, Operator::vouched());
    let mut key = engine.create_key(operator, "alice", &[]).await.unwrap();
    for _ in 0..10 {
        let rotated = engine
            .rotate_key(operator, &key.id, 1_000 * SECOND_US)
            .await;
        key = rotated.unwrap().unwrap();
    }
    let aliases = engine.records(Kind::ApiKeyAlias, "", "", 20).await.unwrap();
    assert_eq!(aliases.len(), 5, "the present secret and four before it");
    assert!(
        engine
            .authenticate(&key.secret)
            .await
            .unwrap()
            .caller()
            .is_some()
    );
}

#[tokio::test]
async fn settings_of_a_key_are_read_with_each_request() {
    let world = World::new();
    let (engine, operator) = (&world.engine, Operator::vouched());
    let settings = KeySettings {
        scopes: Some(vec![KeyScope::Publish]),
        namespaces: Some(vec!["mail*".to_owned()]),
        end: Some(KeyEnd::At(engine.now().plus(60 * SECOND_US))),
        ..KeySettings::default()
    };
    let key = engine.create_key_with(operator, "alice", &[], settings);
    let key = key.await.unwrap();
    let caller = engine.authenticate(&key.secret).await.unwrap().caller();
    let caller = caller.unwrap();
    assert!(caller.may(KeyScope::Publish) && !caller.may(KeyScope::Claim));
    assert!(!caller.may(KeyScope::AdminRead) && !caller.may(KeyScope::Admin));
    assert!(caller.may_use_namespace("mail-out") && !caller.may_use_namespace("web"));

    let change = KeySettings {
        scopes: Some(vec![KeyScope::Admin]),
        ..KeySettings::default()
    };
    let changed = engine.change_key(operator, &key.id, change).await.unwrap();
    assert_eq!(changed.unwrap().namespaces, ["mail*"], "it stays");
    let caller = engine.authenticate(&key.secret).await.unwrap().caller();
    let caller = caller.unwrap();
    assert!(caller.may(KeyScope::AdminRead) && !caller.may(KeyScope::Publish));

    world.clock.advance_s(60);
    let ended = engine.authenticate(&key.secret).await.unwrap();
    assert!(matches!(ended, Authenticated::Expired(_)), "{ended:?}");
    assert!(!engine.is_active(&caller).await.unwrap());
    let unknown = engine.change_key(operator, "k_0000000000000000", KeySettings::default());
    assert_eq!(unknown.await.unwrap(), None);
}
