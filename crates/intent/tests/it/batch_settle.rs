//! `POST /settle`: each item is settled independently, and the next claims are in the same commit.

use serde_json::{Value, json};

use crate::world::{MAIN, World};

async fn settle(world: &World, body: &Value) -> Value {
    let answer = world.main_post("/settle", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn settling_answers_each_item_by_itself_and_claims_the_next_in_the_same_commit() {
    let world = World::new();
    for goal in ["done", "failed", "broken", "stolen", "next-1", "next-2"] {
        world.publish(json!({"goal": goal, "payload": 1})).await;
    }
    let jobs = world.claim_with("/claim?max=4", MAIN).await.unwrap()["intents"].clone();
    let item = |number: usize, more: Value| {
        let mut item =
            json!({"id": jobs[number]["id"], "claim_token": jobs[number]["claim_token"]});
        item.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        item
    };
    let unknown = json!({"id": "0".repeat(32), "claim_token": "0".repeat(32), "action": "fulfill"});
    let body = json!({
        "items": [
            item(0, json!({"action": "fulfill", "result": {"n": 1}})),
            item(2, json!({"action": "explode"})),
            item(1, json!({"action": "fail", "error": "no luck"})),
            item(3, json!({"action": "fulfill", "claim_token": "0".repeat(32)})),
            item(3, json!({"action": "fulfill", "result": 1, "result_type": "text"})),
            item(3, json!({"action": "fulfill", "claim_token": ""})),
            unknown,
        ],
        "claim": {"max": 5, "goal": "next-1"},
    });
    let commits = world.engine.stats().commits;
    let answer = settle(&world, &body).await;
    assert_eq!(world.engine.stats().commits, commits + 1);

    let items = answer["items"].as_array().unwrap();
    let told: Vec<_> = items
        .iter()
        .map(|item| {
            (
                item["ok"].as_bool().unwrap(),
                item["error"]["code"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (true, None),
            (false, Some("invalid_action")),
            (true, None),
            (false, Some("not_found")),
            (false, Some("invalid_result")),
            (false, Some("invalid_request")),
            (false, Some("not_found")),
        ]
    );
    assert_eq!(items[0], json!({"id": jobs[0]["id"], "ok": true}));
    assert_eq!(items[5]["error"]["message"], "Missing claim_token.");
    assert_eq!(
        items[3]["error"], items[6]["error"],
        "a wrong token and an unknown id look alike"
    );
    let next = answer["intents"].as_array().unwrap();
    assert_eq!((next.len(), &next[0]["goal"]), (1, &json!("next-1")));
    assert!(next[0]["claim_token"].is_string());

    let status = async |number: usize| world.status(jobs[number]["id"].as_str().unwrap()).await;
    assert_eq!(status(0).await["status"], "fulfilled");
    assert_eq!(status(1).await["last_error"], "no luck");
    assert_eq!(status(2).await["status"], "claimed");
    assert_eq!(status(3).await["status"], "claimed");
}

#[tokio::test]
async fn settling_frees_the_row_that_its_own_claim_then_takes() {
    let world = World::new();
    // The claim is executed after the settlements and sees their results. No other intent is open.
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let item = json!({"id": id, "claim_token": token, "action": "fulfill"});
    let answer = settle(&world, &json!({"items": [item.clone(), item], "claim": {}})).await;
    assert_eq!(
        (&answer["items"][0]["ok"], &answer["items"][1]["ok"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(answer["intents"], json!([]));
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    world.publish(json!({"goal": "h", "payload": 1})).await;
    let item = json!({"id": id, "claim_token": token, "action": "fail"});
    let without = settle(&world, &json!({"items": [item]})).await;
    assert_eq!(without["intents"], json!([]), "no claim was asked for");
}

#[tokio::test]
async fn a_settlement_that_cannot_be_read_as_a_whole_changes_nothing() {
    let world = World::new();
    let (id, token) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let good = json!({"id": id, "claim_token": token, "action": "fulfill"});
    for (body, status, code) in [
        (json!({}), 400, "invalid_request"),
        (json!({"items": []}), 400, "invalid_request"),
        (json!({"items": vec![&good; 101]}), 400, "invalid_request"),
        (json!({"items": [good, 5]}), 400, "invalid_payload"),
        (
            json!({"items": [good, {"claim_token": token}]}),
            400,
            "invalid_request",
        ),
        (json!({"items": [good], "claim": 5}), 400, "invalid_request"),
        (
            json!({"items": [good], "claim": {"max": 0}}),
            400,
            "invalid_max",
        ),
        (
            json!({"items": [good], "claim": {"namespace": "a b"}}),
            400,
            "invalid_namespace",
        ),
        (
            json!({"items": [good], "claim": {"namespace": 5}}),
            400,
            "invalid_namespace",
        ),
        (
            json!({"items": [good], "claim": {"goal": ["g"]}}),
            400,
            "invalid_goal",
        ),
        (
            json!({"items": [good], "claim": {"namespace": "mesh.x"}}),
            403,
            "forbidden",
        ),
    ] {
        world
            .main_post("/settle", &body)
            .await
            .assert_refused(status, code);
    }
    assert_eq!(world.status(&id).await["status"], "claimed");
}
