//! Two directories: the secret, peers, agents of the other one, and trust.

use serde_json::{Value, json};

use crate::admin::{ADMIN, VIEWER, log_in, with_roles};
use crate::federation_world::{Pair, Reply, SECRET, SECRET_HEADER, Stub, described, federated};
use crate::world::{Identity, World};

/// Routes that need the secret.
const CLOSED: [(&str, &str); 5] = [
    ("POST", "/federation/peers"),
    ("GET", "/federation/peers"),
    ("POST", "/federation/relay"),
    ("POST", "/federation/resolve"),
    ("POST", "/federation/trust"),
];

#[tokio::test]
async fn be_130_without_the_secret_federation_routes_return_401() {
    let world = World::with(federated).await;
    let unset = World::new().await;
    let refused = (401, "FEDERATION_UNAUTHORIZED".to_owned());
    for (method, path) in CLOSED {
        let body = || (method == "POST").then(|| "{}".to_owned());
        let none = world.request(method, path, &[], body()).await;
        assert_eq!(none.error(), refused, "{path}");
        // No proxy can vouch for a directory.
        let proxy = [("x-beam-mtls-verified", "true")];
        let vouched = world.request(method, path, &proxy, body()).await;
        assert_eq!(vouched.error(), refused, "{path}");
        let any = unset.request(method, path, &[SECRET_HEADER], body()).await;
        assert_eq!(any.error(), refused, "{path}");
    }
    let wrong = [("x-beam-federation-secret", "wrong")];
    let wrong = world
        .request("GET", "/federation/peers", &wrong, None)
        .await;
    assert_eq!(wrong.error(), refused);
    let empty = [("x-beam-federation-secret", "")];
    let empty = unset
        .request("GET", "/federation/peers", &empty, None)
        .await;
    assert_eq!(empty.error(), refused);
    let twice = [SECRET_HEADER, ("x-beam-federation-secret", "other")];
    let twice = world
        .request("GET", "/federation/peers", &twice, None)
        .await;
    assert_eq!(twice.error(), refused);
    let right = world.as_directory("GET", "/federation/peers", None).await;
    assert_eq!(right.status, 200);
}

#[tokio::test]
async fn be_130_reading_an_agent_needs_the_secret_in_a_private_directory() {
    let private = World::with(|settings| {
        federated(settings);
        settings.private = true;
    })
    .await;
    let alice = Identity::alice();
    private.add_agent(&alice).await;
    let path = format!("/federation/agents/{}?localOnly=1", alice.beam_id);
    assert_eq!(private.get(&path).await.error().0, 401);
    let read = private.as_directory("GET", &path, None).await;
    assert_eq!(read.status, 200);
    let public = World::with(federated).await;
    public.add_agent(&alice).await;
    assert_eq!(public.get(&path).await.status, 200);
    let wrong = [("x-beam-federation-secret", "wrong")];
    let wrong = public.request("GET", &path, &wrong, None).await;
    assert_eq!(wrong.error().0, 401);
}

#[tokio::test]
async fn wrong_secrets_count_against_the_address_and_a_short_right_one_is_not_revealed() {
    let world = World::with(|settings| {
        federated(settings);
        let short = "short-secret".to_owned();
        settings.federation_secret = Some(consign_web::secret_text::SecretText::new(short));
    })
    .await;
    let get = async |secret: &str| {
        let headers = [("x-beam-federation-secret", secret)];
        let answer = world.request_elsewhere("GET", "/federation/peers", &headers, None);
        answer.await.status
    };
    assert_eq!(get("short-secret").await, 200);
    for _ in 0..10 {
        assert_eq!(get("wrong").await, 401);
    }
    assert_eq!(get("wrong").await, 429);
    assert_eq!(get("short-secret").await, 429);
    // Clients behind a proxy on this machine do not lock out programs on it.
    let headers = [("x-beam-federation-secret", "short-secret")];
    let local = world.request("GET", "/federation/peers", &headers, None);
    assert_eq!(local.await.status, 200);
}

#[tokio::test]
async fn a_long_right_secret_counts_while_the_address_is_throttled() {
    let key = "a-key-of-the-bus-with-32-letters";
    let world = World::with(|settings| {
        federated(settings);
        let digest = consign_web::credentials::SecretDigest::new(key.to_owned());
        settings.bus.api_key = Some(digest);
    })
    .await;
    let get = async |path: &str, name: &str, value: &str| {
        let headers = [(name, value)];
        let answer = world.request_elsewhere("GET", path, &headers, None);
        answer.await.status
    };
    let history = "/v1/beam/history";
    for _ in 0..10 {
        let wrong = get(history, "authorization", "Bearer wrong");
        assert_eq!(wrong.await, 401);
    }
    let bearer = format!("Bearer {key}");
    assert_eq!(get(history, "authorization", &bearer).await, 200);
    let (name, secret) = SECRET_HEADER;
    assert_eq!(get("/federation/peers", name, secret).await, 200);
    assert_eq!(get(history, "authorization", "Bearer wrong").await, 429);
}

#[tokio::test]
async fn wrong_credentials_of_this_machine_have_an_allowance_of_their_own() {
    let key = "short-key";
    let world = World::with(|settings| {
        let digest = consign_web::credentials::SecretDigest::new(key.to_owned());
        settings.bus.api_key = Some(digest);
    })
    .await;
    let get = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let answer = world.request("GET", "/v1/beam/history", &headers, None);
        answer.await.status
    };
    for _ in 0..60 {
        assert_eq!(get("wrong").await, 401);
    }
    assert_eq!(get(key).await, 200);
    for _ in 0..80 {
        get("wrong").await;
    }
    assert_eq!(get("wrong").await, 429);
}

#[tokio::test]
async fn be_131_a_peer_is_registered_and_its_agents_are_read_and_listed() {
    let world = World::with(federated).await;
    let carol = Identity::new("carol@other.beam.directory", 5);
    let listed = json!({"agents": [described(&carol), {"beam_id": "x"}, 7], "total": 3});
    let peer = Stub::start(move |asked| {
        assert!(
            asked.head.starts_with("GET /directory/agents "),
            "{}",
            asked.head
        );
        Reply::Json(listed.clone())
    })
    .await;
    let body =
        json!({"directoryUrl": format!("{}/", peer.url), "publicKey": "k", "trustLevel": 0.7});
    let registered = world
        .as_directory("POST", "/federation/peers", Some(&body))
        .await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let registered = registered.json();
    assert_eq!(registered["directoryUrl"], peer.url);
    assert_eq!(
        (&registered["publicKey"], &registered["trustLevel"]),
        (&json!("k"), &json!(0.7))
    );
    assert!(registered["lastSeen"].is_string() && registered["syncedAt"].is_string());
    let asked = &peer.asked()[0].head.to_ascii_lowercase();
    assert!(
        asked.contains(&format!("x-beam-federation-secret: {SECRET}")),
        "{asked}"
    );
    assert!(asked.contains(&format!("x-beam-source-directory: {}", world.url())));

    let again = world
        .as_directory("POST", "/federation/peers", Some(&body))
        .await;
    assert_eq!(again.json()["createdAt"], registered["createdAt"]);
    let peers = world
        .as_directory("GET", "/federation/peers", None)
        .await
        .json();
    assert_eq!(
        (&peers["total"], peers["peers"].as_array().unwrap().len()),
        (&json!(1), 1)
    );
    for name in [
        "id",
        "directoryUrl",
        "publicKey",
        "trustLevel",
        "createdAt",
        "lastSeen",
        "syncedAt",
    ] {
        assert!(!peers["peers"][0][name].is_null(), "{name}: {peers}");
    }
    assert_eq!(peers["peers"][0]["status"], "active");

    let known = world
        .get(&format!("/federation/agents/{}", carol.beam_id))
        .await
        .json();
    assert_eq!(
        (&known["scope"], &known["directoryUrl"]),
        (&json!("cache"), &json!(peer.url))
    );
    assert_eq!(known["agent"]["public_key"], carol.public_key());
    assert_eq!(
        (&known["agent"]["verified"], &known["agent"]["trust_score"]),
        (&json!(false), &json!(0.4))
    );

    let remove = format!("/federation/peers?directoryUrl={}", peer.url);
    let from_elsewhere = world
        .request_elsewhere("DELETE", &remove, &[SECRET_HEADER], None)
        .await;
    assert_eq!(from_elsewhere.error().0, 401);
    assert_eq!(
        world.request("DELETE", &remove, &[], None).await.status,
        204
    );
    assert_eq!(
        world.request("DELETE", &remove, &[], None).await.error().0,
        404
    );
    let forgotten = world
        .get(&format!("/federation/agents/{}", carol.beam_id))
        .await;
    assert_eq!(forgotten.status, 404);
}

#[tokio::test]
async fn an_administrator_manages_peers_without_the_secret() {
    let world = World::with(|settings| {
        federated(settings);
        with_roles(settings);
    })
    .await;
    let peer = Stub::start(|_| Reply::Json(json!({"agents": [], "total": 0}))).await;
    let remove = format!("/federation/peers?directoryUrl={}", peer.url);
    let path = "/federation/peers";
    let body = json!({"directoryUrl": peer.url, "publicKey": "k"}).to_string();
    let viewer = log_in(&world, VIEWER).await;
    let admin = log_in(&world, ADMIN).await;
    let send = async |session: &str, method: &str, path: &str, body: Option<String>| {
        let headers = [("authorization", session)];
        world.request_elsewhere(method, path, &headers, body).await
    };
    for session in [viewer.as_str(), "Bearer not-a-session"] {
        let refused = (401, "FEDERATION_UNAUTHORIZED".to_owned());
        let registered = send(session, "POST", path, Some(body.clone())).await;
        assert_eq!(registered.error(), refused, "{session}");
        assert_eq!(send(session, "GET", path, None).await.error(), refused);
        let removed = send(session, "DELETE", &remove, None).await;
        assert_eq!(removed.error(), (401, "UNAUTHORIZED".to_owned()));
    }
    let registered = send(&admin, "POST", path, Some(body)).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let listed = send(&admin, "GET", path, None).await.json();
    assert_eq!(listed["peers"][0]["directoryUrl"], json!(peer.url));
    // A session does not make a request one of a directory.
    for path in [
        "/federation/relay",
        "/federation/resolve",
        "/federation/trust",
    ] {
        let answer = send(&admin, "POST", path, Some("{}".to_owned())).await;
        let refused = (401, "FEDERATION_UNAUTHORIZED".to_owned());
        assert_eq!(answer.error(), refused, "{path}");
    }
    // A wrong secret is refused whatever else the request has.
    let headers = [
        ("authorization", admin.as_str()),
        ("x-beam-federation-secret", "wrong"),
    ];
    let wrong = world.request_elsewhere("GET", path, &headers, None).await;
    assert_eq!(wrong.status, 401);
    assert_eq!(send(&admin, "DELETE", &remove, None).await.status, 204);
    let listed = send(&admin, "GET", path, None).await.json();
    assert_eq!(listed["total"], 0);
}

#[tokio::test]
async fn be_131_a_peer_that_does_not_respond_stays_and_a_forbidden_one_is_not_stored() {
    let world = World::with(federated).await;
    let unusable = Stub::start(|_| Reply::Status(503, String::new(), String::new())).await;
    let no_list = Stub::start(|_| Reply::Json(json!({"agents": "none"}))).await;
    let urls = [
        "http://127.0.0.1:1",
        unusable.url.as_str(),
        no_list.url.as_str(),
    ];
    for url in urls {
        let body = json!({"directoryUrl": url, "publicKey": "k"});
        let answer = world
            .as_directory("POST", "/federation/peers", Some(&body))
            .await;
        assert_eq!(
            answer.error(),
            (500, "FEDERATION_ERROR".to_owned()),
            "{url}"
        );
    }
    let peers = world
        .as_directory("GET", "/federation/peers", None)
        .await
        .json();
    assert_eq!(peers["total"], 3);

    let guarded = World::with(|settings| {
        let secret = consign_web::secret_text::SecretText::new(SECRET.to_owned());
        settings.federation_secret = Some(secret);
    })
    .await;
    let own = guarded.url();
    for url in [
        "",
        "peer.example",
        "http://peer.example",
        unusable.url.as_str(),
        "https://127.1",
        "https://localhost",
        "https://user@peer.example",
        "https://peer.example/?x=1",
        "https://[::ffff:10.0.0.1]",
        own.as_str(),
    ] {
        let body = json!({"directoryUrl": url, "publicKey": "k"});
        let answer = guarded
            .as_directory("POST", "/federation/peers", Some(&body))
            .await;
        assert_eq!(answer.error(), (400, "INVALID_PEER".to_owned()), "{url}");
    }
    assert_eq!(unusable.asked().len(), 1, "the guard opens no connection");
    let peers = guarded
        .as_directory("GET", "/federation/peers", None)
        .await
        .json();
    assert_eq!(peers["total"], 0);
}

#[tokio::test]
async fn be_132_an_agent_is_found_locally_then_known_then_at_a_peer() {
    let pair = Pair::new().await;
    let (near, far) = (&pair.near, &pair.far);
    let bob = format!(
        "/federation/agents/{}",
        pair.bob.beam_id.replace('@', "%40")
    );
    let at_home = far.get(&format!("{bob}?localOnly=1")).await.json();
    assert_eq!(
        (&at_home["scope"], &at_home["directoryUrl"]),
        (&json!("local"), &json!(far.url()))
    );
    for name in [
        "org",
        "display_name",
        "capabilities",
        "created_at",
        "last_seen",
    ] {
        assert!(!at_home["agent"][name].is_null(), "{name}");
    }
    assert_eq!(at_home["agent"]["trust_score"], 0.5);

    let only_local = near.get(&format!("{bob}?localOnly=1")).await;
    assert_eq!(only_local.error(), (404, "NOT_FOUND".to_owned()));
    // A stranger's request does not cause requests to peers.
    let stranger = near.request_elsewhere("GET", &bob, &[], None).await;
    assert_eq!(stranger.status, 404);
    let body = json!({"beamId": pair.bob.beam_id});
    for scope in ["peer", "cache"] {
        let found = near
            .as_directory("POST", "/federation/resolve", Some(&body))
            .await
            .json();
        assert_eq!(
            (&found["scope"], &found["directoryUrl"]),
            (&json!(scope), &json!(far.url()))
        );
        assert_eq!(found["agent"]["public_key"], pair.bob.public_key());
    }
    let stranger = near.request_elsewhere("GET", &bob, &[], None).await;
    assert_eq!(stranger.json()["scope"], "cache");

    let nobody = json!({"beamId": "nobody@acme.beam.directory"});
    let nobody = near
        .as_directory("POST", "/federation/resolve", Some(&nobody))
        .await;
    assert_eq!(nobody.error(), (404, "NOT_FOUND".to_owned()));
    for wrong in [
        json!({}),
        json!({"beamId": "../peers"}),
        json!({"beamId": 7}),
    ] {
        let answer = near
            .as_directory("POST", "/federation/resolve", Some(&wrong))
            .await;
        assert_eq!(
            answer.error(),
            (400, "INVALID_BEAM_ID".to_owned()),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn reported_trust_is_halved_per_hop_and_shown_with_the_agent() {
    let pair = Pair::new().await;
    let report = async |mut body: Value| {
        body["beamId"] = json!(pair.bob.beam_id);
        pair.near
            .as_directory("POST", "/federation/trust", Some(&body))
            .await
    };
    let (source, origin) = ("https://third.example", pair.far.url());
    let assertion = json!({
        "assertedTrust": 0.8, "sourceDirectoryUrl": source, "originDirectoryUrl": origin, "hopCount": 2,
    });
    let stranger = report(assertion.clone()).await;
    assert_eq!(stranger.error(), (403, "FORBIDDEN".to_owned()));
    pair.near.add_peer(source, 0.5).await;
    let answer = report(assertion).await;
    let expected = json!({
        "beamId": pair.bob.beam_id, "effectiveTrust": 0.2, "sourceDirectoryUrl": source,
        "originDirectoryUrl": origin, "hopCount": 2,
    });
    assert_eq!((answer.status, answer.json()), (200, expected));
    let reduced = json!({"trustDelta": 0.9, "sourceDirectoryUrl": origin});
    assert_eq!(report(reduced).await.json()["effectiveTrust"], 0.5);
    // What another directory says has passed two, whatever it states.
    let close = json!({
        "assertedTrust": 1.0, "sourceDirectoryUrl": source, "originDirectoryUrl": origin, "hopCount": 1,
    });
    assert_eq!(report(close).await.json()["effectiveTrust"], 0.25);
    let body = json!({"beamId": pair.bob.beam_id});
    let found = pair
        .near
        .as_directory("POST", "/federation/resolve", Some(&body))
        .await;
    assert_eq!(found.json()["agent"]["trust_score"], 0.5);
    // The agent belongs to its directory now, so another one does not speak for it.
    let foreign = json!({"assertedTrust": 1.0, "sourceDirectoryUrl": source});
    let foreign = report(foreign).await;
    assert_eq!(foreign.error(), (403, "FORBIDDEN".to_owned()));
    for wrong in [
        json!({}),
        json!({"assertedTrust": 0.8}),
        json!({"sourceDirectoryUrl": source}),
        json!({"assertedTrust": "high", "sourceDirectoryUrl": source}),
        json!({"assertedTrust": 0.8, "sourceDirectoryUrl": "x"}),
    ] {
        assert_eq!(
            report(wrong.clone()).await.error(),
            (400, "INVALID_BODY".to_owned()),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn be_131_a_peer_without_a_key_is_refused_and_a_long_list_is_reported() {
    let long = format!(r#"{{"agents":["{}"]}}"#, "x".repeat(1024 * 1024));
    let peer = Stub::start(move |_| Reply::Status(200, String::new(), long.clone())).await;
    let world = World::with(federated).await;
    let post = async |body: Value| {
        world
            .as_directory("POST", "/federation/peers", Some(&body))
            .await
    };
    let without_key = post(json!({"directoryUrl": peer.url})).await;
    assert_eq!(without_key.error(), (400, "INVALID_PEER".to_owned()));
    assert!(peer.asked().is_empty());
    let added = post(json!({"directoryUrl": peer.url, "publicKey": "k"})).await;
    assert_eq!(added.error(), (500, "FEDERATION_ERROR".to_owned()));
    assert!(
        added.text.contains("larger than 1048576 bytes"),
        "{}",
        added.text
    );
}

#[tokio::test]
async fn a_large_body_is_refused_also_where_none_is_expected() {
    let world = World::with(federated).await;
    let body = "x".repeat(65_537);
    for (method, path) in [
        (
            "DELETE",
            "/federation/peers?directoryUrl=https://peer.example",
        ),
        ("POST", "/v1/beam/dead-letter/x/requeue"),
    ] {
        let answer = world.request(method, path, &[], Some(body.clone())).await;
        let expected = (413, "SHIELD_PAYLOAD_TOO_LARGE".to_owned());
        assert_eq!(answer.error(), expected, "{path}");
    }
}

#[tokio::test]
async fn from_elsewhere_the_secret_neither_registers_a_peer_nor_changes_one() {
    let world = World::with(|settings| {
        federated(settings);
        with_roles(settings);
    })
    .await;
    let agents = Stub::start(|_| Reply::Json(json!({"agents": [], "total": 0}))).await;
    let peer = |level: Option<f64>, key: &str| {
        let mut body = json!({"directoryUrl": agents.url, "publicKey": key});
        if let Some(level) = level {
            body["trustLevel"] = json!(level);
        }
        body.to_string()
    };
    let path = "/federation/peers";
    let elsewhere = async |body: String| {
        world
            .request_elsewhere("POST", path, &[SECRET_HEADER], Some(body))
            .await
    };
    let refused = (403, "FORBIDDEN".to_owned());
    assert_eq!(elsewhere(peer(None, "k")).await.error(), refused);
    assert!(agents.asked().is_empty(), "it is not called either");
    let admin = log_in(&world, ADMIN).await;
    let session = [("authorization", admin.as_str())];
    let added = world
        .request_elsewhere("POST", path, &session, Some(peer(Some(0.3), "k")))
        .await;
    assert_eq!(added.status, 201, "{}", added.text);
    for changed in [peer(Some(1.0), "k"), peer(Some(0.2), "k"), peer(None, "x")] {
        assert_eq!(
            elsewhere(changed.clone()).await.error(),
            refused,
            "{changed}"
        );
    }
    // The same again only reads its agents.
    for same in [peer(None, "k"), peer(Some(0.3), "k")] {
        let again = elsewhere(same).await;
        assert_eq!(again.status, 201, "{}", again.text);
        assert_eq!(again.json()["trustLevel"], 0.3);
    }
    // From this machine it is as upstream, and a level that is not stated stays.
    let local = serde_json::from_str(&peer(None, "x")).unwrap();
    let local = world.as_directory("POST", path, Some(&local)).await;
    assert_eq!(local.json()["trustLevel"], 0.3, "{}", local.text);
    // A report of trust from elsewhere states in its header whose it is.
    let report = json!({
        "beamId": "carol@other.beam.directory", "assertedTrust": 1.0, "sourceDirectoryUrl": agents.url,
    });
    for (header, status) in [
        (None, 403),
        (Some("https://other.example"), 403),
        (Some(agents.url.as_str()), 200),
    ] {
        let mut headers = vec![SECRET_HEADER];
        headers.extend(header.map(|url| ("x-beam-source-directory", url)));
        let body = Some(report.to_string());
        let answer = world
            .request_elsewhere("POST", "/federation/trust", &headers, body)
            .await;
        assert_eq!(answer.status, status, "{header:?} {}", answer.text);
    }
}
