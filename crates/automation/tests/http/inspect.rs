//! The full report of one job, and the lists of checks.

use consign_kernel::command::{Command, Purge};
use consign_kernel::ids::Seq;
use consign_kernel::profile::Face;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World};

const STEP: &str = r#"
case "$request" in
  *'"again"'*) if [ ! -e "$here/tried" ]; then touch "$here/tried"; echo '{"status":"error","error":"not yet"}'; exit 0; fi ;;
  *'"wait"'*) while [ ! -e "$here/go" ]; do sleep 0.02; done ;;
  *'"fail"'*) echo '{"status":"error","error":"broken","retry":false}'; exit 0 ;;
esac
echo '{"status":"ok","result":"done","events":[{"type":"next","payload":{"name":"ada"}}]}'"#;
const CONFIG: &str = "
plugins:
  one: {}
  two: {retry: {max_attempts: 2, backoff_base: 10ms}, config: {mode: again}}
pipelines:
  - name: line
    on: start
    steps:
      - {id: a, uses: one, baggage: {origin.name: payload.name}}
      - {id: b, uses: two, baggage: {second: payload.name}}
webhooks: {listen: '127.0.0.1:0'}
";

async fn world() -> World {
    World::start(&[("one", STEP), ("two", STEP)], CONFIG).await
}

/// The last job of a run of `line`, which needed a second attempt.
async fn ran(world: &World) -> (String, Value) {
    let root = world
        .begin("/pipeline/line", r#"{"payload":{"name":"ada"}}"#)
        .await;
    let began = std::time::Instant::now();
    loop {
        let tree = world.get(&format!("/job/{root}/tree")).await.json;
        if tree[1]["status"] == "succeeded" {
            return (root, tree[1]["job_id"].clone());
        }
        assert!(began.elapsed() < PATIENCE, "{tree}");
    }
}

fn column<'v>(list: &'v Value, key: &str) -> Vec<&'v str> {
    let rows = list.as_array().unwrap().iter();
    rows.map(|row| row[key].as_str().unwrap_or_default())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_tells_its_lineage_its_baggage_its_moves_and_its_attempts_du_104() {
    let world = world().await;
    let (root, last) = ran(&world).await;
    let last = last.as_str().unwrap();
    let answer = world.get(&format!("/job/{last}/inspect")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let whole = answer.json;
    assert_eq!(whole["job"]["job_id"], last);
    assert_eq!(column(&whole["lineage"], "job_id"), [root.as_str(), last]);
    assert_eq!(column(&whole["lineage"], "step_id"), ["a", "b"]);

    let contexts = whole["contexts"].as_array().unwrap();
    assert_eq!(column(&whole["contexts"], "step_id"), ["a", "b"]);
    assert_eq!(contexts[0]["hop"], 0);
    assert_eq!(contexts[0]["pipeline"], "line");
    assert_eq!(contexts[0]["baggage"]["origin"], json!({"name": "ada"}));
    assert!(contexts[0]["baggage"].get("second").is_none());
    assert_eq!(contexts[1]["baggage"]["origin"], json!({"name": "ada"}));
    assert_eq!(contexts[1]["baggage"]["second"], "ada");
    assert_eq!(contexts[1]["parent_id"], contexts[0]["context_id"]);

    let moves = [
        "queued",
        "running",
        "failed",
        "queued",
        "running",
        "succeeded",
    ];
    assert_eq!(column(&whole["transitions"], "to"), moves);
    assert!(whole["transitions"][0].get("from").is_none());
    assert_eq!(column(&whole["transitions"], "from")[1..], moves[..5]);
    let attempts = &whole["attempts"];
    assert_eq!(column(attempts, "status"), ["failed", "succeeded"]);
    assert_eq!(attempts[0]["last_error"], "not yet");
    assert_eq!(attempts[1]["result"]["result"], "done");

    let nobody = "/job/00000000-0000-7000-8000-000000000000/inspect";
    world.get(nobody).await.is_refused(404);
    world.get("/job/nonsense/inspect").await.is_refused(404);
    let path = format!("/job/{last}/inspect");
    let stranger = world.as_bearer("plugin-writer", "GET", &path, "").await;
    stranger.is_refused(403);
    let reader = world.as_bearer("job-reader", "GET", &path, "").await;
    assert_eq!(reader.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_job_that_was_pruned_the_log_is_told_du_104() {
    let world = world().await;
    let (root, last) = ran(&world).await;
    let purge = Command::Purge(Purge {
        face: Face::Automation,
        namespace: None,
        after: Seq(0),
        limit: 1_000,
    });
    world.engine.apply(None, purge).await.unwrap();
    let path = format!("/job/{}/inspect", last.as_str().unwrap());
    let whole = world.get(&path).await.json;
    assert_eq!(whole["lineage"][0]["job_id"], root.as_str());
    assert_eq!(whole["transitions"], json!([]));
    assert_eq!(
        column(&whole["attempts"], "status"),
        ["failed", "succeeded"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_say_what_needs_a_hand_du_098() {
    let schedules = "{schedules: [{id: stuck, every: 1h, payload: {do: wait}}, {id: often, every: 1h, command: work, payload: {do: fail}}], circuit_breaker: {threshold: 1, reset_after: 1h}}";
    let config = CONFIG.replace("one: {}", &format!("one: {schedules}"));
    let world = World::start(&[("one", STEP), ("two", STEP)], &config).await;
    let began = std::time::Instant::now();
    while world.get("/breaker/one?command=work").await.json["state"] != "open" {
        assert!(began.elapsed() < PATIENCE);
    }
    let found = |list: &Value, name: &str| {
        let list = list["checks"].as_array().unwrap().clone();
        let found = list.into_iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let doctor = world.get("/system/doctor").await.json;
    assert_eq!(doctor["healthy"], false, "{doctor}");
    assert_eq!(found(&doctor, "config")["ok"], true);
    assert_eq!(found(&doctor, "plugin two")["ok"], true);
    let one = found(&doctor, "plugin one");
    assert_eq!(one["ok"], false);
    assert_eq!(one["detail"], "its breaker is open");
    assert_eq!(found(&doctor, "schedule one stuck")["ok"], true);
    let status = world.get("/system/status").await.json;
    assert_eq!(status["healthy"], false, "{status}");
    assert_eq!(found(&status, "plugin one"), one);
    let schedule = world.get("/schedule/one/often").await.json;
    let next = schedule["next_run_at"].as_str().unwrap();
    let ahead = next.parse::<jiff::Timestamp>().unwrap() - jiff::Timestamp::now();
    assert!(ahead.get_seconds() > 1_800, "{schedule}");
    assert_eq!(schedule["next"][0], schedule["next_run_at"]);
    // Otherwise it would run again and open the breaker again.
    world.post("/schedule/one/often/pause", "").await;
    world.post("/breaker/one/reset?command=work", "").await;
    assert_eq!(world.get("/system/doctor").await.json["healthy"], true);
    std::fs::write(world.path("config.yaml"), "plugins: [").unwrap();
    let doctor = world.get("/system/doctor").await.json;
    assert_eq!(found(&doctor, "config")["ok"], false);

    let selfcheck = world.get("/system/selfcheck").await.json;
    assert_eq!(selfcheck["healthy"], true, "{selfcheck}");
    for name in ["seal_key", "readable_jobs", "ended_jobs"] {
        assert_eq!(found(&selfcheck, name)["ok"], true);
    }
    for path in ["/system/doctor", "/system/selfcheck"] {
        let reader = world.as_bearer("system-reader", "GET", path, "").await;
        assert_eq!(reader.status, 200);
        let other = world.as_bearer("job-writer", "GET", path, "").await;
        other.is_refused(403);
    }

    let jobs = world.get("/scheduler/jobs").await.json;
    assert_eq!(column(&jobs["jobs"], "schedule_id"), ["stuck", "often"]);
    assert_eq!(jobs["jobs"][1]["in_flight"], json!([]));
    let open = jobs["jobs"][0]["in_flight"][0].as_str().unwrap().to_owned();
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(world.ended(&open).await["status"], "succeeded");
}
