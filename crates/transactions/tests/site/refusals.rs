//! Final refusals: a repeated request gets the same answer, at any time and from any process.

use consign_kernel::ids::SECOND_US;
use consign_transactions::instant;
use consign_transactions::site::Site;
use serde_json::{Value, json};

use crate::world::{KEY, OTHER_KEY, World, agent, response, sign};

/// The refusal of a request, as it is sent.
async fn refusal(site: &Site, asked: &(&str, &str, Value)) -> (u16, String) {
    let (operation, key, body) = asked;
    let (key, body) = (Some(key.as_bytes()), body.to_string());
    let refused = match *operation {
        "create" => response(site.create(body.as_bytes()).await),
        "authorize" => response(site.authorize(key, body.as_bytes()).await),
        "execute" => response(site.execute(key, body.as_bytes()).await),
        "compensate" => response(site.compensate(key, body.as_bytes()).await),
        _ => response(site.cancel(key, body.as_bytes()).await),
    };
    let problem = refused.unwrap_err();
    (problem.status(), serde_json::to_string(&problem).unwrap())
}

/// A request by operation, key and body, with the name of its refusal.
type Refused = (&'static str, &'static str, Value, &'static str);

/// Requests that are finally refused.
async fn refused_for_good(world: &World) -> (Vec<Refused>, Vec<Refused>) {
    let about = |id: &str| json!({"intent_id": id, "reason": "r"});
    let short = |id: &str| {
        sign(
            json!({"intent_id": id, "nonce": format!("nonce-of-{id}")}),
            &agent(),
        )
    };
    let action = |id: &str| {
        let mut intent = world.intent(id);
        intent["action_dedup_key"] = "cart-1".into();
        sign(intent, &agent())
    };
    let mut other = world.intent("int_created");
    other["amount_cents"] = 2.into();
    let mut over = world.intent("int_over");
    over["expires_at"] = instant::print(world.now().plus(30 * SECOND_US)).into();
    let over = sign(over, &agent());
    let done = world.signed("int_done");
    world.create(&world.signed("int_created")).await.unwrap();
    world.create(&over).await.unwrap();
    world.authorize(&done, KEY).await.unwrap();
    world.execute("int_done", KEY).await.unwrap();
    world.compensate("int_done", KEY).await.unwrap();
    world.authorize(&action("int_action"), KEY).await.unwrap();
    world.create(&world.signed("int_cancelled")).await.unwrap();
    world.cancel("int_cancelled").await.unwrap();
    world.pass(31);
    let capped = json!({"intent_id": "int_action", "amount_cents": 3001});
    let conflicts = vec![
        ("create", KEY, done.clone(), "nonce_consumed"),
        ("create", KEY, sign(other, &agent()), "intent_conflict"),
        ("authorize", OTHER_KEY, done, "nonce_consumed"),
        ("authorize", KEY, action("int_again"), "duplicate_action"),
        ("execute", KEY, about("int_created"), "not_authorized"),
        (
            "execute",
            OTHER_KEY,
            about("int_done"),
            "execution_limit_reached",
        ),
        ("execute", KEY, capped, "spend_cap_exceeded"),
        ("compensate", KEY, about("int_created"), "invalid_state"),
        (
            "compensate",
            OTHER_KEY,
            about("int_done"),
            "already_compensated",
        ),
        ("cancel", KEY, about("int_done"), "invalid_state"),
    ];
    let mut gone = vec![
        ("create", KEY, over, "intent_expired"),
        ("cancel", KEY, about("int_over"), "intent_expired"),
    ];
    for id in ["int_over", "int_cancelled"] {
        gone.push(("authorize", KEY, short(id), "intent_expired"));
        gone.push(("execute", KEY, about(id), "intent_expired"));
        gone.push(("compensate", KEY, about(id), "intent_expired"));
    }
    (conflicts, gone)
}

#[tokio::test(flavor = "multi_thread")]
async fn at_098_what_is_refused_for_good_is_refused_with_the_same_bytes_every_time() {
    let world = World::with(|options| options.dedup_window_s = 3_600).await;
    let (conflicts, gone) = refused_for_good(&world).await;
    let conflicts = conflicts.into_iter().map(|one| (409, one));
    let gone = gone.into_iter().map(|one| (410, one));
    let refusals: Vec<_> = conflicts.chain(gone).collect();
    let mut first = Vec::new();
    for (status, (operation, key, body, named)) in &refusals {
        let told = refusal(&world.site, &(operation, key, body.clone())).await;
        let name: Value = serde_json::from_str(&told.1).unwrap();
        let what = format!("{operation} {body}: {told:?}");
        assert_eq!((told.0, &name["error"]), (*status, &json!(named)), "{what}");
        first.push(told);
    }
    let calls = world.bank.calls();
    for seconds in [0, 7, 60] {
        world.pass(seconds);
        let restarted = world.other(|options| options.dedup_window_s = 3_600).await;
        for site in [&world.site, &restarted] {
            for ((_, (operation, key, body, _)), first) in refusals.iter().zip(&first) {
                let again = refusal(site, &(operation, key, body.clone())).await;
                assert_eq!(&again, first, "{operation}");
            }
        }
    }
    assert_eq!(world.bank.calls(), calls);
}
