//! Trees and logs of jobs with large output, in an order that is stable across all pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_engine::{Error, UnitOfWork};
use consign_kernel::command::NewIntent;
use consign_kernel::ids::DAY_US;
use consign_kernel::intent::Ties;
use consign_kernel::profile::ProfileId;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::world::{PATIENCE, World};

/// Much more than all entries of a response without their output.
const ANSWER_BYTES_MAX: usize = (8 << 20) + (1 << 20);
const LARGE_JOBS: usize = 120;
/// More than a list scans.
const CROWD: usize = 21_000;
const SOURCE: &str = r#"
event='{"type":"made","payload":{}}'
echo "{\"status\":\"ok\",\"result\":\"done\",\"events\":[$event,$event,$event,$event]}"
"#;
const LOUD: &str = r#"
text=$(head -c 3000000 /dev/zero | tr '\0' x)
echo "{\"status\":\"ok\",\"result\":\"$text\"}"
"#;
const WAITS: &str = r#"
case "$request" in *'"wait"'*) while [ ! -e "$here/go" ]; do sleep 0.02; done ;; esac
echo '{"status":"ok","result":"done"}'
"#;
const CONFIG: &str = "
plugins: {source: {}, loud: {}, waits: {}, single: {parallelism: 1}}
pipelines: [{name: line, on: start, steps: [{id: a, uses: source}, {id: b, uses: waits.work}]}]
routes: [{from: source, event_type: made, to: loud}]
webhooks: {listen: '127.0.0.1:0'}
";

async fn world() -> World {
    let plugins = [
        ("source", SOURCE),
        ("loud", LOUD),
        ("waits", WAITS),
        ("single", WAITS),
    ];
    World::start(&plugins, CONFIG).await
}

fn count(entries: &[Value], member: &str) -> usize {
    let has = |entry: &&Value| entry.get(member).is_some();
    entries.iter().filter(has).count()
}

/// A tree of five jobs, four of which print three megabytes each.
async fn loud_tree(world: &World) -> String {
    let id = world.begin("/plugin/source/work", "").await;
    world.ended(&id).await;
    for job in world
        .get(&format!("/job/{id}/tree"))
        .await
        .json
        .as_array()
        .unwrap()
    {
        world.ended(job["job_id"].as_str().unwrap()).await;
    }
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_printed_much_is_told_without_some_of_it_du_105() {
    let world = world().await;
    let id = loud_tree(&world).await;
    let answer = world.get(&format!("/job/{id}/tree")).await;
    assert!(
        answer.body.len() < ANSWER_BYTES_MAX,
        "{}",
        answer.body.len()
    );
    assert_eq!(answer.header("x-more"), None, "all jobs are there");
    let tree = answer.json.as_array().unwrap();
    let counts = (tree.len(), count(tree, "result"));
    assert_eq!(counts, (5, 3), "the source, and two of the loud ones");
    let mut light = tree.iter().filter(|job| job["output_left_out"] == true);
    let light = light.next().unwrap()["job_id"].as_str().unwrap();
    let whole = world.get(&format!("/job/{light}")).await.json;
    assert_eq!(whole["result"]["result"].as_str().unwrap().len(), 3_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_hold_much_come_without_some_of_it_and_page_by_page_du_105() {
    let world = world().await;
    loud_tree(&world).await;
    let answer = world.get("/job-logs?include_result=true").await;
    assert!(
        answer.body.len() < ANSWER_BYTES_MAX,
        "{}",
        answer.body.len()
    );
    let logs = answer.json["logs"].as_array().unwrap();
    assert_eq!((logs.len(), count(logs, "output_left_out")), (5, 2));
    assert_eq!(answer.json.get("more"), None);
    let all: Vec<&str> = logs
        .iter()
        .map(|log| log["log_id"].as_str().unwrap())
        .collect();
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/job-logs?limit=2{cursor}")).await.json;
        assert_eq!(page["total"], 5);
        for log in page["logs"].as_array().unwrap() {
            paged.push(log["log_id"].as_str().unwrap().to_owned());
        }
        assert!(paged.len() <= all.len(), "the cursor leads nowhere");
        if page["more"] != true {
            break;
        }
        cursor = format!("&cursor={}", page["cursor"].as_str().unwrap());
    }
    assert_eq!(paged, all);
    world.get("/job-logs?cursor=x").await.is_refused(400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_last_is_first_in_the_log_however_old_its_job_is_du_105() {
    let world = world().await;
    let payload = json!({"payload": {"do": "wait"}}).to_string();
    let old = world.begin("/plugin/waits/work", &payload).await;
    world.until(&old, &["running"]).await;
    let young = world.begin("/plugin/waits/work", "").await;
    world.ended(&young).await;
    std::fs::write(world.path("go"), "").unwrap();
    world.ended(&old).await;
    let logs = world.get("/job-logs?limit=1").await.json;
    assert_eq!(logs["logs"][0]["job_id"], old.as_str(), "{logs}");
}

/// The memory of this process, or its peak since the last `forget_peak`, in KiB.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_open_jobs_carry_is_not_read_to_list_or_count_them_du_105() {
    let world = world().await;
    // A running job, so that the others wait.
    let wait = json!({"payload": {"do": "wait"}}).to_string();
    let first = world.begin("/plugin/single/work", &wait).await;
    world.until(&first, &["running"]).await;
    let large = json!({"payload": {"do": "wait", "text": "x".repeat(900_000)}}).to_string();
    let mut made = vec![first];
    for _ in 0..LARGE_JOBS {
        made.push(world.begin("/plugin/single/work", &large).await);
    }
    let (before, mut listed) = (memory("VmRSS"), Vec::new());
    forget_peak();
    for path in [
        "/queue",
        "/jobs?limit=1000",
        "/analytics/queue",
        "/analytics/summary",
        "/scheduler/jobs",
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        listed.push(answer.json);
    }
    let grown = memory("VmHWM").saturating_sub(before);
    std::fs::write(world.path("go"), "").unwrap();
    assert!(grown < 40 << 10, "{grown} KiB for {LARGE_JOBS} jobs");
    let ids = |jobs: &Value| -> Vec<String> {
        let jobs = jobs["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["job_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&listed[0]), made, "oldest first");
    let mut newest_first = ids(&listed[1]);
    newest_first.reverse();
    assert_eq!(newest_first, made);
    assert_eq!(listed[2]["queue_depth"], LARGE_JOBS, "{}", listed[2]);
    let lane = &listed[2]["plugin_lanes"][0];
    assert_eq!(
        (&lane["queued"], &lane["running"]),
        (&json!(LARGE_JOBS), &json!(1))
    );
    assert_eq!(listed[2]["active_jobs"][0]["job_id"], made[0].as_str());
}

/// Jobs of a plugin that does not exist, which wait forever.
async fn crowd(world: &World, count: usize) {
    let job = NewIntent {
        profile: ProfileId::Automation,
        namespace: "automation".to_owned(),
        goal: "poll".to_owned(),
        owner: "automation".to_owned(),
        public: false,
        target: None,
        capability: Some("nobody".to_owned()),
        priority: 0,
        payload: r#"{"plugin":"nobody","command":"poll","submitted_by":"api"}"#.to_owned(),
        traceparent: None,
        delay_us: 0,
        ttl_us: DAY_US,
        attempts_max: 1,
        backoff_us: 0,
        once: None,
        ties: Ties::default(),
        unless: None,
    };
    for _ in 0..count / 1_000 {
        let mut unit = UnitOfWork::default();
        for _ in 0..10 {
            unit.admit(vec![job.clone(); 100]);
        }
        world.engine.commit(unit).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_younger_jobs_hides_neither_a_run_nor_what_waits_longest_du_085_du_105() {
    let world = world().await;
    let root = world.begin("/pipeline/line", "").await;
    let path = format!("/pipeline-run/{root}");
    let began = Instant::now();
    let run = loop {
        let run = world.get(&path).await.json;
        if run["steps"][1]["status"] == "succeeded" && run["status"] == "succeeded" {
            break run;
        }
        assert!(began.elapsed() < PATIENCE, "{run}");
    };
    let wait = json!({"payload": {"do": "wait"}}).to_string();
    let oldest = world.begin("/plugin/single/work", &wait).await;
    world.until(&oldest, &["running"]).await;
    crowd(&world, CROWD).await;
    let by_instance = format!("/pipeline-run/{}", run["instance_id"].as_str().unwrap());
    assert_eq!(world.get(&by_instance).await.json, run);
    assert_eq!(world.get(&path).await.json, run);
    let queue = world.get("/queue?limit=1").await.json;
    let figures = world.get("/analytics/queue").await.json;
    std::fs::write(world.path("go"), "").unwrap();
    assert_eq!(queue["jobs"][0]["job_id"], oldest.as_str());
    assert_eq!(figures["queue_depth"], CROWD, "{figures}");
    let lanes = figures["plugin_lanes"].as_array().unwrap().iter();
    let queued: Vec<&Value> = lanes.map(|lane| &lane["queued"]).collect();
    assert_eq!(queued, [&json!(CROWD), &json!(0)], "{figures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_reads_are_carried_out_on_other_threads_two_at_a_time() {
    let world = world().await;
    let thread = async || std::thread::current().id();
    let here = thread().await;
    let there = world
        .runtime
        .run_blocking(async move { Ok::<_, Error>(thread().await) });
    assert_ne!(there.await.unwrap(), here);
    let (begun, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let large = || {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        let read = async move {
            begun.add_permits(1);
            go.acquire().await.unwrap().forget();
            Ok::<_, Error>(())
        };
        let runtime = world.runtime.clone();
        tokio::spawn(async move { runtime.run_blocking(read).await })
    };
    let reads = [large(), large()];
    begun.acquire_many(2).await.unwrap().forget();
    let third = world.runtime.run_blocking(async { Ok::<_, Error>(()) });
    let third = tokio::time::timeout(Duration::from_millis(300), third).await;
    // Also if the test is about to fail: the world can be dropped only when no read waits in it.
    go.add_permits(reads.len());
    for read in reads {
        read.await.unwrap().unwrap();
    }
    assert!(third.is_err(), "a third one at the same time");
    let next = world.runtime.run_blocking(async { Ok::<_, Error>(()) });
    next.await.unwrap();
}
