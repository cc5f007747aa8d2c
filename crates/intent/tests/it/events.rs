//! `GET /events`: framing, visibility of events, and resumption.

use std::collections::HashSet;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::world::{ADMIN, Call, MAIN, World};

/// A reader of one stream.
struct Reader {
    body: Body,
    text: String,
    /// The id of the first block.
    begin: u64,
}

/// One event of the stream.
#[derive(Debug, PartialEq)]
struct Event {
    id: u64,
    name: String,
    data: Value,
}

impl Reader {
    async fn open(world: &World, call: Call) -> Self {
        let response = world.respond(call).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut reader = Self {
            body: response.into_body(),
            text: String::new(),
            begin: 0,
        };
        let first = reader.block().await;
        let begin = first.strip_prefix(": connected\nid: ").expect("an id");
        reader.begin = begin.parse().unwrap();
        reader
    }

    async fn from_start(world: &World, key: &str) -> Self {
        Self::open(world, Call::get("/events?after=0").key(key)).await
    }

    /// The next block, which ends with an empty line.
    async fn block(&mut self) -> String {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return block;
            }
            let frame = tokio::time::timeout(Duration::from_secs(20), self.body.frame());
            let frame = frame
                .await
                .expect("an event in time")
                .expect("an open stream")
                .unwrap();
            self.text
                .push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
    }

    async fn next(&mut self) -> Event {
        let block = self.block().await;
        let lines: Vec<_> = block.lines().collect();
        assert_eq!(lines.len(), 3, "{block}");
        let field = |line: &str, name: &str| line.strip_prefix(name).expect(name).to_owned();
        Event {
            id: field(lines[0], "id: ").parse().unwrap(),
            name: field(lines[1], "event: "),
            data: serde_json::from_str(&field(lines[2], "data: ")).unwrap(),
        }
    }

    async fn take(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.next().await);
        }
        events
    }
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn an_event_is_framed_with_its_id_its_name_and_one_line_of_data() {
    let world = World::new();
    let (id, token) = world
        .leased(json!({"goal": "g\n\nevent: fake", "payload": 1, "namespace": "default"}))
        .await;
    let failure = json!({"claim_token": token, "error": "two\nlines\r\n\r\nid: 7"});
    world.main_post(&format!("/fail/{id}"), &failure).await;

    let events = Reader::from_start(&world, MAIN).await.take(3).await;
    assert_eq!(names(&events), ["admitted", "claimed", "failed"]);
    assert!(events.is_sorted_by(|a, b| a.id < b.id));
    let data = &events[2].data;
    assert_eq!(
        (&data["intent"], &data["seq"]),
        (&json!(id), &json!(events[2].id))
    );
    assert_eq!(
        (&data["from"], &data["to"], &data["attempt"]),
        (&json!("claimed"), &json!("open"), &json!(1))
    );
    assert_eq!(
        (&data["goal"], &data["namespace"]),
        (&json!("g\n\nevent: fake"), &json!("default"))
    );
    assert_eq!(data["detail"], "two\nlines\r\n\r\nid: 7");
    assert!(data["at"].is_number());
}

#[tokio::test]
async fn a_stream_shows_the_callers_own_intents_and_no_others() {
    let world = World::new();
    let (anna, ben) = (world.tester("anna").await, world.tester("ben").await);
    let publish = async |key: &str, goal: &str| {
        let body = json!({"goal": goal, "payload": 1, "visibility": "public"});
        world.send(Call::post("/intent").key(key).json(&body)).await;
    };
    for (key, goal) in [
        (anna.as_str(), "a1"),
        (&ben, "b1"),
        (MAIN, "m1"),
        (&anna, "a2"),
        (&ben, "b2"),
    ] {
        publish(key, goal).await;
    }
    for (key, goals) in [(anna.as_str(), ["a1", "a2"]), (&ben, ["b1", "b2"])] {
        let events = Reader::from_start(&world, key).await.take(2).await;
        let seen: Vec<_> = events
            .iter()
            .map(|event| event.data["goal"].as_str().unwrap())
            .collect();
        assert_eq!(seen, goals);
    }
    // The claim of Anna's intent by Ben is an event of Anna's stream.
    let mut hers = Reader::from_start(&world, &anna).await;
    hers.take(2).await;
    world.claim_with("/claim?goal=a1", &ben).await.unwrap();
    let claimed = hers.next().await;
    assert_eq!(
        (claimed.name.as_str(), &claimed.data["goal"]),
        ("claimed", &json!("a1"))
    );
    assert!(
        !claimed.data.to_string().contains(&ben),
        "a key id, not a key"
    );
}

#[tokio::test]
async fn a_stream_without_a_position_begins_with_what_happens_next() {
    let world = World::new();
    world.publish(json!({"goal": "before", "payload": 1})).await;
    let mut reader = Reader::open(&world, Call::get("/events").key(MAIN)).await;
    world.publish(json!({"goal": "after", "payload": 1})).await;
    assert_eq!(reader.next().await.data["goal"], "after");
}

#[tokio::test]
async fn who_comes_back_before_the_first_event_skips_nothing() {
    let world = World::new();
    world.publish(json!({"goal": "before", "payload": 1})).await;
    let cut_off = Reader::open(&world, Call::get("/events").key(MAIN)).await;
    let begin = cut_off.begin.to_string();
    drop(cut_off);
    world
        .publish(json!({"goal": "between", "payload": 1}))
        .await;
    let again = Call::get("/events").key(MAIN);
    let again = again.header("last-event-id", &begin);
    let mut reader = Reader::open(&world, again).await;
    assert_eq!(reader.begin.to_string(), begin);
    assert_eq!(reader.next().await.data["goal"], "between");
}

#[tokio::test]
async fn going_on_from_any_event_skips_nothing_and_repeats_nothing() {
    let world = World::new();
    let anna = world.tester("anna").await;
    for number in 0..12 {
        let key = if number % 3 == 0 { anna.as_str() } else { MAIN };
        let body = json!({"goal": format!("g{number}"), "payload": 1});
        world.send(Call::post("/intent").key(key).json(&body)).await;
    }
    let all = Reader::from_start(&world, MAIN).await.take(8).await;
    for (index, last_seen) in all.iter().enumerate() {
        let by_header = Call::get("/events")
            .key(MAIN)
            .header("last-event-id", &last_seen.id.to_string());
        let by_query = Call::get(&format!("/events?after={}", last_seen.id)).key(MAIN);
        for call in [by_header, by_query] {
            let rest = Reader::open(&world, call)
                .await
                .take(all.len() - index - 1)
                .await;
            assert_eq!(rest, all[index + 1..]);
        }
    }
    // The header takes precedence: a client that reconnects keeps its URL and adds the header.
    let both = Call::get("/events?after=0")
        .key(MAIN)
        .header("last-event-id", &all[6].id.to_string());
    assert_eq!(Reader::open(&world, both).await.next().await, all[7]);
}

#[tokio::test]
async fn more_events_than_one_page_holds_arrive_in_order_while_new_ones_come() {
    let world = World::new();
    let items = vec![json!({"goal": "g", "payload": 1}); 100];
    for _ in 0..7 {
        world
            .main_post("/intents", &json!({"intents": items}))
            .await;
    }
    let mut reader = Reader::from_start(&world, MAIN).await;
    let mut events = reader.take(10).await;
    world
        .main_post("/intents", &json!({"intents": items}))
        .await;
    events.extend(reader.take(790).await);
    assert!(events.is_sorted_by(|a, b| a.id < b.id));
    let shown: HashSet<_> = events
        .iter()
        .map(|event| event.data["intent"].to_string())
        .collect();
    assert_eq!(shown.len(), 800, "one fact after the other, none left out");
}

#[tokio::test]
async fn a_position_that_is_none_is_refused_and_a_stranger_gets_no_stream() {
    let world = World::new();
    for call in [
        Call::get("/events?after=-1").key(MAIN),
        Call::get("/events?after=x").key(MAIN),
        Call::get("/events")
            .key(MAIN)
            .header("last-event-id", "1.5"),
    ] {
        world.send(call).await.assert_refused(400, "invalid_cursor");
    }
    world
        .send(Call::get("/events"))
        .await
        .assert_refused(401, "unauthorized");
}

#[tokio::test]
async fn a_position_that_the_ledger_has_not_reached_is_refused() {
    let world = World::new();
    let goal = json!({"goal": "g", "payload": 1});
    world.main_post("/intent", &goal).await;
    let last = Reader::from_start(&world, MAIN).await.next().await.id;
    let now = Reader::open(&world, Call::get("/events").key(MAIN)).await;
    for told in [last, now.begin] {
        let after = format!("/events?after={told}");
        let reader = Reader::open(&world, Call::get(&after).key(MAIN)).await;
        assert_eq!(reader.begin, told);
    }
    for beyond in [last + 1_000_000, u64::MAX] {
        let after = format!("/events?after={beyond}");
        let resumed = Call::get("/events").key(MAIN);
        let resumed = resumed.header("last-event-id", &beyond.to_string());
        for call in [Call::get(&after).key(MAIN), resumed] {
            let refused = world.send(call).await;
            refused.assert_refused(400, "cursor_unknown");
        }
    }
}

#[tokio::test]
async fn a_draining_server_ends_its_streams() {
    let world = World::new();
    let response = world.respond(Call::get("/events?after=0").key(MAIN)).await;
    world.drain.send(true).unwrap();
    let whole = tokio::time::timeout(Duration::from_secs(20), response.into_body().collect());
    let whole = whole.await.expect("the stream ends").unwrap().to_bytes();
    assert_eq!(whole, ": connected\nid: 0\n\n");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_shows_that_it_is_alive() {
    let world = World::new();
    let mut reader = Reader::open(&world, Call::get("/events").key(MAIN)).await;
    for _ in 0..3 {
        assert_eq!(reader.block().await, ": still here");
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked() {
    let world = World::new();
    let key = world.tester("anna").await;
    let mut reader = Reader::from_start(&world, &key).await;
    let publish = Call::post("/intent").key(&key);
    let publish = publish.json(&json!({"goal": "g", "payload": 1}));
    assert_eq!(world.send(publish).await.status, 201);
    assert_eq!(reader.next().await.name, "admitted");
    let id = {
        let listed = world.send(Call::get("/intents").key(&key)).await.json();
        listed["intents"][0]["id"].as_str().unwrap().to_owned()
    };
    let revoke = Call::post("/admin/revoke_key").admin();
    world.send(revoke.json(&json!({"api_key": key}))).await;
    let cancel = Call::post(&format!("/admin/intents/{id}/cancel")).admin();
    assert_eq!(world.send(cancel).await.status, 200);
    assert!(reader.body.frame().await.is_none(), "the stream has ended");
}

#[tokio::test]
async fn a_tester_key_has_eight_streams_and_a_closed_one_makes_room() {
    let world = World::new();
    let key = world.tester("anna").await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(Reader::from_start(&world, &key).await);
    }
    let refused = world.send(Call::get("/events").key(&key)).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (429, "limit_exceeded")
    );
    open.pop();
    // The slot is free as soon as the task of the stream has noticed the disconnect.
    for attempt in 0.. {
        let response = world.respond(Call::get("/events").key(MAIN)).await;
        assert_eq!(response.status(), 200, "the main key is not in that line");
        if world.respond(Call::get("/events").key(&key)).await.status() == 200 {
            break;
        }
        assert!(attempt < 40, "the place was never freed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_operator_follows_the_facts_of_all_owners() {
    let world = World::new();
    let anna = world.tester("anna").await;
    let publish = async |key: &str, goal: &str| {
        let body = json!({"goal": goal, "payload": 1});
        world.send(Call::post("/intent").key(key).json(&body)).await;
    };
    publish(&anna, "a1").await;
    publish(MAIN, "m1").await;
    let all = Call::get("/admin/events?after=0").header("x-admin-token", ADMIN);
    let mut reader = Reader::open(&world, all).await;
    let events = reader.take(2).await;
    let goals: Vec<_> = events.iter().map(|event| &event.data["goal"]).collect();
    assert_eq!(goals, [&json!("a1"), &json!("m1")]);
    assert_eq!(events[0].data["face"], "intent");
    assert_eq!(events[0].data["to"], "queued");
    // What happens later reaches a stream that is open.
    publish(&anna, "a2").await;
    assert_eq!(reader.next().await.data["goal"], "a2");
    let one = Call::get("/admin/events?goal=m1").header("x-admin-token", ADMIN);
    let one = one.header("last-event-id", &events[0].id.to_string());
    assert_eq!(
        Reader::open(&world, one).await.next().await.data["goal"],
        "m1"
    );
    for refused in [
        Call::get("/admin/events").key(MAIN),
        Call::get("/admin/events").header("x-admin-token", "wrong"),
    ] {
        world
            .send(refused)
            .await
            .assert_refused(401, "unauthorized");
    }
    let far = Call::get("/admin/events?after=999999").header("x-admin-token", ADMIN);
    world.send(far).await.assert_refused(400, "cursor_unknown");
}
