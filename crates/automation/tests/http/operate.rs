//! Operator requests: schedules, breakers, and a reload of the configuration.

use serde_json::json;

use crate::world::{ALL, PATIENCE, World};

const ECHO: &str = r#"
case "$request" in *'"fail"'*) echo '{"status":"error","error":"broken","retry":false}'; exit 0 ;; esac
echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins:
  echo:
    schedules:
      - {id: hourly, every: 1h, payload: {from: clock}}
      - {id: often, every: 1h, command: work, payload: {do: fail}}
    circuit_breaker: {threshold: 1, reset_after: 1h}
webhooks: {listen: '127.0.0.1:0'}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schedule_is_paused_resumed_and_run_by_hand_du_072() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let found = async |id: &str| {
        let answer = world.get("/schedules").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let all = answer.json["schedules"].as_array().unwrap().clone();
        all.into_iter()
            .find(|schedule| schedule["schedule_id"] == id)
    };
    let began = std::time::Instant::now();
    // The first run is planned at the start, and its job ends soon.
    while found("hourly").await.unwrap()["last_success_at"].is_null() {
        assert!(began.elapsed() < PATIENCE);
    }
    let hourly = found("hourly").await.unwrap();
    assert_eq!(hourly["plugin"], "echo");
    assert_eq!(hourly["mode"], "every");
    assert_eq!(hourly["status"], "active");
    assert_eq!(hourly["next"].as_array().unwrap().len(), 5);
    let jobs = world.get("/scheduler/jobs").await.json;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2);

    let paused = world.post("/schedule/echo/hourly/pause", "").await;
    assert_eq!(paused.status, 200, "{paused:?}");
    assert_eq!(paused.json["status"], "paused_manual");
    let resumed = world.post("/schedule/echo/hourly/resume", "").await;
    assert_eq!(resumed.json["status"], "active");
    let run = world.post("/schedule/echo/hourly/run", "").await;
    assert_eq!(run.status, 200, "{run:?}");
    let job = world.ended(run.json["job_id"].as_str().unwrap()).await;
    assert_eq!(job["status"], "succeeded");
    for action in ["pause", "resume", "run"] {
        let path = format!("/schedule/echo/nobody/{action}");
        world.post(&path, "").await.is_refused(404);
        let path = format!("/schedule/echo/hourly/{action}");
        for token in ["job-writer", "plugin-writer", "system-reader"] {
            world
                .as_bearer(token, "POST", &path, "")
                .await
                .is_refused(403);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_is_looked_at_and_reset_du_078() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let path = "/breaker/echo?command=work";
    let began = std::time::Instant::now();
    while world.get(path).await.json["state"] != "open" {
        assert!(began.elapsed() < PATIENCE);
    }
    let health = crate::world::send(world.api, "GET", "/healthz", &[], b"").await;
    assert_eq!(health.json["plugins_circuit_open"], 1);
    let shown = world.get(path).await.json;
    assert_eq!(shown["failure_count"], 1);
    assert_eq!(shown["transitions"].as_array().unwrap().len(), 1);
    let denied = world.as_bearer("job-writer", "POST", "/breaker/echo/reset?command=work", "");
    denied.await.is_refused(403);
    let reset = world.post("/breaker/echo/reset?command=work", "").await;
    assert_eq!(reset.status, 200, "{reset:?}");
    assert_eq!(reset.json["state"], "closed");
    assert_eq!(
        world.get(path).await.json["transitions"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(world.get("/breaker/echo").await.json["command"], "poll");
    world
        .get("/breaker/echo?command=nothing")
        .await
        .is_refused(404);
    world.get("/breaker/nobody").await.is_refused(404);
    world
        .post("/breaker/nobody/reset", "")
        .await
        .is_refused(404);
    world.get("/breaker/echo?limit=0").await.is_refused(400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_takes_the_file_of_now_or_leaves_all_as_it_was_du_117() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let path = world.path("config.yaml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("system-reader", "renamed")).unwrap();
    let denied = world.as_bearer("system-reader", "POST", "/system/reload", "");
    denied.await.is_refused(403);
    let reloaded = world.post("/system/reload", "").await;
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    assert_eq!(reloaded.json["status"], "ok");
    assert_eq!(reloaded.json["removed"], json!([]));
    assert!(reloaded.json["reloaded_at"].is_string());
    let old = world.as_bearer("system-reader", "GET", "/plugins", "");
    old.await.is_refused(401);

    for broken in [
        good.replace("every: 1h", "every: never"),
        good.replace("listen: 127.0.0.1:0\n", "listen: 127.0.0.1:1\n"),
        "plugins: [".to_owned(),
    ] {
        std::fs::write(&path, broken).unwrap();
        world.post("/system/reload", "").await.is_refused(409);
        let still = world.as_bearer("renamed", "GET", "/plugins", "").await;
        assert_eq!(still.status, 200, "{still:?}");
    }
    assert_eq!(world.as_bearer(ALL, "GET", "/jobs", "").await.status, 200);
}
