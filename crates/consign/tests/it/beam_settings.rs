//! Variables of Beam: what each of them changes in a server. Those for which other modules have tests are not repeated here:
//! the federation secret and the allowed targets in `beam_commands`, the time of a result in `beam_bad_days` as well.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::thread;

use consign_testkit::process::websocket::WebSocketClient;
use consign_testkit::process::{Http, Options, Reply, Server};
use consign_testkit::proxy::Carrier;
use serde_json::{Value, json};

use super::beam_world::{
    BeamAgent, INTENT, OPERATOR, alice_and_bob, beam_error, beam_options, legal_trace, next_intent,
    operator, send, session, until,
};
use super::{Place, start, word};

const ADMIN: &str = "root@example.com";
const VIEWER: &str = "view@example.com";
/// Long enough for a key that is always accepted.
const BUS_KEY: &str = "a-key-of-the-bus-for-the-tests-0001";

/// A client that is not on the machine of the server.
fn elsewhere(server: &Server) -> Http {
    server.http().header("X-Forwarded-For", "203.0.113.7")
}

fn bearer(http: Http, token: &str) -> Http {
    http.header("Authorization", &format!("Bearer {token}"))
}

fn status(http: &mut Http, path: &str) -> u16 {
    http.get(path).unwrap().status
}

/// Whether a route is closed to this request.
fn is_refused(status: u16) -> bool {
    [401, 403].contains(&status)
}

/// The file with the identities of these agents, for the bus.
fn bundle(place: &Place, agents: &[&BeamAgent]) -> String {
    let members = agents
        .iter()
        .map(|agent| (agent.beam_id.clone(), agent.identity()));
    let bundle: serde_json::Map<String, Value> = members.collect();
    let path = place.path("identities.json");
    std::fs::write(&path, Value::Object(bundle).to_string()).unwrap();
    path.to_string_lossy().into_owned()
}

fn by_bus(server: &Server, (from, to): (&BeamAgent, &BeamAgent), nonce: &str) -> Reply {
    let message = json!({
        "from": from.beam_id, "to": to.beam_id, "intent": INTENT, "nonce": nonce,
        "payload": {"message": "hello"},
    });
    server.http().post("/v1/beam/send", &message).unwrap()
}

/// The next intent of the socket is answered.
fn answer(socket: &mut WebSocketClient, agent: &BeamAgent) -> String {
    let nonce = word(&next_intent(socket)["nonce"]);
    socket.send_json(&agent.result(&nonce, "here")).unwrap();
    nonce
}

#[track_caller]
fn until_delivered(server: &Server, nonce: &str) {
    let mut http = server.http();
    until(&format!("{nonce} is delivered"), || {
        let history = http.get("/v1/beam/history").unwrap().json();
        let messages = history["messages"].as_array()?;
        let found = messages.iter().find(|message| message["nonce"] == nonce)?;
        (found["status"] == "delivered").then_some(())
    });
}

#[test]
fn an_operator_has_the_role_of_the_list_with_the_address() {
    let place = Place::new();
    let options = place
        .options()
        .env("BEAM_ADMIN_EMAILS", &format!("other@example.com, {ADMIN}"))
        .env("BEAM_OPERATOR_EMAILS", OPERATOR)
        .env("BEAM_VIEWER_EMAILS", "View@Example.com");
    let server = start(&options);
    let (alice, bob) = alice_and_bob(&server);
    let rule = json!({
        "targetBeamId": alice.beam_id, "intentType": INTENT, "allowedFrom": bob.beam_id,
    });
    for (email, role, may_change) in [
        (ADMIN, "admin", true),
        (OPERATOR, "operator", false),
        (VIEWER, "viewer", false),
    ] {
        let token = session(&server, email);
        let mut http = bearer(elsewhere(&server), &token);
        let shown = http.get("/admin/auth/session").unwrap().json();
        assert_eq!(
            (&shown["email"], &shown["role"]),
            (&json!(email), &json!(role))
        );
        assert_eq!(status(&mut http, "/observability/overview"), 200);
        let changed = http.post("/acl", &rule).unwrap().status;
        assert_eq!(changed == 201, may_change, "{email} {changed}");
        assert!(may_change || is_refused(changed), "{email} {changed}");
    }
    let stranger = json!({"email": "eve@example.com"});
    let stranger = server.http().post("/admin/auth/magic-link", &stranger);
    assert_eq!(stranger.unwrap().status, 403);
}

#[test]
fn sessions_end_with_the_secret_that_signs_them() {
    let place = Place::new();
    let with = |secret: &str| beam_options(&place).env("JWT_SECRET", secret);
    // The one that the first start makes is kept.
    for (first, second, status_then) in [
        (beam_options(&place), beam_options(&place), 200),
        (with("the first secret"), with("the first secret"), 200),
        (with("the first secret"), with("another secret"), 401),
    ] {
        let mut server = start(&first);
        let token = session(&server, OPERATOR);
        server.kill9().unwrap();
        let server = start(&second);
        let mut http = bearer(server.http(), &token);
        assert_eq!(status(&mut http, "/admin/auth/session"), status_then);
        assert_eq!(status(&mut operator(&server), "/admin/auth/session"), 200);
    }
}

#[test]
fn a_sender_has_its_number_of_intents_in_a_minute() {
    let place = Place::new();
    let server = start(&place.options().env("BEAM_RATE_LIMIT_PER_MIN", "2"));
    let (alice, bob) = alice_and_bob(&server);
    let mut http = server.http();
    for nonce in ["n-1", "n-2"] {
        let offline = send(&mut http, &alice.message(&bob, nonce));
        assert_eq!(beam_error(&offline), (503, "OFFLINE".to_owned()));
    }
    let limited = send(&mut http, &alice.message(&bob, "n-3"));
    assert_eq!(beam_error(&limited), (429, "RATE_LIMITED".to_owned()));
    // Another sender has a limit of its own.
    let refused = send(&mut http, &bob.message(&alice, "n-4"));
    assert_eq!(beam_error(&refused), (403, "FORBIDDEN".to_owned()));
}

#[test]
fn the_time_of_a_result_is_the_same_over_http_and_websocket() {
    let place = Place::new();
    let server = start(&beam_options(&place).env("RELAY_TIMEOUT_MS", "321"));
    let (alice, bob) = alice_and_bob(&server);
    let _silent = bob.connect(&server);
    let late = send(&mut server.http(), &alice.message(&bob, "http"));
    assert_eq!(beam_error(&late), (504, "TIMEOUT".to_owned()));
    assert!(late.text().contains("(321ms)"), "{}", late.text());
    let mut socket = alice.connect(&server);
    let frame = alice.message(&bob, "socket");
    socket
        .send_json(&json!({"type": "intent", "frame": frame}))
        .unwrap();
    let late = socket.next_json().unwrap();
    assert_eq!(late["errorCode"], "TIMEOUT", "{late}");
    assert!(word(&late["message"]).contains("(321ms)"), "{late}");
    for nonce in ["http", "socket"] {
        let path = format!("/observability/intents/{nonce}");
        let trace = operator(&server).get(&path).unwrap().json();
        let last = trace["stages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["stage"], "failed", "{trace}");
        assert_eq!(last["details"]["timeoutMs"], 321, "{trace}");
    }
}

#[test]
fn the_key_of_the_bus_opens_it_and_its_statistics_may_be_public() {
    let place = Place::new();
    let (history, stats) = ("/v1/beam/history", "/v1/beam/stats");
    {
        // Without a key, it is for programs on this machine.
        let server = place.start();
        for path in [history, stats] {
            assert_eq!(status(&mut server.http(), path), 200);
            assert!(is_refused(status(&mut elsewhere(&server), path)), "{path}");
        }
    }
    let options = place.options().env("BEAM_BUS_API_KEY", BUS_KEY);
    {
        let server = start(&options);
        for path in [history, stats] {
            assert_eq!(status(&mut server.http(), path), 401);
            assert_eq!(status(&mut bearer(server.http(), "wrong"), path), 401);
            assert_eq!(status(&mut bearer(elsewhere(&server), BUS_KEY), path), 200);
        }
    }
    let server = start(&options.env("BEAM_BUS_STATS_PUBLIC", "true"));
    for http in [&mut server.http(), &mut elsewhere(&server)] {
        assert_eq!(status(http, stats), 200);
        assert_eq!(status(http, history), 401);
    }
}

#[test]
fn the_bus_signs_with_its_identities_and_limits_each_sender() {
    let place = Place::new();
    let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
    let options = beam_options(&place)
        .env("IDENTITY_PATH", &bundle(&place, &[&alice]))
        .env("RATE_LIMIT", "2");
    let server = start(&options);
    alice_and_bob(&server);
    let mut socket = bob.connect(&server);
    for nonce in ["n-1", "n-2"] {
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| by_bus(&server, (&alice, &bob), nonce));
            assert_eq!(answer(&mut socket, &bob), nonce);
            sending.join().unwrap()
        });
        assert_eq!(sent.json()["status"], "delivered", "{}", sent.text());
    }
    let limited = by_bus(&server, (&alice, &bob), "n-3");
    assert_eq!(
        beam_error(&limited),
        (429, "RATE_LIMIT_EXCEEDED".to_owned())
    );
    // The bus has no key of Bob.
    let unsigned = by_bus(&server, (&bob, &alice), "n-4").json();
    assert_eq!(unsigned["status"], "dead_letter", "{unsigned}");
}

#[test]
fn the_pauses_of_the_bus_are_scaled_and_due_messages_are_attempted_at_each_interval() {
    let place = Place::new();
    let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
    let options = beam_options(&place)
        .env("IDENTITY_PATH", &bundle(&place, &[&alice]))
        .env("RETRY_INTERVAL_MS", "50")
        .env("RETRY_TIME_SCALE", "0.02");
    let server = start(&options);
    alice_and_bob(&server);
    let sent = by_bus(&server, (&alice, &bob), "n-1").json();
    assert_eq!(sent["status"], "queued", "{sent}");
    let pause_s = sent["next_retry_at"].as_f64().unwrap() - sent["created_at"].as_f64().unwrap();
    assert!((0.509..=0.691).contains(&pause_s), "{sent}");
    // Without the variables, it would be attempted again after half a minute.
    let mut socket = bob.connect(&server);
    assert_eq!(answer(&mut socket, &bob), "n-1");
    until_delivered(&server, "n-1");
}

#[test]
fn the_bus_delivers_to_another_directory_also_after_that_was_away() {
    let (near, far) = (Place::new(), Place::new());
    let (alice, bob) = (BeamAgent::new("alice", 1), BeamAgent::new("bob", 2));
    // The address of the directory stays the same after its restart.
    let carrier = Carrier::start().unwrap();
    let wire = carrier.wire(0).unwrap();
    let start_directory = || {
        let server = start(&beam_options(&far));
        let port = server.authority().rsplit(':').next().unwrap();
        wire.retarget(port.parse().unwrap());
        server
    };
    let mut directory = start_directory();
    alice_and_bob(&directory);
    let options = beam_options(&near)
        .env("DIRECTORY_URL", &format!("http://127.0.0.1:{}", wire.port))
        .env("IDENTITY_PATH", &bundle(&near, &[&alice, &bob]))
        .env("RETRY_INTERVAL_MS", "50")
        .env("RETRY_TIME_SCALE", "0.02");
    let bus = start(&options);
    {
        let mut socket = bob.connect(&directory);
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| by_bus(&bus, (&alice, &bob), "n-1"));
            assert_eq!(answer(&mut socket, &bob), "n-1");
            sending.join().unwrap()
        });
        assert_eq!(sent.json()["status"], "delivered", "{}", sent.text());
    }
    // The trace is where the agents are; the directory of the bus has neither.
    assert_eq!(legal_trace(&directory, "n-1").last().unwrap(), "acked");
    let own = bus.http().get("/intents/recent").unwrap().json();
    assert_eq!(own["intents"], json!([]));
    // What the other directory refuses for good is not attempted again.
    let refused = by_bus(&bus, (&bob, &alice), "n-2").json();
    assert_eq!(
        (&refused["status"], &refused["error_code"]),
        (&json!("dead_letter"), &json!("FORBIDDEN")),
        "{refused}"
    );

    directory.kill9().unwrap();
    let away = by_bus(&bus, (&alice, &bob), "n-3").json();
    assert_eq!(
        (&away["status"], &away["error_code"]),
        (&json!("queued"), &json!("DELIVERY_FAILED")),
        "{away}"
    );
    let directory = start_directory();
    let mut socket = bob.connect(&directory);
    assert_eq!(answer(&mut socket, &bob), "n-3");
    until_delivered(&bus, "n-3");
    assert_eq!(legal_trace(&directory, "n-3").last().unwrap(), "acked");
}

#[test]
fn documents_name_the_public_address_of_the_directory() {
    let place = Place::new();
    let named = |server: &Server| {
        let did = "/did/did:beam:acme:alice";
        server.http().get(did).unwrap().text()
    };
    {
        let server = place.start();
        alice_and_bob(&server);
        let document = named(&server);
        assert!(document.contains(server.base_url()), "{document}");
    }
    let public = "https://directory.example";
    let server = start(&place.options().env("BEAM_DIRECTORY_URL", public));
    let document = named(&server);
    assert!(
        document.contains(&format!("{public}/agents/")),
        "{document}"
    );
    assert!(!document.contains(server.base_url()), "{document}");
}

#[test]
fn closed_routes_are_open_to_everybody_if_the_operator_says_so() {
    let place = Place::new();
    let rule = json!({
        "targetBeamId": "bob@acme.beam.directory", "intentType": INTENT, "allowedFrom": "*",
    });
    for is_open in [false, true] {
        let options = beam_options(&place);
        let server = start(&if is_open {
            options.env("BEAM_OPEN", "true")
        } else {
            options
        });
        alice_and_bob(&server);
        let mut http = elsewhere(&server);
        for path in ["/intents/recent", "/v1/beam/history"] {
            let status = status(&mut http, path);
            assert_eq!(status == 200, is_open, "{path} {status}");
            assert!(is_open || is_refused(status), "{path} {status}");
        }
        let added = http.post("/acl", &rule).unwrap().status;
        assert_eq!(added == 201, is_open, "{added}");
        // No setting shows the token of a login to another machine.
        let body = json!({"email": OPERATOR});
        let link = http.post("/admin/auth/magic-link", &body).unwrap().json();
        assert_eq!(link["token"], Value::Null, "{link}");
    }
}

#[test]
fn a_directory_may_be_private_have_its_own_catalog_and_limit_addresses() {
    let place = Place::new();
    let catalog = json!({"intents": [{
        "id": "shop.order", "description": "Orders something.", "from": ["*"], "to": ["*"],
        "payload": {"item": {"type": "string", "required": true}}, "response": {},
    }]});
    let file = place.path("catalog.json");
    std::fs::write(&file, catalog.to_string()).unwrap();
    let options: Options = place
        .options()
        .env("BEAM_CATALOG_PATH", &file.to_string_lossy())
        .env("BEAM_PRIVATE_DIRECTORY", "true")
        .env("BEAM_BUS_ALLOWED_ORIGINS", "https://app.example")
        .env("BEAM_PUBLIC_LIMITS", "on");
    let server = start(&options);
    let mut http = server.http();
    let shown = http.get("/intents/catalog").unwrap().json();
    assert_eq!(shown["intents"][0]["id"], "shop.order", "{shown}");
    assert_eq!(shown["intents"][1], Value::Null, "{shown}");
    let private = http.get("/directory/agents").unwrap();
    assert_eq!(beam_error(&private), (403, "PRIVATE_DIRECTORY".to_owned()));
    assert_eq!(status(&mut http, "/agents/search"), 200);
    for (origin, expected) in [
        ("https://app.example", Some("https://app.example")),
        ("https://other.example", None),
    ] {
        let headers = [("Origin", origin)];
        let reply = http.send("GET", "/v1/beam/stats", &headers, None).unwrap();
        assert_eq!(reply.header("access-control-allow-origin"), expected);
    }
    let mut register = |number: u8| {
        let agent = BeamAgent::new(&format!("agent-{number}"), number);
        let reply = http.post("/agents/register", &agent.registration());
        reply.unwrap().status
    };
    let statuses: Vec<u16> = (1..=11).map(&mut register).collect();
    assert_eq!((statuses[9], statuses[10]), (201, 429), "{statuses:?}");
}

#[test]
fn a_start_removes_the_messages_of_test_agents_if_the_operator_says_so() {
    let place = Place::new();
    let total = |server: &Server| {
        let stats = server.http().get("/v1/beam/stats").unwrap().json();
        stats["total"].as_u64().unwrap()
    };
    {
        let server = place.start();
        for to in ["bob@demo.beam.directory", "bob@acme.beam.directory"] {
            let message = json!({
                "from": "alice@acme.beam.directory", "to": to, "intent": INTENT, "payload": {},
            });
            let sent = server.http().post("/v1/beam/send", &message).unwrap();
            assert_eq!(sent.status, 201, "{}", sent.text());
        }
    }
    assert_eq!(total(&place.start()), 2);
    let cleaning = place.options().env("BEAM_BUS_CLEAN_TEST_DATA", "true");
    assert_eq!(total(&start(&cleaning)), 1);
}
