//! Queues that a topic fills, for workers of the Intent Protocol and for automations.

use consign_engine::Operator;
use consign_mesh::broker::automation_queue;
use consign_mesh::id::TopicName;
use consign_mesh::limits::TOPIC_SUBSCRIPTIONS_MAX;
use serde_json::{Value, json};

use crate::world::{Answer, World};

const SUBSCRIBE: &str = "/v1/meshes/acme/subscribe";
const UNSUBSCRIBE: &str = "/v1/meshes/acme/unsubscribe";

/// A mesh with a member, and an API key of it.
async fn world() -> (World, String) {
    let world = World::new();
    world.mesh(&json!({})).await;
    world.member(1, "alice").await;
    let api_key = world.api_key(1, json!({"capabilities": ["send"]})).await;
    (world, api_key)
}

fn subscription(queue: &str) -> Value {
    json!({"topic": "general", "queue": queue})
}

impl World {
    async fn post_to_topic(&self, api_key: &str, id: &str) -> Answer {
        let post = json!({"topic": "general", "body": "fire", "client_message_id": id});
        self.send(api_key, &post).await
    }

    /// The queues of all items, with an entry for each item.
    fn items(&self) -> Vec<String> {
        let sql = "SELECT namespace FROM intents WHERE profile = 9 ORDER BY namespace";
        self.ledger.sql(sql)
    }

    /// The queues that the topic fills, each with whether an automation asked for it.
    async fn queues(&self) -> Vec<(String, bool)> {
        let listed = self.get("/v1/meshes/acme/topics").await.of(200);
        let queues = listed["topics"][0]["queues"].as_array().unwrap();
        let row = |queue: &Value| {
            let name = queue["queue"].as_str().unwrap().to_owned();
            (name, queue["by_automation"].as_bool().unwrap())
        };
        queues.iter().map(row).collect()
    }
}

#[tokio::test]
async fn a_post_is_an_item_of_every_queue_of_its_topic_once() {
    let (world, api_key) = world().await;
    world.post_to_topic(&api_key, "before").await.of(201);
    assert_eq!(world.items(), Vec::<String>::new());
    for queue in ["pages", "audit"] {
        let topic = world.post(SUBSCRIBE, &subscription(queue)).await.of(200);
        assert_eq!(topic["name"], "general");
    }
    let sent = world.post_to_topic(&api_key, "p-1").await.of(201);
    assert_eq!(world.items(), ["mesh.audit", "mesh.pages"]);
    // The same post again, and its id with another body, are no work.
    world.post_to_topic(&api_key, "p-1").await.of(200);
    let other = json!({"topic": "general", "body": "other", "client_message_id": "p-1"});
    world.send(&api_key, &other).await.of(409);
    assert_eq!(world.items().len(), 2);

    let grants = ["mesh.acme.pages".to_owned()];
    let worker = world
        .engine
        .create_key(Operator::vouched(), "worker", &grants)
        .await;
    let secret = worker.unwrap().secret;
    let headers = [("x-api-key", secret.as_str())];
    let claim = "/claim?namespace=mesh.acme.pages";
    let claimed = world.request("POST", claim, &headers, Some("{}")).await;
    let claimed = claimed.of(200);
    assert_eq!(claimed["payload"]["message_id"], sent["broker_message_id"]);
    assert_eq!(claimed["payload"]["topic"], "general");
    assert_eq!(claimed["source"]["topic"], "general");
    assert_eq!(claimed["source"]["client_message_id"], "p-1");
    // `fire`, as the topic has no key.
    assert_eq!(claimed["payload"]["ciphertext"], "ZmlyZQ==");
}

#[tokio::test]
async fn a_refused_post_fills_no_queue() {
    let (world, _) = world().await;
    world.post(SUBSCRIBE, &subscription("pages")).await.of(200);
    let create = json!({"capabilities": ["send"], "topics": ["other"]});
    let limited = world.api_key(1, create).await;
    let refused = world.post_to_topic(&limited, "p-1").await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert_eq!(world.items(), Vec::<String>::new());
}

#[tokio::test]
async fn a_subscription_ends_and_its_items_stay() {
    let (world, api_key) = world().await;
    world.post(SUBSCRIBE, &subscription("pages")).await.of(200);
    world.post(SUBSCRIBE, &subscription("pages")).await.of(200);
    assert_eq!(world.queues().await, [("pages".to_owned(), false)]);
    world.post_to_topic(&api_key, "p-1").await.of(201);
    let ended = world.post(UNSUBSCRIBE, &subscription("pages")).await;
    assert_eq!(ended.of(200)["queues"], json!([]));
    world.post_to_topic(&api_key, "p-2").await.of(201);
    assert_eq!(world.items(), ["mesh.pages"]);
    let again = world.post(UNSUBSCRIBE, &subscription("pages")).await;
    assert_eq!(again.error(), (404, "not_found".to_owned()));
    assert!(
        again.text.contains("does not fill queue pages"),
        "{}",
        again.text
    );
}

#[tokio::test]
async fn unknown_topics_wrong_names_and_too_many_queues_are_refused() {
    let (world, _) = world().await;
    for uri in [SUBSCRIBE, UNSUBSCRIBE] {
        let unknown = json!({"topic": "none", "queue": "pages"});
        let refused = world.post(uri, &unknown).await;
        assert_eq!(refused.error(), (404, "not_found".to_owned()), "{uri}");
        let no_mesh = uri.replace("acme", "none");
        let refused = world.post(&no_mesh, &subscription("pages")).await;
        assert_eq!(refused.error(), (404, "not_found".to_owned()), "{uri}");
        for body in [
            json!({"topic": "general"}),
            json!({"topic": "general", "queue": "no queue"}),
            json!({"topic": "general", "queue": "pages", "more": 1}),
        ] {
            let refused = world.post(uri, &body).await;
            assert_eq!(refused.error().0, 400, "{uri} {body}");
        }
    }
    for number in 0..TOPIC_SUBSCRIPTIONS_MAX {
        let body = subscription(&format!("q-{number}"));
        world.post(SUBSCRIBE, &body).await.of(200);
    }
    let refused = world.post(SUBSCRIBE, &subscription("one-more")).await;
    assert_eq!(refused.error(), (400, "invalid_request".to_owned()));
    assert!(refused.text.contains("fills 16 queues"), "{}", refused.text);
    world.post(SUBSCRIBE, &subscription("q-3")).await.of(200);
    assert_eq!(world.queues().await.len(), TOPIC_SUBSCRIPTIONS_MAX);
}

#[tokio::test]
async fn what_automations_subscribe_ends_with_their_configuration_and_nothing_else_does() {
    let (world, api_key) = world().await;
    world.post(SUBSCRIBE, &subscription("pages")).await.of(200);
    let general = TopicName::parse("general").unwrap();
    let own = automation_queue(&general).to_string();
    let broker = &world.broker;
    for _ in 0..2 {
        broker.subscribe_automation("acme", &general).await.unwrap();
    }
    let both = [("pages".to_owned(), false), (own.clone(), true)];
    assert_eq!(world.queues().await, both);
    world.post_to_topic(&api_key, "p-1").await.of(201);
    assert_eq!(
        world.items(),
        [format!("mesh.{own}"), "mesh.pages".to_owned()]
    );

    let is_wanted = |mesh: &str, topic: &TopicName| mesh == "acme" && *topic == general;
    let ended = broker.end_automatic_subscriptions(is_wanted).await;
    assert_eq!(ended.unwrap(), 0);
    assert_eq!(world.queues().await, both);
    let ended = broker.end_automatic_subscriptions(|_, _| false).await;
    assert_eq!(ended.unwrap(), 1);
    assert_eq!(world.queues().await, [("pages".to_owned(), false)]);
    world.post_to_topic(&api_key, "p-2").await.of(201);
    assert_eq!(world.items().len(), 3, "only `pages` got the second post");

    // What an operator asks for stays.
    broker.subscribe_automation("acme", &general).await.unwrap();
    world.post(SUBSCRIBE, &subscription(&own)).await.of(200);
    let ended = broker.end_automatic_subscriptions(|_, _| false).await;
    assert_eq!(ended.unwrap(), 0);
    assert_eq!(world.queues().await.len(), 2);

    let unknown = TopicName::parse("none").unwrap();
    let error = broker.subscribe_automation("acme", &unknown).await;
    assert!(error.unwrap_err().to_string().contains("no topic none"));
}
