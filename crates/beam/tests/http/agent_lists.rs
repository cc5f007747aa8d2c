//! Search, browse, the public list, and the limits of public routes.

use consign_beam::directory::records::Agent;
use consign_engine::Clock as _;
use consign_web::secret_text::SecretText;
use serde_json::{Value, json};

use super::world::{Identity, World};

/// Stores agents of two organisations and one without.
async fn people(world: &World) {
    let day_ms = 86_400_000;
    let now = world.clock.now().0 / 1_000;
    let add = async |id: &str, change: &dyn Fn(&mut Agent)| {
        let identity = Identity::new(id, 1);
        world.add_agent(&identity).await;
        world.change_agent(id, change).await;
    };
    add("anna@acme.beam.directory", &|agent| {
        agent.capabilities = vec!["orders".to_owned(), "chat".to_owned()];
    })
    .await;
    add("ben@acme.beam.directory", &|agent| {
        "business".clone_into(&mut agent.verification_tier);
        agent.capabilities = vec!["chat".to_owned()];
        "public".clone_into(&mut agent.visibility);
    })
    .await;
    add("carl@other.beam.directory", &|agent| {
        agent.verified = true;
        agent.created_at = now - 8 * day_ms;
        agent.description = Some("Night SHIFT".to_owned());
    })
    .await;
    add("dora@beam.directory", &|agent| {
        agent.last_seen = now - 2 * day_ms;
    })
    .await;
    add("eve@acme.beam.directory", &|agent| {
        agent.flagged = true;
        "public".clone_into(&mut agent.visibility);
    })
    .await;
}

async fn ids(world: &World, path: &str) -> Vec<String> {
    let answer = world.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    let body = answer.json();
    let agents = body["agents"].as_array().unwrap().iter();
    let name = |agent: &Value| {
        agent["beam_id"]
            .as_str()
            .unwrap()
            .split('@')
            .next()
            .unwrap()
            .to_owned()
    };
    agents.map(name).collect()
}

#[tokio::test]
async fn be_089_a_search_combines_its_conditions() {
    let world = World::new().await;
    people(&world).await;
    for (query, expected) in [
        ("", "carl ben anna dora eve"),
        ("?org=acme", "ben anna eve"),
        ("?org=personal", "dora"),
        ("?org=none", ""),
        ("?capabilities=chat", "ben anna"),
        ("?capabilities=chat,orders", "anna"),
        ("?capabilities=chat,%20orders,", "anna"),
        ("?capabilities=chat,none", ""),
        ("?minTrustScore=0.5", "carl ben anna"),
        ("?minTrustScore=1", "carl"),
        ("?minTrustScore=0", "carl ben anna dora eve"),
        ("?verificationTier=business", "ben"),
        ("?verificationTier=royal", "carl ben anna dora eve"),
        ("?q=night%20shift", "carl"),
        ("?q=ORDERS", "anna"),
        ("?q=personal", "dora"),
        ("?q=chat&org=acme", "ben anna"),
        ("?limit=2", "carl ben"),
        ("?limit=9999", "carl ben anna dora eve"),
    ] {
        let found = ids(&world, &format!("/agents/search{query}")).await;
        assert_eq!(found.join(" "), expected, "{query}");
    }
    for query in [
        "minTrustScore=1.1",
        "minTrustScore=-1",
        "minTrustScore=x",
        "minTrustScore=NaN",
        "minTrustScore=",
        "limit=0",
        "limit=-1",
        "limit=x",
        "limit=",
    ] {
        let answer = world.get(&format!("/agents/search?{query}")).await;
        assert_eq!(answer.error(), (400, "INVALID_PARAM".to_owned()), "{query}");
    }
    let one = world.get("/agents/search?limit=1").await.json();
    assert_eq!(one["total"], 1);
    assert_eq!(one["agents"][0]["trust_score"], json!(1.0));
    assert!(!one.to_string().contains("api_key"));
}

#[tokio::test]
async fn be_089_browse_pages_and_filters() {
    let world = World::new().await;
    people(&world).await;
    for (query, expected, total) in [
        ("", "carl ben anna dora eve", 5),
        ("?limit=2", "carl ben", 5),
        ("?limit=2&page=2", "anna dora", 5),
        ("?limit=2&page=3", "eve", 5),
        ("?limit=2&page=4", "", 5),
        ("?pageSize=2&page=2", "anna dora", 5),
        ("?limit=1&page=4294967295", "", 5),
        ("?capability=chat", "ben anna", 2),
        ("?verification_tier=business", "ben", 1),
        ("?tier=business", "ben", 1),
        ("?verified_only=1", "carl ben", 2),
        ("?verified_only=TRUE&limit=1&page=2", "ben", 2),
        ("?verified_only=no", "carl ben anna dora eve", 5),
    ] {
        let path = format!("/agents/browse{query}");
        assert_eq!(ids(&world, &path).await.join(" "), expected, "{query}");
        assert_eq!(
            world.get(&path).await.json()["total"],
            json!(total),
            "{query}"
        );
    }
    let body = world.get("/agents/browse?page=2&limit=600").await.json();
    assert_eq!(
        (&body["page"], &body["limit"], &body["pageSize"]),
        (&json!(2), &json!(500), &json!(500))
    );
    for (query, code) in [
        ("page=0", "INVALID_PARAM"),
        ("page=x", "INVALID_PARAM"),
        ("limit=0", "INVALID_PARAM"),
        ("limit=-5", "INVALID_PARAM"),
        ("verification_tier=royal", "INVALID_VERIFICATION_TIER"),
        ("tier=royal", "INVALID_VERIFICATION_TIER"),
    ] {
        let answer = world.get(&format!("/agents/browse?{query}")).await;
        assert_eq!(answer.error(), (400, code.to_owned()), "{query}");
    }
}

#[tokio::test]
async fn be_089_lists_are_complete_beyond_one_page_of_records() {
    let world = World::new().await;
    let total = 507;
    for number in 0..total {
        let id = format!("n{number:04}@acme.beam.directory");
        world.add_agent(&Identity::new(&id, 1)).await;
    }
    let body = world.get("/agents/browse?limit=500&page=2").await.json();
    assert_eq!(body["total"], json!(total));
    let last = ids(&world, "/agents/browse?limit=500&page=2").await;
    assert_eq!(last.first().map(String::as_str), Some("n0500"));
    assert_eq!(last.len(), 7);
    assert_eq!(
        world.get("/agents/stats").await.json()["total_agents"],
        json!(total)
    );
}

#[tokio::test]
async fn the_public_list_shows_who_wants_to_be_listed() {
    let world = World::new().await;
    people(&world).await;
    let body = world.get("/directory/agents").await.json();
    assert_eq!(body["total"], 5);
    assert_eq!(body["listed"], 2);
    assert_eq!(ids(&world, "/directory/agents").await, ["ben", "eve"]);
    assert_eq!(body["agents"][0]["connected"], json!(false));
}

#[tokio::test]
async fn a_private_directory_is_listed_for_other_directories_only() {
    let secret = "a-shared-secret-of-the-tests";
    let world = World::with(|settings| {
        settings.private = true;
        settings.federation_secret = Some(SecretText::new(secret.to_owned()));
    })
    .await;
    let refused = (403, "PRIVATE_DIRECTORY".to_owned());
    let list = async |headers: &[(&str, &str)]| {
        world
            .request_elsewhere("GET", "/directory/agents", headers, None)
            .await
    };
    assert_eq!(list(&[]).await.error(), refused);
    for wrong in ["", "a", "a-shared-secret-of-the-test"] {
        assert_eq!(
            list(&[("x-beam-federation-secret", wrong)]).await.error(),
            refused
        );
    }
    assert_eq!(
        list(&[("x-beam-federation-secret", secret)]).await.status,
        200
    );
    let world = World::with(|settings| settings.private = true).await;
    let headers = [("x-beam-federation-secret", "")];
    let answer = world
        .request("GET", "/directory/agents", &headers, None)
        .await;
    assert_eq!(
        answer.error(),
        refused,
        "without a configured secret none is right"
    );
}

#[tokio::test]
async fn public_routes_are_limited_per_address_if_the_operator_says_so() {
    let world = World::with(|settings| settings.public_limits = true).await;
    for _ in 0..30 {
        assert_eq!(world.get("/agents/search").await.status, 200);
    }
    let answer = world.get("/agents/search").await;
    assert_eq!(answer.error(), (429, "RATE_LIMITED".to_owned()));
    assert_eq!(answer.header("retry-after"), Some("60"));
    assert_eq!(
        world.get("/agents/browse").await.status,
        200,
        "each route has its own limit"
    );
    for _ in 0..10 {
        assert_eq!(world.post("/agents/register", &json!({})).await.status, 400);
    }
    assert_eq!(world.post("/agents/register", &json!({})).await.status, 429);
    let path = "/agents/alice@acme.beam.directory/keys/rotate";
    for _ in 0..10 {
        assert_eq!(world.post(path, &json!({})).await.status, 404);
    }
    assert_eq!(world.post(path, &json!({})).await.status, 429);

    let world = World::new().await;
    for _ in 0..40 {
        assert_eq!(
            world.get("/agents/search").await.status,
            200,
            "off by default"
        );
    }
}

#[tokio::test]
async fn be_080_be_089_an_own_change_is_in_the_next_list() {
    let world = World::new().await;
    let register = async |name: &str, capability: &str, credential: Option<&str>| {
        let identity = Identity::new(&format!("{name}@acme.beam.directory"), 7);
        let body = json!({
            "beamId": identity.beam_id, "displayName": name, "capabilities": [capability],
            "publicKey": identity.public_key(),
        });
        let headers: Vec<_> = credential.iter().map(|key| ("x-api-key", *key)).collect();
        let body = Some(body.to_string());
        let answer = world.request("POST", "/agents/register", &headers, body);
        let answer = answer.await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.json()["apiKey"].as_str().unwrap().to_owned()
    };
    assert_eq!(ids(&world, "/agents/search").await.join(" "), "");
    let key = register("anna", "old", None).await;
    register("ben", "old", None).await;
    let old = "/agents/search?capabilities=old";
    assert_eq!(ids(&world, old).await.join(" "), "anna ben");
    let key = register("anna", "new", Some(&key)).await;
    assert_eq!(ids(&world, old).await.join(" "), "ben");
    assert_eq!(ids(&world, "/agents/search?q=NEW").await.join(" "), "anna");
    let headers = [("x-api-key", key.as_str())];
    let path = "/agents/anna@acme.beam.directory";
    let deleted = world.request("DELETE", path, &headers, None).await;
    assert_eq!(deleted.status, 204, "{}", deleted.text);
    assert_eq!(ids(&world, "/agents/search").await.join(" "), "ben");
    assert_eq!(world.get("/agents/browse").await.json()["total"], 1);
    assert_eq!(world.get("/agents/stats").await.json()["total_agents"], 1);
}
