//! Callbacks of a rail: accepted if they are signed, but their content is always verified with the rail.
#![cfg(feature = "planted")]

use std::time::SystemTime;

use consign_testkit::process::{Reply, Server};
use consign_transactions::rail::standard_webhooks::WebhookSecrets;
use serde_json::json;

use super::start;
use super::transactions_localstripe::LocalStripe;
use super::transactions_till::{Keys, Manner, SECRET, Till};
use super::transactions_world::{
    Rail, Shop, authorize, execute, executed_until, intent, key, receipts, state,
    wait_until_settled,
};

const ID: &str = "int_abc";
pub(crate) const NEW_SECRET: &str = "whsec_bmV3IGFuZCBsb25nIGVub3VnaCB0byBiZSBhIHNlY3JldA==";
const FOREIGN_SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
/// Without sweeps, only a callback can settle a payment that is processing.
const NO_SWEEP: (&str, &str) = ("ATP_SWEEP_SECONDS", "3600");

/// A callback of the till, sent `ago_s` seconds ago.
fn tell(server: &Server, event: &str, secret: &str, ago_s: i64) -> Reply {
    let body =
        json!({"type": "payment.updated", "data": {"payment_id": "p_0", "status": "succeeded"}});
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.expect("it is after 1970").as_secs();
    let at_s = i64::try_from(since).expect("it is not that late") - ago_s;
    let secrets = WebhookSecrets::new([secret]).expect("it is a secret");
    let signature = secrets.sign(event, at_s, body.to_string().as_bytes());
    let headers = [
        ("webhook-id", event),
        ("webhook-timestamp", &*at_s.to_string()),
        ("webhook-signature", &signature),
    ];
    let path = "/api/atp/rails/http/callback";
    let told = server.http().send("POST", path, &headers, Some(&body));
    told.expect("the server answers")
}

/// A server with one payment that is acknowledged and not yet paid.
fn acknowledged(till: &Till, shop: &Shop, secrets: &str) -> Server {
    let options = shop.options().env(NO_SWEEP.0, NO_SWEEP.1);
    let server = start(&options.env("ATP_HTTP_SECRET", secrets));
    authorize(&server, intent(ID));
    till.answer("confirm", Manner::Processing);
    let told = execute(&server, ID, &key(ID)).expect("the server answers");
    assert_eq!(
        (told.status, told.json()["state"].clone()),
        (202, json!("executed"))
    );
    server
}

#[test]
fn at_053_at_054_at_055_only_what_the_rail_shows_settles_whatever_is_told_and_how_often() {
    let till = Till::open(Keys::Ignored);
    let shop = Shop::at_till(&till);
    let server = acknowledged(&till, &shop, SECRET);
    // A valid signature with false content.
    assert_eq!(tell(&server, "early", SECRET, 0).status, 200);
    assert_eq!(state(&server, ID), "executed");
    assert!(receipts(&server, ID).is_empty());
    till.take_the_money();
    // An invalid signature with true content.
    for (secret, ago_s) in [(FOREIGN_SECRET, 0), (SECRET, 400)] {
        let refused = tell(&server, "forged", secret, ago_s);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(refused.json()["error"], "invalid_signature");
    }
    assert_eq!(state(&server, ID), "executed");
    assert_eq!(tell(&server, "paid", SECRET, 0).status, 200);
    let settled = executed_until(&server, ID, "settled");
    // Repeated callbacks, older ones after newer ones, and a new one.
    for (event, ago_s) in [("paid", 0), ("early", 30), ("paid", 60), ("late", 90)] {
        assert_eq!(tell(&server, event, SECRET, ago_s).status, 200);
    }
    assert_eq!(executed_until(&server, ID, "settled"), settled);
    assert_eq!((till.charges(), receipts(&server, ID).len()), (1, 1));
}

#[test]
fn at_056_while_a_secret_is_changed_both_are_accepted() {
    let till = Till::open(Keys::Honoured);
    let shop = Shop::at_till(&till);
    let both = format!("{NEW_SECRET},{SECRET}");
    let server = acknowledged(&till, &shop, &both);
    assert_eq!(tell(&server, "new", NEW_SECRET, 0).status, 200);
    assert_eq!(tell(&server, "foreign", FOREIGN_SECRET, 0).status, 400);
    till.take_the_money();
    assert_eq!(tell(&server, "old", SECRET, 0).status, 200);
    executed_until(&server, ID, "settled");
    assert_eq!((till.charges(), receipts(&server, ID).len()), (1, 1));
}

/// localstripe signs with the configured secret, and sends each callback once.
#[test]
fn at_051_at_055_at_056_at_057_localstripe_s_own_messages_settle_under_the_old_and_the_new_secret()
{
    let rail = Rail::Stripe(LocalStripe::start());
    let Rail::Stripe(stripe) = &rail else {
        return;
    };
    let shop = Shop::at(&rail);
    let options = shop.options().env(NO_SWEEP.0, NO_SWEEP.1);
    let server = start(&options.env("ATP_STRIPE_WEBHOOK_SECRET", "whsec_new,whsec_old"));
    let url = format!("{}/api/atp/rails/stripe/callback", server.base_url());
    let mut charged = 0;
    for (id, secret) in [("int_old", "whsec_old"), ("int_new", "whsec_new")] {
        stripe.tell(&url, secret);
        let mut held = intent(id);
        held["rail"]["capture"] = "manual".into();
        authorize(&server, held);
        let told = execute(&server, id, &key(id)).expect("the server answers");
        assert_eq!(told.json()["state"], "executed", "{}", told.text());
        assert_eq!(
            (stripe.charges(), receipts(&server, id).len()),
            (charged, 0)
        );
        // The payment is captured by hand, and the rail sends a callback.
        let payment = told.json()["rail"]["payment_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        stripe.post(
            &format!("/v1/payment_intents/{payment}/capture"),
            &json!({}),
        );
        wait_until_settled(&server, id);
        charged += 1;
        assert_eq!(
            (stripe.charges(), receipts(&server, id).len()),
            (charged, 1)
        );
    }
}
