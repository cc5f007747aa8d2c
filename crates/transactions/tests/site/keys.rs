//! The site's keys: one signs, all verify their own signatures, and no embedded key is trusted.

use std::time::{Duration, Instant};

use consign_transactions::site::Site;
use serde_json::{Value, json};

use crate::world::{KEY, OTHER_KEY, World, agent, body, response, sign, text_of};

async fn settled(world: &World, id: &str) -> Value {
    world.authorized(id).await;
    body(&world.execute(id, KEY).await.unwrap())["receipt"].clone()
}

async fn verified(world: &World, document: &Value) -> Value {
    let text = document.to_string();
    let answer = world.site.verify(text.as_bytes()).await.unwrap();
    body(&answer)["verification"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn at_080_at_081_at_082_at_086_receipts_are_verified_in_every_form_and_by_pinned_keys() {
    let world = World::new().await;
    let receipt = settled(&world, "int_abc").await;
    let id = &receipt["receipt_id"];
    for form in [
        receipt.clone(),
        json!({"receipt": receipt}),
        json!({"receipt_id": id}),
        json!({"id": id}),
    ] {
        assert_eq!(verified(&world, &form).await["ok"], true, "{form}");
    }
    let mut tampered = receipt.clone();
    tampered["transaction"]["amount_cents"] = 1.into();
    let found = verified(&world, &tampered).await;
    assert_eq!(
        (&found["ok"], &found["stored"]),
        (&json!(false), &json!(false))
    );
    let mut foreign = receipt.clone();
    foreign.as_object_mut().unwrap().remove("signature");
    let foreign = sign(foreign, &agent());
    assert_eq!(verified(&world, &foreign).await["ok"], false);

    let id = id.as_str().unwrap();
    let shown = world.site.receipt_shown(id).await.unwrap();
    assert_eq!(body(&shown)["receipt"], receipt);
    let unknown = world.site.receipt_shown("atp_rcpt_0").await;
    let unknown = response(unknown).unwrap_err();
    assert_eq!((unknown.status(), unknown.name()), (404, "not_found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_084_at_085_old_receipts_stay_good_until_their_key_is_revoked() {
    let world = World::new().await;
    let old = settled(&world, "int_old").await;
    let first = old["signature"]["key_id"].as_str().unwrap().to_owned();
    assert!(world.site.revoke_key(&first, "stolen").await.is_err());
    world.site.rotate_key("planned").await.unwrap();
    let new = settled(&world, "int_new").await;
    assert_ne!(new["signature"]["key_id"], old["signature"]["key_id"]);
    let other = world.other(|_| {}).await;
    for receipt in [&old, &new] {
        assert_eq!(verified(&world, receipt).await["ok"], true);
        let text = receipt.to_string();
        let elsewhere = other.verify(text.as_bytes()).await.unwrap();
        assert_eq!(body(&elsewhere)["verification"]["ok"], true);
    }
    let replay = body(&world.execute("int_old", KEY).await.unwrap());
    assert_eq!(replay["receipt"], old);
    world.site.revoke_key(&first, "stolen").await.unwrap();
    let found = verified(&world, &old).await;
    assert_eq!(
        (&found["ok"], &found["reason"]),
        (&json!(false), &json!("key_revoked"))
    );
    assert_eq!(verified(&world, &new).await["ok"], true);
    assert!(world.site.revoke_key("unknown", "why").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_084_after_rotations_old_replays_are_the_old_bytes() {
    let world = World::new().await;
    world.authorized("int_settled").await;
    world.authorized("int_undone").await;
    let undo = async |site: &Site| {
        let asked = br#"{"intent_id":"int_undone","reason":"r"}"#;
        response(site.compensate(Some(KEY.as_bytes()), asked).await).unwrap()
    };
    world.execute("int_undone", KEY).await.unwrap();
    let first = [
        world.execute("int_settled", KEY).await.unwrap(),
        undo(&world.site).await,
    ];
    let receipts = [
        text_of(&first[0].body, "receipt"),
        text_of(&first[1].body, "receipt"),
        text_of(&first[1].body, "compensation_receipt"),
    ];
    let mut signers = std::collections::BTreeSet::new();
    for _ in 0..3 {
        signers.insert(world.site.rotate_key("planned").await.unwrap());
        let restarted = world.other(|_| {}).await;
        for site in [&world.site, &restarted] {
            let again = [
                world.execute_at(site, "int_settled", KEY).await.unwrap(),
                undo(site).await,
            ];
            for (again, first) in again.iter().zip(&first) {
                assert!(again.replayed);
                assert_eq!((again.status, &again.body), (first.status, &first.body));
            }
            for receipt in &receipts {
                let verified = site.verify(receipt.as_bytes()).await.unwrap();
                let found = &body(&verified)["verification"];
                assert_eq!(
                    (&found["ok"], &found["stored"]),
                    (&json!(true), &json!(true))
                );
                assert_eq!(found["key_status"], "previous");
            }
        }
    }
    assert_eq!(signers.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_083_all_documents_publish_the_same_key_and_no_secret() {
    let world = World::new().await;
    world.compensate("int_none", OTHER_KEY).await.unwrap_err();
    let manifest: Value = serde_json::from_str(&world.site.manifest()).unwrap();
    let keys = world.site.key_list();
    assert_eq!(keys["keys"][0]["public_key"], manifest["public_key"]);
    let x = world.site.jwks()[0]["x"].as_str().unwrap().to_owned();
    let public = manifest["public_key"].as_str().unwrap();
    let standard = x.replace('-', "+").replace('_', "/");
    assert!(public.contains(&standard), "{public} {x}");
    let stored = world.ledger.store.dump().await.unwrap().records;
    let value = &stored[0].value;
    assert!(value.contains("sealed") && value.contains(public));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_083_at_084_the_next_key_is_announced_before_it_signs() {
    let world = World::new().await;
    let manifest = || -> Value { serde_json::from_str(&world.site.manifest()).unwrap() };
    assert_eq!(manifest()["next_public_key"], Value::Null);
    let old = settled(&world, "int_old").await;
    let announced = world.site.announce_key().await.unwrap();
    assert_eq!(world.site.announce_key().await.unwrap(), announced);
    assert_eq!(manifest()["next_public_key"], announced);
    assert_ne!(manifest()["public_key"], announced);
    let listed = |status: &str| {
        let keys = world.site.key_list();
        let keys = keys["keys"].as_array().unwrap().clone();
        let found = keys.into_iter().find(|key| key["status"] == status);
        found.unwrap_or_default()
    };
    assert_eq!(listed("next")["public_key"], announced);
    assert_eq!(listed("next")["valid_from"], Value::Null);
    assert_eq!(world.site.jwks().len(), 2);
    // It does not sign yet, on this node or others.
    let other = world.other(|_| {}).await;
    let meanwhile = settled(&world, "int_meanwhile").await;
    assert_eq!(meanwhile["signature"]["key_id"], old["signature"]["key_id"]);

    assert_eq!(world.site.rotate_key("planned").await.unwrap(), announced);
    assert_eq!(manifest()["public_key"], announced);
    assert_eq!(manifest()["next_public_key"], Value::Null);
    assert!(listed("current")["valid_from"].is_string());
    let new = settled(&world, "int_new").await;
    assert_eq!(new["signature"]["key_id"], listed("current")["key_id"]);
    tokio::spawn(other.clone().follow_keys());
    let until = Instant::now() + Duration::from_secs(20);
    while other.key_list() != world.site.key_list() {
        assert!(Instant::now() < until, "it never loads the new key");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for receipt in [&old, &meanwhile, &new] {
        assert_eq!(verified(&world, receipt).await["ok"], true);
        let elsewhere = other.verify(receipt.to_string().as_bytes()).await.unwrap();
        assert_eq!(body(&elsewhere)["verification"]["ok"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_085_an_announced_key_is_withdrawn_by_revoking_it() {
    let world = World::new().await;
    let announced = world.site.announce_key().await.unwrap();
    let keys = world.site.key_list();
    let next = keys["keys"][1]["key_id"].as_str().unwrap().to_owned();
    world.site.revoke_key(&next, "lost").await.unwrap();
    let manifest: Value = serde_json::from_str(&world.site.manifest()).unwrap();
    assert_eq!(manifest["next_public_key"], Value::Null);
    assert!(world.site.revocations().contains(&announced));
    assert_ne!(world.site.rotate_key("planned").await.unwrap(), announced);
    let stored = world.ledger.store.dump().await.unwrap().records;
    let sealed = stored[0].value.matches("\"sealed\":\"").count();
    assert_eq!(sealed, 1, "only the key that signs has a secret half");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_086_each_of_two_receipts_is_found_by_its_own_id() {
    let world = World::new().await;
    // Its summary looks like the member that names a receipt.
    world.authorized("int_abc").await;
    let sent = json!({"intent_id": "int_abc", "summary": "\"receipt_id\":\"atp_comp_0\""});
    let executed = world
        .site
        .execute(Some(KEY.as_bytes()), sent.to_string().as_bytes())
        .await
        .unwrap();
    let undone = body(&world.compensate("int_abc", KEY).await.unwrap());
    assert_eq!(undone["receipt"], body(&executed)["receipt"]);
    for member in ["receipt", "compensation_receipt"] {
        let id = undone[member]["receipt_id"].as_str().unwrap();
        let shown = world.site.receipt_shown(id).await.unwrap();
        assert_eq!(body(&shown)["receipt"], undone[member]);
    }
    assert!(world.site.receipt_shown("atp_comp_0").await.is_err());
}

/// The site also signs other documents, and none of them proves a payment.
#[tokio::test]
async fn what_the_site_signed_and_is_no_receipt_verifies_as_none() {
    let world = World::new().await;
    let manifest = world.site.manifest();
    let verified = body(&world.site.verify(manifest.as_bytes()).await.unwrap());
    let told = &verified["verification"];
    assert_eq!(told["signature_valid"], true);
    assert_eq!(told["ok"], false);
    assert_eq!(told["reason"], "not_a_receipt");
}
