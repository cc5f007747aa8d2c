//! A document signed by an agent or principal is valid for one operation, site, key and target, whatever the site requires.

use consign_kernel::receipt::Signer;
use consign_transactions::envelope::RequestOperation;
use consign_transactions::http::{ProblemResponse, SiteResponse};
use serde_json::{Value, json};

use crate::world::{
    KEY, OTHER_KEY, SITE, World, agent, agent_key, body, name, request, response, sign,
};

const THIRD_KEY: &str = "a-third-key-of-the-same-agent";

async fn world(signed_requests: bool) -> World {
    World::with(|options| options.signed_requests = signed_requests).await
}

async fn send(
    world: &World,
    to: RequestOperation,
    key: &str,
    sent: &Value,
) -> Result<SiteResponse, ProblemResponse> {
    let (key, sent) = (Some(key.as_bytes()), sent.to_string());
    match to {
        RequestOperation::Authorize => response(world.site.authorize(key, sent.as_bytes()).await),
        RequestOperation::Execute => response(world.site.execute(key, sent.as_bytes()).await),
        RequestOperation::Compensate => response(world.site.compensate(key, sent.as_bytes()).await),
        RequestOperation::Cancel => response(world.site.cancel(key, sent.as_bytes()).await),
    }
}

/// The members of a request for each operation, without the envelope.
fn members(id: &str) -> Value {
    json!({"intent_id": id, "nonce": format!("nonce-of-{id}"), "reason": "r"})
}

/// An authorized intent for three executions, of which one is settled.
async fn shopped(world: &World, id: &str) -> Value {
    let mut intent = world.intent(id);
    intent["max_executions"] = 3.into();
    intent["max_spend_cents"] = 9_000.into();
    let intent = sign(intent, &agent());
    world.authorize(&intent, KEY).await.unwrap();
    let execute = request(world, RequestOperation::Execute, KEY, members(id));
    let answer = send(world, RequestOperation::Execute, KEY, &execute).await;
    assert_eq!(answer.unwrap().status, 200);
    intent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_signed_for_one_operation_is_refused_for_every_other() {
    for mode in [true, false] {
        let world = world(mode).await;
        let intent = shopped(&world, "int_abc").await;
        let shown = world.shown("int_abc").await;
        let receipt = shown["transactions"][0]["receipt"].clone();
        let bare = sign(
            json!({"intent_id": "int_abc", "nonce": "nonce-of-int_abc"}),
            &agent(),
        );
        let mut seen = vec![(None, intent), (None, receipt), (None, bare)];
        for operation in RequestOperation::ALL {
            let signed = request(&world, operation, OTHER_KEY, members("int_abc"));
            seen.push((Some(operation), signed));
        }
        for (meant, document) in &seen {
            for to in [
                RequestOperation::Execute,
                RequestOperation::Compensate,
                RequestOperation::Cancel,
            ] {
                if *meant == Some(to) {
                    continue;
                }
                for key in [OTHER_KEY, THIRD_KEY] {
                    let refused = send(&world, to, key, document).await;
                    let status = refused.as_ref().err().map(ProblemResponse::status);
                    assert_eq!(status, Some(400), "{mode} {to:?} {document}: {refused:?}");
                }
            }
            if matches!(meant, Some(operation) if *operation != RequestOperation::Authorize) {
                let refused = send(&world, RequestOperation::Authorize, OTHER_KEY, document).await;
                assert_eq!(name(&refused), "invalid_request", "{document}");
            }
        }
        let shown = world.shown("int_abc").await;
        assert_eq!(shown["data"]["executions"], 1, "{shown}");
        assert_eq!((world.bank.charges(), world.bank.refunds()), (1, 0));
        // Each is valid for its own operation.
        for (meant, document) in seen {
            if let Some(to @ (RequestOperation::Execute | RequestOperation::Cancel)) = meant {
                let answer = send(&world, to, OTHER_KEY, &document).await.unwrap();
                assert_eq!(answer.status, 200, "{document}");
            }
        }
        world.is_sound().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_signed_for_one_key_site_time_or_target_is_refused_for_every_other() {
    for mode in [true, false] {
        let world = world(mode).await;
        shopped(&world, "int_abc").await;
        shopped(&world, "int_def").await;
        let foreign = |world: &World, operation, name: &str, value: Value| {
            let mut signed = request(world, operation, OTHER_KEY, members("int_abc"));
            signed["signature"].take();
            signed.as_object_mut().unwrap().remove("signature");
            signed[name] = value;
            sign(signed, &agent())
        };
        for to in [
            RequestOperation::Execute,
            RequestOperation::Compensate,
            RequestOperation::Cancel,
        ] {
            let signed = request(&world, to, OTHER_KEY, members("int_abc"));
            let refused = send(&world, to, THIRD_KEY, &signed).await;
            assert_eq!(name(&refused), "idempotency_key_invalid");
            let other = foreign(&world, to, "site", "https://other.example".into());
            let refused = send(&world, to, OTHER_KEY, &other).await;
            assert_eq!(name(&refused), "site_mismatch");
            for stale in ["2020-01-01T00:00:00Z", "2200-01-01T00:00:00Z"] {
                let stale = foreign(&world, to, "issued_at", stale.into());
                let refused = send(&world, to, OTHER_KEY, &stale).await;
                assert_eq!(name(&refused), "timestamp_out_of_window", "{to:?} {mode}");
            }
            // The signed intent cannot be replaced by another one.
            let mut moved = signed.clone();
            moved["intent_id"] = "int_def".into();
            let refused = send(&world, to, OTHER_KEY, &moved).await;
            assert_eq!(name(&refused), "invalid_signature");
            let unsigned = [
                json!({"intent_id": "int_abc", "reason": "r", "site": "https://other.example"}),
                json!({"intent_id": "int_abc", "reason": "r", "issued_at": "2020-01-01T00:00:00Z"}),
                json!({"intent_id": "int_abc", "reason": "r", "idempotency_key": THIRD_KEY}),
            ];
            for body in unsigned {
                let refused = send(&world, to, OTHER_KEY, &body).await;
                assert!(refused.is_err(), "{to:?} {body}");
            }
        }
        let transactions = |shown: &Value| shown["transactions"][0]["transaction_id"].clone();
        let [first, second] = ["int_abc", "int_def"].map(|id| world.shown(id));
        let (first, second) = (transactions(&first.await), transactions(&second.await));
        let mut about = members("int_abc");
        about["transaction_id"] = first;
        let mut undo = request(&world, RequestOperation::Compensate, OTHER_KEY, about);
        undo["transaction_id"] = second;
        let refused = send(&world, RequestOperation::Compensate, OTHER_KEY, &undo).await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!((world.bank.charges(), world.bank.refunds()), (2, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_requests_are_signed_each_operation_works_in_its_new_form_and_in_no_other() {
    let world = world(true).await;
    world.create(&world.signed("int_abc")).await.unwrap();
    world.create(&world.signed("int_def")).await.unwrap();
    let typed = |operation, key: &str, id: &str| request(&world, operation, key, members(id));
    let consent = typed(RequestOperation::Authorize, KEY, "int_abc");
    let refused = send(&world, RequestOperation::Authorize, OTHER_KEY, &consent).await;
    assert_eq!(name(&refused), "idempotency_key_invalid");
    let answer = send(&world, RequestOperation::Authorize, KEY, &consent).await;
    assert_eq!(answer.unwrap().status, 200);
    for body in [
        json!({"intent_id": "int_abc"}),
        json!({"intent_id": "int_abc", "type": "atp.execute.v1", "site": SITE}),
    ] {
        let refused = send(&world, RequestOperation::Execute, KEY, &body).await;
        assert_eq!(name(&refused), "invalid_signature");
        let refused = send(
            &world,
            RequestOperation::Execute,
            KEY,
            &sign(body, &agent()),
        )
        .await;
        assert_eq!(name(&refused), "invalid_request");
    }
    let execute = typed(RequestOperation::Execute, KEY, "int_abc");
    let mut forged = execute.clone();
    forged["amount_cents"] = 1.into();
    let refused = send(&world, RequestOperation::Execute, KEY, &forged).await;
    assert_eq!(name(&refused), "invalid_signature");
    let settled = send(&world, RequestOperation::Execute, KEY, &execute).await;
    assert_eq!(body(&settled.unwrap())["state"], "settled");
    let undo = typed(RequestOperation::Compensate, KEY, "int_abc");
    let undone = send(&world, RequestOperation::Compensate, KEY, &undo).await;
    assert_eq!(body(&undone.unwrap())["state"], "compensated");
    let cancel = typed(RequestOperation::Cancel, KEY, "int_def");
    let refused = send(&world, RequestOperation::Cancel, OTHER_KEY, &cancel).await;
    assert_eq!(name(&refused), "idempotency_key_invalid");
    let answer = world.site.cancel(None, cancel.to_string().as_bytes()).await;
    assert_eq!(response(answer).unwrap().status, 200);
    assert_eq!((world.bank.charges(), world.bank.refunds()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_routes_that_name_their_target_are_no_way_around() {
    let world = world(true).await;
    let intent = shopped(&world, "int_abc").await;
    let shown = world.shown("int_abc").await;
    let id = shown["transactions"][0]["transaction_id"].as_str().unwrap();
    let execute = request(
        &world,
        RequestOperation::Execute,
        OTHER_KEY,
        members("int_abc"),
    );
    let cancel = request(
        &world,
        RequestOperation::Cancel,
        OTHER_KEY,
        members("int_abc"),
    );
    let key = Some(OTHER_KEY.as_bytes());
    for document in [&intent, &execute, &cancel, &json!({"reason": "r"})] {
        let sent = document.to_string();
        let refused = world.site.compensate_named(id, key, sent.as_bytes()).await;
        assert!(refused.is_err(), "{document}");
    }
    for document in [&intent, &execute, &json!({})] {
        let sent = document.to_string();
        let refused = world.site.cancel_named("int_abc", key, sent.as_bytes());
        assert!(refused.await.is_err(), "{document}");
    }
    let sent = cancel.to_string();
    let other = Some(THIRD_KEY.as_bytes());
    let refused = world.site.cancel_named("int_abc", other, sent.as_bytes());
    assert_eq!(name(&refused.await), "idempotency_key_invalid");
    let mut about = members("int_abc");
    about["transaction_id"] = id.into();
    let undo = request(&world, RequestOperation::Compensate, OTHER_KEY, about);
    let sent = undo.to_string();
    let undone = world.site.compensate_named(id, key, sent.as_bytes()).await;
    assert_eq!(body(&undone.unwrap())["state"], "compensated");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_principal_signs_is_consent_and_nothing_else() {
    for mode in [true, false] {
        let world = world(mode).await;
        let principal = Signer::from_seed(&[0x44; 32]);
        let with_principal = |id: &str, principal: &Signer| {
            let mut intent = world.intent(id);
            intent["principal_key"] = agent_key(principal).into();
            sign(intent, &agent())
        };
        // Also if agent and principal are the same.
        for (id, key) in [("int_other", &principal), ("int_same", &agent())] {
            world.create(&with_principal(id, key)).await.unwrap();
            let mut typed = request(&world, RequestOperation::Authorize, KEY, members(id));
            typed.as_object_mut().unwrap().remove("signature");
            let typed = sign(typed, key);
            let bare = json!({"intent_id": id, "nonce": format!("nonce-of-{id}")});
            let bare = sign(bare, key);
            for document in [&typed, &bare] {
                for to in [
                    RequestOperation::Execute,
                    RequestOperation::Compensate,
                    RequestOperation::Cancel,
                ] {
                    let refused = send(&world, to, KEY, document).await;
                    assert!(refused.is_err(), "{to:?} {document}");
                }
            }
            if id == "int_other" {
                let by_agent = request(&world, RequestOperation::Authorize, KEY, members(id));
                let refused = send(&world, RequestOperation::Authorize, KEY, &by_agent).await;
                assert_eq!(name(&refused), "invalid_signature");
            }
            let answer = send(&world, RequestOperation::Authorize, KEY, &typed).await;
            assert_eq!(answer.unwrap().status, 200);
            // Signed by a principal, and not by the agent.
            if id == "int_other" {
                let mut execute = request(&world, RequestOperation::Execute, KEY, members(id));
                execute.as_object_mut().unwrap().remove("signature");
                let refused =
                    send(&world, RequestOperation::Execute, KEY, &sign(execute, key)).await;
                assert_eq!(name(&refused), "invalid_signature");
            }
        }
        assert_eq!(world.bank.calls(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_repeated_after_its_time_with_the_first_signature_or_with_a_new_one() {
    let world = world(true).await;
    world.create(&world.signed("int_abc")).await.unwrap();
    let all = [
        RequestOperation::Authorize,
        RequestOperation::Execute,
        RequestOperation::Compensate,
        RequestOperation::Cancel,
    ];
    let asked = |operation: RequestOperation| {
        let id = if operation == RequestOperation::Cancel {
            "int_def"
        } else {
            "int_abc"
        };
        request(&world, operation, KEY, members(id))
    };
    world.create(&world.signed("int_def")).await.unwrap();
    let first = all.map(&asked);
    let mut answers = Vec::new();
    for (operation, sent) in all.into_iter().zip(&first) {
        answers.push(send(&world, operation, KEY, sent).await.unwrap());
    }
    let calls = world.bank.calls();
    world.pass(400);
    let again = all.map(&asked);
    for sent in [&first, &again] {
        for (operation, sent) in all.into_iter().zip(sent) {
            let answer = send(&world, operation, KEY, sent).await.unwrap();
            assert!(answer.replayed, "{operation:?}");
        }
    }
    // A repetition is recognised without its signature, but still needs one.
    for (operation, sent) in all.into_iter().zip(&first) {
        for signature in [Value::Null, json!("AAAA")] {
            let mut stolen = sent.clone();
            stolen["signature"] = signature;
            let refused = send(&world, operation, KEY, &stolen).await;
            assert_eq!(name(&refused), "invalid_signature", "{operation:?}");
        }
    }
    assert_eq!(world.bank.calls(), calls);
}
