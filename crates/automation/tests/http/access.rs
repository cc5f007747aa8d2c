//! Access control: the permissions of each scope, and the form of refusals.

use serde_json::json;

use crate::world::{ALL, World, send};

const ECHO: &str = r#"echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins: {echo: {}}
pipelines: [{name: line, on: start, steps: [{uses: echo}]}]
webhooks: {listen: '127.0.0.1:0'}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_known_token_nothing_is_told_du_098() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let job = world.begin("/plugin/echo/poll", "").await;
    let paths = [
        ("GET", "/plugins".to_owned()),
        ("GET", "/no/such/path".to_owned()),
        ("DELETE", "/jobs".to_owned()),
        ("GET", format!("/job/{job}")),
        ("GET", "/events".to_owned()),
        ("POST", "/plugin/echo/poll".to_owned()),
        ("POST", "/pipeline/line".to_owned()),
        ("GET", format!("/jobs?token={ALL}")),
        ("GET", "/%2e%2e/jobs".to_owned()),
        ("GET", "//jobs".to_owned()),
        ("GET", "/JOBS".to_owned()),
    ];
    let doubled = format!("authorization: Bearer {ALL}\r\nauthorization: Bearer {ALL}");
    for (method, path) in &paths {
        for header in [
            "x-nothing: 1",
            "authorization: Bearer wrong",
            "authorization: Bearer ",
            "authorization: Basic dG9rZW4tb2YtYW4tb3BlcmF0b3I6",
            "authorization: token-of-an-operator",
            "authorization: Bearer token-of-an-operato",
            "authorization: Bearer token-of-an-operator2",
            "cookie: token=token-of-an-operator",
            doubled.as_str(),
        ] {
            let answer = send(world.api, method, path, &[header], b"").await;
            answer.is_refused(401);
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    world.get("/no/such/path").await.is_refused(404);
    world.get("/%2e%2e/jobs").await.is_refused(404);
    world.get("/plugin/%ff").await.is_refused(404);
    world.get("/plugin/..%2f..%2fetc").await.is_refused(404);
    world.post("/jobs", "").await.is_refused(405);
    let id = "00000000-0000-7000-8000-000000000000";
    world.get(&format!("/job/{id}")).await.is_refused(404);
    world.get("/job/nonsense").await.is_refused(404);
    world.post("/plugin/other/poll", "").await.is_refused(404);
    world.post("/plugin/echo/other", "").await.is_refused(404);
    world.post("/pipeline/other", "").await.is_refused(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_do_what_its_scopes_say_du_099_du_106() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let job = world.begin("/plugin/echo/poll", "").await;
    world.ended(&job).await;
    let job = format!("/job/{job}");
    let cancel = format!("{job}/cancel");
    let tree = format!("{job}/tree");
    let cases = [
        (
            "POST",
            "/plugin/echo/poll",
            "plugin-reader plugin-writer",
            202,
        ),
        ("POST", "/plugin/echo/work", "plugin-writer", 202),
        ("POST", "/plugin/echo/handle", "plugin-writer", 202),
        ("POST", "/pipeline/line", "plugin-writer", 202),
        ("GET", job.as_str(), "job-reader job-writer", 200),
        ("GET", tree.as_str(), "job-reader job-writer", 200),
        ("GET", "/jobs", "job-reader job-writer", 200),
        ("GET", "/job-logs", "job-reader job-writer", 200),
        ("GET", "/queue", "job-reader job-writer", 200),
        ("GET", "/analytics/queue", "job-reader job-writer", 200),
        ("GET", "/analytics/summary", "job-reader job-writer", 200),
        // The job has ended, so there is nothing to cancel.
        ("POST", cancel.as_str(), "job-writer", 409),
        ("GET", "/plugin/echo", "plugin-reader plugin-writer", 200),
        ("GET", "/facts/echo", "plugin-reader plugin-writer", 200),
        ("GET", "/config/view", "system-reader", 200),
        ("GET", "/system/status", "system-reader", 200),
        (
            "GET",
            "/plugins",
            "plugin-reader plugin-writer job-reader job-writer listener system-reader nobody",
            200,
        ),
    ];
    let tokens = [
        "plugin-reader",
        "plugin-writer",
        "job-reader",
        "job-writer",
        "listener",
        "system-reader",
        "nobody",
        ALL,
    ];
    for (method, path, allowed, status) in cases {
        for token in tokens {
            let answer = world.as_bearer(token, method, path, "").await;
            if token == ALL || allowed.split(' ').any(|name| name == token) {
                assert_eq!(answer.status, status, "{token} {method} {path} {answer:?}");
            } else {
                answer.is_refused(403);
            }
        }
    }
    // Only event streams accept a token in the query, because queries are written to the logs of other systems.
    let path = format!("{job}?token={ALL}");
    let answer = send(world.api, "GET", &path, &[], b"").await;
    answer.is_refused(401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_takes_tokens_away_du_106() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    assert_eq!(world.get("/jobs").await.status, 200);
    let text = std::fs::read_to_string(world.path("config.yaml")).unwrap();
    world.adopt_text(&text.replace(ALL, "another-token"));
    world.get("/jobs").await.is_refused(401);
    let answer = world.as_bearer("another-token", "GET", "/jobs", "").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_an_object_with_an_object_or_nothing_du_098_du_099() {
    let save =
        r#"printf '%s' "$request" > "$here/request"; echo '{"status":"ok","result":"done"}'"#;
    let world = World::start(&[("echo", save)], CONFIG).await;
    let deep = format!("{{\"payload\":{}{}}}", "[".repeat(500), "]".repeat(500));
    for body in [
        "{",
        "[]",
        "1",
        "\"x\"",
        "{\"payload\":1}",
        "{\"payload\":[]}",
        "{\"payload\":\"x\"}",
        "\u{1}",
        deep.as_str(),
    ] {
        world.post("/plugin/echo/poll", body).await.is_refused(400);
        world.post("/pipeline/line", body).await.is_refused(400);
    }
    assert_eq!(world.get("/jobs").await.json["total"], 0);
    for body in [
        "",
        " \n",
        "{}",
        "{\"payload\":null}",
        "{\"payload\":{},\"more\":1}",
    ] {
        let id = world.begin("/plugin/echo/poll", body).await;
        world.ended(&id).await;
    }
    let answer = world
        .post("/plugin/echo/handle", r#"{"payload":{"a":1}}"#)
        .await;
    assert_eq!(answer.json["status"], "queued");
    assert_eq!(answer.json["plugin"], "echo");
    assert_eq!(answer.json["command"], "handle");
    let id = answer.json["job_id"].as_str().unwrap().to_owned();
    let job = world.ended(&id).await;
    assert_eq!(job["submitted_by"], "api");
    assert_eq!(job["status"], "succeeded");
    let request = std::fs::read_to_string(world.path("request")).unwrap();
    let request: serde_json::Value = serde_json::from_str(&request).unwrap();
    assert_eq!(request["event"]["type"], "api.trigger");
    assert_eq!(request["event"]["payload"], json!({"a": 1}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_for_this_machine_and_needs_no_token_du_112() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    for (addr, more) in [(world.api, true), (world.hooks, false)] {
        let answer = send(addr, "GET", "/healthz", &[], b"").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let health = answer.json.as_object().unwrap();
        assert_eq!(health["status"], "ok");
        assert!(health["uptime_seconds"].is_u64());
        assert_eq!(health["queue_depth"], 0);
        assert_eq!(health["plugins_loaded"], 1);
        assert_eq!(health["plugins_circuit_open"], 0);
        assert_eq!(health.len(), if more { 8 } else { 5 }, "{health:?}");
        // Behind a proxy on this machine all requests come from a local address.
        let proxied = send(
            addr,
            "GET",
            "/healthz",
            &["x-forwarded-for: 203.0.113.9"],
            b"",
        );
        proxied.await.is_refused(403);
        send(addr, "POST", "/healthz", &[], b"")
            .await
            .is_refused(if more { 401 } else { 405 });
    }
    let root = send(world.api, "GET", "/", &[], b"").await;
    assert_eq!(root.status, 200);
    assert_eq!(root.json["discovery"]["openapi"], "/openapi.json");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_listed_pages_of_other_origins_may_read_answers_du_098() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let asks = "access-control-request-method: POST";
    let listed = "origin: https://app.example";
    let answer = send(world.api, "OPTIONS", "/jobs", &[listed, asks], b"").await;
    assert_eq!(answer.status, 204);
    let allowed = "access-control-allow-origin";
    assert_eq!(answer.header(allowed), Some("https://app.example"));
    let methods = answer.header("access-control-allow-methods");
    assert_eq!(methods, Some("GET, POST, PUT, DELETE, OPTIONS"));
    assert_eq!(answer.header("access-control-max-age"), Some("300"));
    let credentials = "access-control-allow-credentials";
    assert_eq!(answer.header(credentials), Some("true"));
    let refused = send(world.api, "GET", "/jobs", &[listed], b"").await;
    refused.is_refused(401);
    assert_eq!(refused.header(allowed), Some("https://app.example"));
    for other in [
        "origin: https://app.example.evil",
        "origin: http://app.example",
        "origin: null",
        "origin: https://APP.example",
        "origin: https://app.example\r\norigin: https://evil.example",
    ] {
        let answer = send(world.api, "OPTIONS", "/jobs", &[other, asks], b"").await;
        assert_eq!(answer.header(allowed), None, "{other}");
        assert_eq!(answer.header(credentials), None, "{other}");
    }
}
