//! Jobs in all their states, their trees, lists and logs, and the operator commands on them.

use consign_kernel::command::{Command, Purge};
use consign_kernel::ids::Seq;
use consign_kernel::profile::Face;
use serde_json::json;

use crate::world::World;

const WORKER: &str = r#"
case "$request" in
  *'"wait"'*) touch "$here/begun"; while [ ! -e "$here/go" ]; do sleep 0.02; done ;;
  *'"fail"'*) echo 'it says why' >&2; echo '{"status":"error","error":"Broken Pipe","retry":false}'; exit 0 ;;
  *'"again"'*) echo '{"status":"error","error":"not yet"}'; exit 0 ;;
esac
echo '{"status":"ok","result":"done","state_updates":{"seen":1},"events":[{"type":"made","payload":{"n":1}}]}'
"#;
const CONFIG: &str = "
plugins:
  one: {retry: {max_attempts: 2, backoff_base: 30s}}
  two: {}
  three: {timeouts: {work: 300ms}, retry: {max_attempts: 1}}
routes: [{from: one, event_type: made, to: two}]
webhooks: {listen: '127.0.0.1:0'}
";

async fn world() -> World {
    let plugins = [("one", WORKER), ("two", WORKER), ("three", WORKER)];
    World::start(&plugins, CONFIG).await
}

fn payload(word: &str) -> String {
    json!({"payload": {"do": word}}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_shown_in_all_its_states_du_104() {
    let world = world().await;
    let running = world.begin("/plugin/two/work", &payload("wait")).await;
    let shown = world.until(&running, &["running"]).await;
    assert!(shown["started_at"].is_string(), "{shown}");
    assert!(shown.get("completed_at").is_none() && shown.get("result").is_none());
    assert_eq!(shown["attempt"], 1);

    let failed = world.begin("/plugin/one/work", &payload("fail")).await;
    let shown = world.ended(&failed).await;
    assert_eq!(shown["status"], "failed");
    assert_eq!(shown["last_error"], "Broken Pipe");
    assert_eq!(shown["result"]["error"], "Broken Pipe");

    let again = world.begin("/plugin/one/work", &payload("again")).await;
    let began = std::time::Instant::now();
    let shown = loop {
        let shown = world.until(&again, &["queued"]).await;
        if shown["attempt"] == 2 {
            break shown;
        }
        assert!(began.elapsed() < crate::world::PATIENCE);
    };
    assert!(shown["next_retry_at"].is_string(), "{shown}");
    assert_eq!(shown["last_error"], "not yet");
    assert!(shown.get("completed_at").is_none());

    // No attempts are left; the outcome of the last one is in the log.
    let slow = world.begin("/plugin/three/work", &payload("wait")).await;
    let shown = world.ended(&slow).await;
    assert_eq!(shown["status"], "dead");
    assert!(shown["completed_at"].is_string() && shown["last_error"].is_string());
    let log = world.get(&format!("/job-logs?job_id={slow}")).await.json;
    assert_eq!(log["logs"][0]["status"], "timed_out");

    std::fs::write(world.path("go"), "").unwrap();
    let shown = world.ended(&running).await;
    assert_eq!(shown["status"], "succeeded");
    assert_eq!(shown["result"]["result"], "done");
    assert_eq!(shown["job_id"], running.as_str());
    assert_eq!(shown["plugin"], "two");
    assert_eq!(shown["command"], "work");
    assert_eq!(shown["submitted_by"], "api");
    for instant in ["created_at", "started_at", "completed_at"] {
        let at = shown[instant].as_str().unwrap();
        assert!(at.parse::<jiff::Timestamp>().is_ok(), "{at}");
    }
    let bare = running.replace('-', "");
    assert_eq!(world.get(&format!("/job/{bare}")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_pruned_is_told_from_its_log_du_104() {
    let world = world().await;
    let id = world.begin("/plugin/one/work", "").await;
    let shown = world.ended(&id).await;
    let purge = Command::Purge(Purge {
        face: Face::Automation,
        namespace: None,
        after: Seq(0),
        limit: 1_000,
    });
    world.engine.apply(None, purge).await.unwrap();
    assert_eq!(world.get("/jobs").await.json["total"], 0);
    let kept = world.get(&format!("/job/{id}")).await;
    assert_eq!(kept.status, 200, "{kept:?}");
    for member in [
        "job_id",
        "status",
        "result",
        "attempt",
        "created_at",
        "submitted_by",
    ] {
        assert_eq!(kept.json[member], shown[member], "{member}");
    }
    let tree = world.get(&format!("/job/{id}/tree")).await;
    assert_eq!(tree.json[0]["job_id"], id.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tree_of_a_job_holds_what_it_brought_about_du_105() {
    let world = world().await;
    let id = world.begin("/plugin/one/work", "").await;
    world.ended(&id).await;
    let tree = world.get(&format!("/job/{id}/tree")).await;
    let tree = tree.json.as_array().unwrap().clone();
    assert_eq!(tree.len(), 2);
    assert_eq!(tree[0]["job_id"], id.as_str());
    assert!(tree[0].get("parent_job_id").is_none());
    assert_eq!(tree[1]["parent_job_id"], id.as_str());
    assert_eq!(tree[1]["plugin"], "two");
    assert_eq!(tree[1]["submitted_by"], "route");
    let nobody = "/job/00000000-0000-7000-8000-000000000000/tree";
    world.get(nobody).await.is_refused(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_logs_are_filtered_and_odd_filters_refused_du_105() {
    let world = world().await;
    let good = world.begin("/plugin/two/work", "").await;
    world.ended(&good).await;
    let bad = world.begin("/plugin/two/poll", &payload("fail")).await;
    world.ended(&bad).await;
    let listed = async |query: &str| {
        let answer = world.get(&format!("/jobs?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let jobs = answer.json["jobs"].as_array().unwrap().clone();
        let ids: Vec<String> = jobs
            .iter()
            .map(|job| job["job_id"].as_str().unwrap().to_owned())
            .collect();
        (ids, answer.json["total"].as_u64().unwrap())
    };
    assert_eq!(listed("").await, (vec![bad.clone(), good.clone()], 2));
    assert_eq!(listed("limit=1").await, (vec![bad.clone()], 2));
    assert_eq!(listed("status=ok").await, (vec![good.clone()], 1));
    assert_eq!(listed("status=failed").await, (vec![bad.clone()], 1));
    assert_eq!(listed("status=timed_out").await, (vec![], 0));
    assert_eq!(
        listed("command=poll&plugin=two").await,
        (vec![bad.clone()], 1)
    );
    assert_eq!(listed("plugin=one").await, (vec![], 0));

    let logged = async |query: &str| {
        let answer = world.get(&format!("/job-logs?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json["logs"].as_array().unwrap().clone()
    };
    let all = logged("").await;
    assert_eq!(all.len(), 2);
    assert_eq!(all[0]["job_id"], bad.as_str());
    assert_eq!(all[0]["log_id"], format!("{bad}-1"));
    assert_eq!(all[0]["status"], "failed");
    assert_eq!(all[0]["last_error"], "Broken Pipe");
    assert!(all[0]["stderr"].as_str().unwrap().contains("it says why"));
    assert!(all[0].get("result").is_none());
    let with_result = logged("include_result=true&status=succeeded").await;
    assert_eq!(with_result[0]["result"]["result"], "done");
    let at = all[1]["completed_at"].as_str().unwrap();
    for (query, count) in [
        (format!("job_id={good}"), 1),
        ("plugin=two&command=work".to_owned(), 1),
        ("status=error".to_owned(), 1),
        ("submitted_by=api".to_owned(), 2),
        ("submitted_by=webhook".to_owned(), 0),
        ("submitted_by=intent".to_owned(), 0),
        ("query=bROKEN".to_owned(), 1),
        ("query=nowhere".to_owned(), 0),
        (format!("to={at}"), 1),
        (format!("from={at}"), 2),
        ("from=2099-01-01T00:00:00Z".to_owned(), 0),
        ("limit=1".to_owned(), 1),
    ] {
        assert_eq!(logged(&query).await.len(), count, "{query}");
    }
    for path in [
        "/jobs?limit=0",
        "/jobs?limit=-1",
        "/jobs?limit=x",
        "/jobs?limit=1001",
        "/jobs?status=completed",
        "/job-logs?limit=0",
        "/job-logs?limit=201",
        "/job-logs?limit=99999999999999999999",
        "/job-logs?status=weird",
        "/job-logs?from=yesterday",
        "/job-logs?from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z",
        "/job-logs?job_id=nonsense",
        "/job-logs?submitted_by=me",
        "/job-logs?include_result=perhaps",
        "/job-logs?query=%ff",
        "/queue?limit=0",
    ] {
        let answer = world.get(path).await;
        if path.ends_with("%ff") {
            assert!(
                answer.status == 400 || answer.json["total"] == 0,
                "{answer:?}"
            );
        } else {
            answer.is_refused(400);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_cancelled_where_it_runs_and_started_again_du_105() {
    let world = world().await;
    let first = world.begin("/plugin/two/work", &payload("wait")).await;
    world.until(&first, &["running"]).await;
    let second = world.begin("/plugin/one/work", &payload("again")).await;
    let queue = world.get("/queue").await;
    let jobs = queue.json["jobs"].as_array().unwrap();
    assert_eq!(jobs[0]["job_id"], first.as_str());
    assert_eq!(jobs[0]["status"], "running");
    assert_eq!(jobs[1]["job_id"], second.as_str());
    let figures = world.get("/analytics/queue").await.json;
    assert_eq!(
        figures["running_count"].as_u64().unwrap() + figures["queue_depth"].as_u64().unwrap(),
        2
    );

    let cancel = format!("/job/{first}/cancel");
    world.post(&cancel, "[]").await.is_refused(400);
    let cancelled = world.post(&cancel, r#"{"reason":"not wanted"}"#).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    assert_eq!(cancelled.json, json!({"job_id": first, "status": "dead"}));
    let again = world.post(&cancel, "").await;
    again.is_refused(409);
    let said = again.json["error"].as_str().unwrap();
    assert!(
        said.starts_with("the job is dead; only one that is queued"),
        "{said}"
    );
    let shown = world.ended(&first).await;
    assert!(shown["last_error"].as_str().unwrap().contains("not wanted"));

    std::fs::write(world.path("go"), "").unwrap();
    let retry = format!("/job/{first}/retry");
    let retried = world.post(&retry, "").await;
    assert_eq!(retried.status, 200, "{retried:?}");
    assert_eq!(world.ended(&first).await["status"], "succeeded");
    world.post(&retry, "").await.is_refused(409);
    let nobody = "/job/00000000-0000-7000-8000-000000000000/retry";
    world.post(nobody, "").await.is_refused(404);
    let summary = world.get("/analytics/summary").await.json;
    assert_eq!(summary["window"], "24h");
    assert_eq!(summary["stats"]["succeeded"], 1);
}
