//! Searches of operators, and what they change: list, count, dead letters, delete.

use consign_engine::BulkRunner;
use consign_kernel::command::{Admit, Answer, Command, NewIntent, Operate};
use consign_kernel::ids::{DAY_US, SECOND_US};
use consign_kernel::intent::Ties;
use consign_kernel::profile::{Face, ProfileId};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Call, MAIN, World};

async fn search(world: &World, query: &str) -> Value {
    let answer = world.admin_get(&format!("/admin/intents{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn ids(found: &Value) -> Vec<&str> {
    let rows = found["intents"].as_array().unwrap();
    rows.iter().map(|row| row["id"].as_str().unwrap()).collect()
}

/// A row of another protocol, as that protocol admits it.
async fn row_of(world: &World, profile: ProfileId) -> String {
    let item = NewIntent {
        profile,
        namespace: "default".to_owned(),
        goal: "work".to_owned(),
        owner: "operator".to_owned(),
        public: false,
        target: None,
        capability: Some("echo".to_owned()),
        priority: 100,
        payload: "{}".to_owned(),
        traceparent: None,
        delay_us: 0,
        ttl_us: DAY_US,
        attempts_max: 3,
        backoff_us: SECOND_US,
        once: None,
        ties: Ties::default(),
        unless: None,
    };
    let admit = Admit {
        items: vec![item],
        cap: None,
    };
    let admitted = world.engine.apply(None, Command::Admit(admit)).await;
    let Answer::Admitted(admitted) = admitted.unwrap() else {
        panic!("an admission answers with its intents");
    };
    admitted[0].id.to_string()
}

#[tokio::test]
async fn an_operator_finds_intents_of_all_keys_with_everything_but_the_payload() {
    let world = World::new();
    let tester = world.tester("bob").await;
    let body = json!({"goal": "mail.send", "payload": {"to": "ada"}});
    let own = world.publish(body.clone()).await;
    let answer = world
        .send(Call::post("/intent").key(&tester).json(&body))
        .await;
    let other = answer.json()["id"].as_str().unwrap().to_owned();
    let job = row_of(&world, ProfileId::Automation).await;
    assert_eq!(ids(&search(&world, "").await), [&job, &other, &own]);
    let mail = search(&world, "?filter=goal:mail.*%20face:intent&limit=1").await;
    assert_eq!(ids(&mail), [&other]);
    let cursor = mail["cursor"].as_str().unwrap();
    let rest = format!("?filter=goal:mail.*%20face:intent&cursor={cursor}");
    let rest = search(&world, &rest).await;
    assert_eq!((ids(&rest), &rest["cursor"]), (vec![&*own], &Value::Null));
    let row = &rest["intents"][0];
    let now = row["created_at"].as_f64().unwrap();
    let expected = json!({"id": own, "face": "intent", "state": "open", "namespace": "default", "goal": "mail.send",
        "owner": "main", "claimed_by": null, "worker": null, "priority": 100, "attempts": 0, "max_attempts": 3, "last_error": null,
        "age": 0.0, "created_at": now, "run_at": now, "claimed_at": null, "settled_at": null, "expires_at": now + 86_400.0});
    assert_eq!(row, &expected);
    let queued = search(&world, "?filter=state:queued").await;
    assert_eq!(ids(&queued), [&job]);
    let payload = search(&world, "?filter=payload.to=ada%20owner:main").await;
    assert_eq!(ids(&payload), [&own]);
    assert_eq!(payload["examined"], 1, "the rows of this owner alone");
    let unauthorized = world.send(Call::get("/admin/intents").key(MAIN)).await;
    unauthorized.assert_refused(401, "unauthorized");
}

#[tokio::test]
async fn a_count_says_how_much_it_examined() {
    let world = World::new();
    for goal in ["a", "b", "a"] {
        world.publish(json!({"goal": goal, "payload": 1})).await;
    }
    let counted = world.admin_get("/admin/intents/count?filter=goal:a").await;
    let expected = json!({"count": 2, "examined": 3, "cursor": null});
    counted.assert_ok(&expected);
}

#[tokio::test]
async fn mistakes_in_a_search_are_named() {
    let world = World::new();
    let answer = world.admin_get("/admin/intents?filter=state:dad").await;
    answer.assert_refused(400, "invalid_filter");
    assert!(
        answer
            .text()
            .contains("column 7, state:dad: expected a state: open, claimed"),
        "{}",
        answer.text()
    );
    let answer = world.admin_get("/admin/intents?q=acme").await;
    answer.assert_refused(400, "invalid_request");
    let expected = "Unknown query parameter \\\"q\\\"; known here: filter, limit, cursor.";
    assert!(answer.text().contains(expected), "{}", answer.text());
    let answer = world.admin_get("/admin/intents?cursor=x").await;
    answer.assert_refused(400, "invalid_cursor");
    let answer = world.admin_get("/admin/intents?limit=101").await;
    answer.assert_refused(400, "invalid_limit");
    for path in [
        "/admin/intents/count?limit=1",
        "/admin/nodes?x=1",
        "/admin/grants?x=1",
        "/admin/bulk?x=1",
    ] {
        let answer = world.admin_get(path).await;
        answer.assert_refused(400, "invalid_request");
    }
}

#[tokio::test]
async fn routes_of_the_protocol_name_what_they_ignore() {
    let world = World::new();
    let header = |answer: &crate::world::Answer| {
        let value = answer.headers.get("x-consign-ignored");
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    let published = |body: Value| {
        let call = Call::post("/intent").key(MAIN).json(&body);
        world.send(call)
    };
    let plain = published(json!({"goal": "g", "payload": 1, "priority": 5})).await;
    assert_eq!((plain.status.as_u16(), header(&plain)), (201, None));
    let odd = published(json!({"goal": "g", "payload": 1, "prioritty": 5, "max_attempt": 9})).await;
    let names = Some("max_attempt, prioritty".to_owned());
    assert_eq!((odd.status.as_u16(), header(&odd)), (201, names));
    let strange = published(json!({"goal": "g", "payload": 1, "p\u{e9}\r\nx": 5})).await;
    assert_eq!(header(&strange), Some("...".to_owned()));
    let batch = json!({"intents": [{"goal": "g", "payload": 1, "idempotency_key": "k", "gaol": 1}], "atomic": true});
    let batch = world
        .send(Call::post("/intents").key(MAIN).json(&batch))
        .await;
    assert_eq!(header(&batch), Some("atomic, gaol".to_owned()));
    let listed = world
        .send(Call::get("/intents?q=acme&limit=1").key(MAIN))
        .await;
    assert_eq!(
        (listed.status.as_u16(), header(&listed)),
        (200, Some("q".to_owned()))
    );
    for (uri, names) in [
        ("/claim?gaol=g&capability=c", Some("gaol")),
        ("/claim?goal=g&worker_id=w", None),
        ("/claim?goal=nothing&gaol=g", Some("gaol")),
    ] {
        let claimed = world.send(Call::post(uri).key(MAIN)).await;
        assert!(claimed.status.is_success());
        assert_eq!(header(&claimed).as_deref(), names, "{uri}");
    }
    let dead = world.admin_get("/admin/dead?q=1").await;
    assert_eq!(
        (dead.text().as_str(), header(&dead).as_deref()),
        ("[]", Some("q"))
    );
}

#[tokio::test]
async fn dead_letters_are_a_list_or_with_parameters_pages() {
    let world = World::new();
    let first = world.dead_letter("mail.send", "refused").await;
    let second = world.dead_letter("print", "no paper").await;
    let job = row_of(&world, ProfileId::Automation).await;
    let operate = Operate {
        id: job.parse().unwrap(),
        face: Face::Automation,
        reason: "no".to_owned(),
    };
    let cancelled = world.engine.apply(None, Command::Cancel(operate)).await;
    assert!(cancelled.is_ok());
    let all = world.admin_get("/admin/dead").await.json();
    let of = |list: &Value| -> Vec<String> {
        let letters = list.as_array().unwrap().iter();
        letters
            .map(|letter| letter["intent_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(of(&all), [second.clone(), first.clone()]);
    let page = world.admin_get("/admin/dead?limit=1").await.json();
    assert_eq!(page["dead"][0], all[0]);
    let cursor = page["cursor"].as_str().unwrap();
    let page = world
        .admin_get(&format!("/admin/dead?cursor={cursor}"))
        .await
        .json();
    assert_eq!(
        (of(&page["dead"]), &page["cursor"]),
        (vec![first.clone()], &Value::Null)
    );
    let page = world
        .admin_get("/admin/dead?filter=error:REFUSED")
        .await
        .json();
    assert_eq!(of(&page["dead"]), [first]);
}

#[tokio::test]
async fn an_intent_is_deleted_unless_a_worker_holds_it() {
    let world = World::new();
    let delete = async |id: &str| {
        let call = Call::new(Method::DELETE, &format!("/admin/intents/{id}"));
        world.send(call.admin()).await
    };
    let open = world.publish(json!({"goal": "g", "payload": 1})).await;
    delete(&open)
        .await
        .assert_ok(&json!({"ok": true, "id": open}));
    delete(&open).await.assert_refused(404, "not_found");
    let (held, _) = world.leased(json!({"goal": "g", "payload": 1})).await;
    let refused = delete(&held).await;
    refused.assert_refused(409, "invalid_state");
    assert!(
        refused
            .text()
            .contains("A worker holds it; cancel it first"),
        "{}",
        refused.text()
    );
    let cancel = format!("/admin/intents/{held}/cancel");
    assert_eq!(world.admin_post(&cancel, &json!({})).await.status, 200);
    assert_eq!(delete(&held).await.status, 200);
    assert_eq!(ids(&search(&world, "").await), Vec::<&str>::new());
}

#[tokio::test]
async fn rows_of_other_protocols_are_changed_as_their_protocols_allow() {
    let world = World::new();
    let job = row_of(&world, ProfileId::Automation).await;
    let retry = world
        .admin_post(&format!("/admin/intents/{job}/retry"), &json!({}))
        .await;
    retry.assert_refused(409, "invalid_state");
    let why = "It belongs to the protocol automation and is queued: retry is not possible now, but cancel is.";
    assert!(retry.text().contains(why), "{}", retry.text());
    let delete = Call::new(Method::DELETE, &format!("/admin/intents/{job}"));
    world
        .send(delete.admin())
        .await
        .assert_refused(409, "invalid_state");
    let cancel = world
        .admin_post(&format!("/admin/intents/{job}/cancel"), &json!({}))
        .await;
    cancel.assert_ok(&json!({"ok": true, "id": job, "status": "dead"}));
    let retry = world
        .admin_post(&format!("/admin/intents/{job}/retry"), &json!({}))
        .await;
    retry.assert_ok(&json!({"ok": true, "id": job, "status": "queued"}));
}

#[tokio::test]
async fn a_bulk_job_is_confirmed_and_changes_all_rows_that_match() {
    let world = World::new();
    for _ in 0..3 {
        world.dead_letter("mail.send", "refused").await;
    }
    let begin = async |more: Value| {
        let mut body = json!({"action": "retry", "filter": "state:dead goal:mail.*"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        world.admin_post("/admin/bulk", &body).await
    };
    let counted = begin(json!({"dry_run": true})).await;
    let expected = json!({"dry_run": true, "action": "retry", "filter": "state:dead goal:mail.*", "matching": 3, "complete": true});
    counted.assert_ok(&expected);
    let unconfirmed = begin(json!({})).await;
    unconfirmed.assert_refused(400, "confirmation_required");
    assert!(
        unconfirmed.text().contains("3 rows match; send"),
        "{}",
        unconfirmed.text()
    );
    begin(json!({"force": true}))
        .await
        .assert_refused(400, "invalid_request");
    begin(json!({"action": "shake"}))
        .await
        .assert_refused(400, "invalid_request");
    begin(json!({"filter": " "}))
        .await
        .assert_refused(400, "invalid_filter");
    begin(json!({"filter": "state:dad"}))
        .await
        .assert_refused(400, "invalid_filter");
    let began = begin(json!({"confirm": true})).await;
    assert_eq!(began.status, 202, "{}", began.text());
    let began = began.json();
    let id = began["id"].as_str().unwrap();
    assert_eq!(
        (&began["state"], &began["matching"]),
        (&json!("running"), &json!(3))
    );
    let mut runner = BulkRunner::new(world.engine.clone());
    while runner.tick().await.unwrap() {}
    let job = world.admin_get(&format!("/admin/bulk/{id}")).await.json();
    assert_eq!((&job["state"], &job["done"]), (&json!("done"), &json!(3)));
    assert_eq!(world.admin_get("/admin/bulk").await.json(), json!([job]));
    let cancelled = world
        .admin_post(&format!("/admin/bulk/{id}/cancel"), &json!({}))
        .await;
    cancelled.assert_ok(&job);
    world
        .admin_get("/admin/bulk/none")
        .await
        .assert_refused(404, "not_found");
    assert_eq!(ids(&search(&world, "?filter=state:open").await).len(), 3);
}
