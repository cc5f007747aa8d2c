//! The catalogue of plugins and pipelines, as it is described to users and programs.

use serde_json::json;

use crate::world::{SECRET, World};

const WORKER: &str = r#"echo '{"status":"ok","result":"done","state_updates":{"n":7}}'"#;
const CONFIG: &str = "
plugins:
  one: {config: {api_key: very-secret-value, url: 'http://x'}}
  two: {}
pipelines:
  - {name: line, on: start, steps: [{id: a, uses: one}, {id: b, uses: two, if: {path: payload.go, op: eq, value: yes}}, {id: c, uses: two.work}]}
webhooks: {listen: '127.0.0.1:0'}
";

async fn world() -> World {
    World::start(&[("one", WORKER), ("two", WORKER)], CONFIG).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_and_pipelines_are_described_du_098() {
    let world = world().await;
    let plugins = world.get("/plugins").await.json;
    assert_eq!(plugins["plugins"][0]["name"], "one");
    assert_eq!(plugins["plugins"][1]["version"], "1.2.3");
    assert_eq!(
        plugins["plugins"][0]["commands"],
        json!(["poll", "handle", "work"])
    );
    let sheet = world.get("/plugin/one").await.json;
    assert_eq!(sheet["protocol"], 2);
    assert_eq!(sheet["commands"][0]["type"], "read");
    assert!(sheet["commands"][2]["input_schema"].is_object());
    world.get("/plugin/nobody").await.is_refused(404);

    let skills = world.get("/skills").await.json;
    let skills = skills["skills"].as_array().unwrap();
    let named = |name: &str| skills.iter().find(|skill| skill["name"] == name).unwrap();
    assert_eq!(named("plugin.one.poll")["tier"], "READ");
    assert_eq!(
        named("plugin.one.work")["endpoint"],
        "POST /plugin/one/work"
    );
    assert_eq!(named("pipeline.line")["execution_mode"], "async");
    assert_eq!(named("pipeline.line")["timeout_secs"], 30);

    let whole = world.get("/openapi.json").await.json;
    assert_eq!(whole["openapi"], "3.1.0");
    let work = &whole["paths"]["/plugin/one/work"]["post"];
    assert_eq!(work["operationId"], "one__work");
    assert!(work["requestBody"].is_object());
    let poll = &whole["paths"]["/plugin/one/poll"]["post"];
    assert!(poll.get("requestBody").is_none());
    let own = world.get("/plugin/two/openapi.json").await.json;
    assert_eq!(own["paths"].as_object().unwrap().len(), 3);
    world
        .get("/plugin/nobody/openapi.json")
        .await
        .is_refused(404);
    let ai = world.get("/.well-known/ai-plugin.json").await.json;
    assert_eq!(ai["api"]["url"], "/openapi.json");

    let pipelines = world.get("/pipelines").await.json;
    assert_eq!(pipelines["pipelines"][0]["name"], "line");
    let line = world.get("/pipeline/line").await.json;
    assert_eq!(line["entries"], json!(["a"]));
    let steps = line["steps"].as_array().unwrap();
    let step = |id: &str| steps.iter().find(|step| step["id"] == id).unwrap();
    assert_eq!(step("a")["next"], json!(["b__switch"]));
    assert_eq!(step("b__switch")["next"], json!(["b"]));
    assert_eq!(step("b__switch")["otherwise"], json!(["c"]));
    assert!(step("b__switch")["condition"].is_string());
    world.get("/pipeline/nobody").await.is_refused(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_is_shown_without_its_secrets_du_025() {
    let world = world().await;
    let shown = world.get("/config/view").await;
    assert_eq!(shown.status, 200);
    for secret in ["very-secret-value", SECRET, crate::world::ALL, "job-reader"] {
        assert!(!shown.body.contains(secret), "{secret}");
    }
    assert_eq!(shown.json["plugins"]["one"]["config"]["url"], "http://x");
    assert_eq!(
        shown.json["compiled_routes"]["line"]["entries"],
        json!(["a"])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_shown_as_a_graph_with_its_jobs_du_085() {
    let world = world().await;
    let id = world.begin("/pipeline/line", "").await;
    let began = std::time::Instant::now();
    let run = loop {
        let run = world.get(&format!("/pipeline-run/{id}")).await;
        assert_eq!(run.status, 200, "{run:?}");
        let last = run.json["steps"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        if last["status"] == "succeeded" {
            break run.json;
        }
        assert!(began.elapsed() < crate::world::PATIENCE, "{run:?}");
    };
    assert_eq!(run["pipeline"], "line");
    assert_eq!(run["root_job_id"], id.as_str());
    assert_eq!(run["status"], "succeeded");
    let steps = run["steps"].as_array().unwrap();
    let states: Vec<(&str, &str)> = steps
        .iter()
        .map(|step| {
            (
                step["id"].as_str().unwrap(),
                step["status"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("a", "succeeded"),
        ("b__switch", "succeeded"),
        ("b", "not_reached"),
        ("c", "succeeded"),
    ];
    assert_eq!(states, expected);
    assert_eq!(steps[0]["jobs"][0]["job_id"], id.as_str());
    let by_instance = format!("/pipeline-run/{}", run["instance_id"].as_str().unwrap());
    assert_eq!(world.get(&by_instance).await.json, run);
    world.get("/pipeline-run/nonsense").await.is_refused(404);
    let alone = world.begin("/plugin/one/poll", "").await;
    world
        .get(&format!("/pipeline-run/{alone}"))
        .await
        .is_refused(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_and_the_state_of_the_service_are_shown_du_080() {
    let world = world().await;
    for _ in 0..3 {
        let id = world.begin("/plugin/one/work", "").await;
        assert_eq!(world.ended(&id).await["status"], "succeeded");
    }
    let facts = world.get("/facts/one?limit=2").await.json;
    let facts = facts["facts"].as_array().unwrap();
    assert_eq!(facts.len(), 2);
    assert_eq!(facts[0]["seq"], 3);
    assert_eq!(facts[0]["fact"], json!({"n": 7}));
    let none = world.get("/facts/one?fact_type=other").await.json;
    assert_eq!(none["facts"], json!([]));
    world.get("/facts/nobody").await.is_refused(404);
    world.get("/facts/one?limit=0").await.is_refused(400);
    let status = world.get("/system/status").await.json;
    assert_eq!(status["healthy"], true);
    assert_eq!(status["plugins"][0]["name"], "one");
    assert_eq!(status["plugins"][0]["breaker"], "closed");
    assert_eq!(status["plugins"][0]["last_run"]["status"], "succeeded");
    assert!(status["plugins"][0]["state_updated_at"].is_string());
    assert!(status["plugins"][1].get("last_run").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_is_gone_hides_no_other_s_last_run_du_124() {
    let world = world().await;
    let kept = world.begin("/plugin/one/poll", "").await;
    world.ended(&kept).await;
    let loaded = world.get("/system/status").await.json;
    let names = loaded["plugins"].as_array().unwrap().iter();
    let others: Vec<&str> = names
        .map(|plugin| plugin["name"].as_str().unwrap())
        .filter(|name| *name != "one")
        .collect();
    for other in &others {
        let id = world.begin(&format!("/plugin/{other}/poll"), "").await;
        world.ended(&id).await;
    }
    let text = std::fs::read_to_string(world.path("config.yaml")).unwrap();
    let (tokens, _) = text.split_once("\nplugins:").unwrap();
    let hooks = "webhooks: {listen: '127.0.0.1:0'}";
    let disabled = others
        .iter()
        .map(|name| format!(", {name}: {{enabled: false}}"));
    let disabled: String = disabled.collect();
    world.adopt_text(&format!(
        "{tokens}\nplugins: {{one: {{}}{disabled}}}\n{hooks}\n"
    ));
    let status = world.get("/system/status").await.json;
    assert_eq!(status["plugins"].as_array().unwrap().len(), 1, "{status}");
    let last = &status["plugins"][0]["last_run"];
    assert_eq!(last["job_id"], kept.as_str(), "{status}");
}
