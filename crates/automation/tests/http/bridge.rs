//! Callers that wait for the outcome of a pipeline.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::world::{ALL, World};

const STEP: &str = r#"
case "$request" in
  *'"wait"'*) while [ ! -e "$here/go" ]; do sleep 0.02; done ;;
  *'"fail"'*) echo '{"status":"error","error":"broken","retry":false}'; exit 0 ;;
esac
echo '{"status":"ok","result":"'"$(basename "$(dirname "$0")")"'"}'
"#;
const CONFIG: &str = "
plugins: {one: {}, two: {}, three: {}}
pipelines:
  - {name: line, on: a, execution_mode: synchronous, timeout: 15s, steps: [{uses: one}, {uses: two}, {uses: three, if: {path: payload.more, op: eq, value: yes}}]}
  - {name: short, on: b, execution_mode: synchronous, timeout: 300ms, steps: [{uses: one}]}
  - {name: wide, on: c, execution_mode: synchronous, steps: [{split: [{uses: one}, {uses: two}]}]}
  - {name: heavy, on: d, execution_mode: synchronous, steps: [{uses: one, baggage: {all: payload.text}}]}
webhooks: {listen: '127.0.0.1:0'}
";

async fn world() -> World {
    let plugins = [("one", STEP), ("two", STEP), ("three", STEP)];
    World::start(&plugins, CONFIG).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_tree_is_waited_for_du_100() {
    let world = world().await;
    let answer = world.post("/pipeline/line", r#"{"payload":{"a":1}}"#).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let whole = &answer.json;
    assert_eq!(whole["status"], "succeeded");
    assert!(whole["duration_ms"].is_u64());
    let tree = whole["tree"].as_array().unwrap();
    assert_eq!(tree[0]["job_id"], whole["job_id"]);
    let plugins: Vec<&str> = tree
        .iter()
        .map(|job| job["plugin"].as_str().unwrap())
        .collect();
    assert_eq!(plugins, ["one", "two", "core.switch"]);
    assert!(tree.iter().all(|job| job["status"] == "succeeded"));
    assert_eq!(tree[1]["parent_job_id"], tree[0]["job_id"]);
    assert_eq!(whole["result"]["result"], "two", "the last step that ran");

    let forced = world.post("/pipeline/line?async=true", "").await;
    assert_eq!(forced.status, 202);
    assert_eq!(forced.json["status"], "queued");
    assert_eq!(forced.json["plugin"], "pipeline");
    assert_eq!(forced.json["command"], "line");
    world
        .post("/pipeline/line?async=perhaps", "")
        .await
        .is_refused(400);

    let failed = world
        .post("/pipeline/line", r#"{"payload":{"do":"fail"}}"#)
        .await;
    assert_eq!(failed.status, 200);
    assert_eq!(failed.json["status"], "failed");
    assert_eq!(failed.json["tree"][0]["last_error"], "broken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_waited_long_enough_gets_a_promise_and_the_work_goes_on_du_101() {
    let world = world().await;
    let answer = world
        .post("/pipeline/short", r#"{"payload":{"do":"wait"}}"#)
        .await;
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.json["timeout_exceeded"], true);
    assert_eq!(answer.json["status"], "running");
    std::fs::write(world.path("go"), "").unwrap();
    let id = answer.json["job_id"].as_str().unwrap();
    assert_eq!(world.ended(id).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_longer_than_the_service_allows_du_101() {
    let world = world().await;
    let text = std::fs::read_to_string(world.path("config.yaml")).unwrap();
    world.adopt_text(&text.replace("max_sync_timeout: 20s", "max_sync_timeout: 200ms"));
    let began = std::time::Instant::now();
    // The pipeline itself would wait for fifteen seconds.
    let answer = world
        .post("/pipeline/line", r#"{"payload":{"do":"wait"}}"#)
        .await;
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.json["timeout_exceeded"], true);
    std::fs::write(world.path("go"), "").unwrap();
    let id = answer.json["job_id"].as_str().unwrap();
    assert_eq!(world.ended(id).await["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_may_wait_and_who_is_turned_away_has_started_nothing_du_102() {
    let world = world().await;
    let body = r#"{"payload":{"do":"wait"}}"#;
    let first = world.post("/pipeline/line", body);
    let second = async {
        // A client that disconnects releases its slot.
        let mut stream = TcpStream::connect(world.api).await.unwrap();
        let head = format!(
            "POST /pipeline/line HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {ALL}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let third = async {
        let stream = second.await;
        let two_wait = async {
            while world.get("/jobs").await.json["total"] != 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        two_wait.await;
        world.post("/pipeline/line", body).await.is_refused(503);
        assert_eq!(world.get("/jobs").await.json["total"], 2);
        drop(stream);
        let began = std::time::Instant::now();
        while world.runtime.wait_permit().is_none() {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "its place is lost"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::write(world.path("go"), "").unwrap();
    };
    let (answer, ()) = tokio::join!(first, third);
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_with_two_beginnings_cannot_be_waited_for_du_103() {
    let world = world().await;
    world.post("/pipeline/wide", "").await.is_refused(400);
    assert_eq!(world.get("/jobs").await.json["total"], 0);
    let answer = world.post("/pipeline/wide?async=true", "").await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.json["job_ids"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_baggage_is_refused_with_its_size_du_107() {
    let world = world().await;
    for path in ["/pipeline/heavy", "/pipeline/heavy?async=true"] {
        let body = json!({"payload": {"text": "x".repeat(1 << 20)}}).to_string();
        let answer = world.post(path, &body).await;
        answer.is_refused(413);
        let actual = answer.json["bytes_actual"].as_u64().unwrap();
        assert!(actual > 1 << 20, "{answer:?}");
        assert_eq!(answer.json["bytes_limit"], 1 << 20);
        assert_eq!(answer.json.as_object().unwrap().len(), 3);
    }
    world.post("/pipeline/heavy", "").await.is_refused(400);
    assert_eq!(world.get("/jobs").await.json["total"], 0);
    let whole = world
        .post("/pipeline/heavy", r#"{"payload":{"text":"x"}}"#)
        .await;
    assert_eq!(whole.status, 200, "{whole:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_let_go_when_the_server_ends_du_101() {
    let world = world().await;
    let waiting = world.post("/pipeline/line", r#"{"payload":{"do":"wait"}}"#);
    let ending = async {
        while world.runtime.running() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.draining.send_replace(true);
    };
    let (answer, ()) = tokio::join!(waiting, ending);
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(answer.json["timeout_exceeded"], true);
    std::fs::write(world.path("go"), "").unwrap();
}
