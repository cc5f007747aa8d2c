//! The site's keys: one signs, all verify what they signed, and none is trusted because it came along.

use serde_json::{Value, json};

use crate::world::{KEY, OTHER_KEY, World, agent, body, sign};

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
    let unknown = world.site.receipt_shown("atp_rcpt_0").await.unwrap_err();
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
