//! The frames about topics.

use consign_mesh::destination::DestinationKind;
use serde_json::{Value, json};

use crate::client::{body, keyed, message};
use crate::world::World;

fn names(list: &Value) -> Vec<&str> {
    let topics = list["topics"].as_array().unwrap();
    topics
        .iter()
        .map(|topic| topic["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn cm_158_topics_are_created_joined_left_listed_and_read() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut lead, mut reader) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let create = json!({"type": "topic_create", "name": "alerts", "description": "what fails"});
    let created = lead.request(create.clone()).await;
    assert_eq!(
        (&created["type"], &created["created"]),
        (&json!("topic_created"), &json!(true))
    );
    assert_eq!(created["topic"]["visibility"], "public");
    let id = created["topic"]["id"].as_str().unwrap().to_owned();
    let again = reader.request(create).await;
    assert_eq!(
        (&again["created"], &again["topic"]["id"]),
        (&json!(false), &json!(id))
    );

    let list = reader.request(json!({"type": "topic_list"})).await;
    assert_eq!(list["type"], "topic_list_response");
    assert_eq!(names(&list), ["general", "alerts"]);
    let general = &list["topics"][0];
    assert_eq!(general["memberCount"], 2, "new members join it: {general}");

    let outside = reader.deliver(&message("#alerts", "hello")).await;
    assert_eq!(outside["code"], 403);
    for topic in [&id, "alerts", "#alerts"] {
        reader
            .send(&json!({"type": "topic_join", "topic": topic}))
            .await;
    }
    let members = reader
        .request(json!({"type": "topic_members", "topic": "alerts"}))
        .await;
    assert_eq!(members["type"], "topic_members_response");
    let roles: Vec<_> = members["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| {
            (
                member["displayName"].as_str().unwrap(),
                member["role"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(roles, [("alice", "lead"), ("bob", "member")]);

    // By name and by id; the reference stays the name.
    let by_name = keyed("c-1", "#alerts", DestinationKind::Topic, "alerts", "one");
    let by_id = keyed(
        "c-2",
        &format!("#{id}"),
        DestinationKind::Topic,
        "alerts",
        "two",
    );
    for frame in [by_name, by_id] {
        let ack = lead.deliver(&frame).await;
        assert_eq!(ack["code"], 201, "{ack}");
        let push = reader.take().await;
        assert_eq!(
            (&push["topic"], &push["messageId"]),
            (&json!("alerts"), &ack["messageId"])
        );
    }
    reader
        .send(&json!({"type": "topic_mark_read", "topic": "alerts"}))
        .await;
    let members = lead
        .request(json!({"type": "topic_members", "topic": id}))
        .await;
    reader.settle().await;
    drop(members);
    let members = lead
        .request(json!({"type": "topic_members", "topic": id}))
        .await;
    assert!(members["members"][1]["lastReadAt"].is_string(), "{members}");

    let history = json!({"type": "topic_history", "topic": "alerts", "limit": 1});
    let page = reader.request(history).await;
    assert_eq!(page["type"], "topic_history_response");
    let last = &page["messages"][0];
    assert_eq!(
        (body(last).as_str(), &last["senderName"]),
        ("two", &json!("alice"))
    );
    let before = json!({"type": "topic_history", "topic": "alerts", "beforeId": last["id"]});
    let page = reader.request(before).await;
    assert_eq!(page["messages"].as_array().unwrap().len(), 1);
    assert_eq!(body(&page["messages"][0]), "one");

    reader
        .send(&json!({"type": "topic_leave", "topic": "alerts"}))
        .await;
    reader.settle().await;
    lead.deliver(&message("#alerts", "after")).await;
    lead.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&reader.take().await), "marker");
}

#[tokio::test]
async fn cm_158_requests_about_unknown_and_private_topics_fail() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut lead, mut other) = (world.daemon(&alice).await, world.daemon(&bob).await);
    for kind in [
        "topic_join",
        "topic_leave",
        "topic_members",
        "topic_history",
        "topic_mark_read",
    ] {
        let answer = other.request(json!({"type": kind, "topic": "none"})).await;
        assert_eq!(
            (&answer["type"], &answer["code"]),
            (&json!("error"), &json!("topic_not_found"))
        );
        assert_eq!(answer["id"], answer["_reqId"]);
    }
    let create = json!({"type": "topic_create", "name": "secret", "visibility": "private"});
    lead.request(create).await;
    let list = other.request(json!({"type": "topic_list"})).await;
    assert_eq!(names(&list), ["general"]);
    let history = other
        .request(json!({"type": "topic_history", "topic": "secret"}))
        .await;
    assert_eq!(history["code"], "topic_not_found");
    let malformed = other
        .request(json!({"type": "topic_create", "name": "no name!"}))
        .await;
    assert_eq!(malformed["code"], "invalid_frame");
}

#[tokio::test]
async fn an_observer_reads_and_does_not_post() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut lead, mut reader) = (world.daemon(&alice).await, world.daemon(&bob).await);
    lead.request(json!({"type": "topic_create", "name": "news"}))
        .await;
    reader
        .send(&json!({"type": "topic_join", "topic": "news", "role": "observer"}))
        .await;
    let refused = reader.deliver(&message("#news", "mine")).await;
    assert_eq!(refused["code"], 403);
    lead.deliver(&message("#news", "theirs")).await;
    assert_eq!(body(&reader.take().await), "theirs");
}

#[tokio::test]
async fn a_topic_whose_name_is_the_id_of_another_one_does_not_get_its_posts() {
    let world = World::new().await;
    let (alice, bob) = (world.member("alice", 1).await, world.member("bob", 2).await);
    let (mut lead, mut other) = (world.daemon(&alice).await, world.daemon(&bob).await);
    let create = |name: &str| json!({"type": "topic_create", "name": name});
    let created = lead.request(create("plans")).await;
    let id = created["topic"]["id"].as_str().unwrap().to_owned();
    let twin = other.request(create(&id)).await;
    assert_eq!(twin["created"], true);
    assert_ne!(twin["topic"]["id"], id.as_str());
    let again = other.request(create(&id)).await;
    assert_eq!(
        (&again["created"], &again["topic"]),
        (&json!(false), &twin["topic"])
    );
    let members = lead
        .request(json!({"type": "topic_members", "topic": id}))
        .await;
    assert_eq!(members["topic"], "plans");
    let ack = lead
        .deliver(&message(&format!("#{id}"), "for the lead alone"))
        .await;
    assert_eq!(ack["code"], 201, "{ack}");
    lead.deliver(&message(&bob.pubkey(), "marker")).await;
    assert_eq!(body(&other.take().await), "marker");
}
