//! Events, routes and pipelines through real plugins.

use consign_automation::runtime::{Job, SubmittedBy};
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::world::{World, run};

/// Appends its input, and responds with an event.
const STEP: &str = "
with open(here + '/trace', 'a') as trace:
    trace.write(json.dumps({'plugin': request['context'].get('ductile_plugin'), 'payload': (request.get('event') or {}).get('payload'),
        'context': request['context'], 'event': request.get('event')}) + '\\n')
ok(events=[{'type': request['context']['ductile_plugin'] + '.done', 'payload': {'n': ((request.get('event') or {}).get('payload') or {}).get('n', 0) + 1}}])";

fn trace(world: &World) -> Vec<Value> {
    let text = world.read("trace");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_follows_its_routes_du_083_du_084_du_036() {
    let world = World::new();
    for name in ["source", "left", "right"] {
        world.python(name, "", STEP);
    }
    let config = "plugins: {source: {}, left: {}, right: {}}\nroutes:\n  - {from: source, event_type: source.done, to: left}\n  \
                  - {from: source, event_type: source.done, to: right}\n  - {from: source, event_type: other, to: left}\n";
    let runtime = world.start(config).await;
    let id = run(&runtime, "source", "poll", Value::Null).await;
    let tree = world.tree(id).await;
    let mut plugins: Vec<&str> = tree.iter().map(|(job, _)| job.plugin.as_str()).collect();
    plugins.sort_unstable();
    assert_eq!(plugins, ["left", "right", "source"]);
    for (job, intent) in &tree[1..] {
        assert_eq!(job.submitted_by, SubmittedBy::Route);
        assert_eq!(intent.ties.parent, Some(id));
        assert!(job.source_event_id.is_some());
        assert_eq!(job.payload["source"], "source");
        assert_eq!(job.payload["type"], "source.done");
        assert_eq!(
            job.payload["event_id"],
            job.source_event_id.clone().unwrap()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_is_cut_at_the_number_of_jobs_that_is_wanted_du_105() {
    let world = World::new();
    world.python("source", "", "ok(events=[{'type': 'e'}] * 4)");
    world.python("leaf", "", "ok()");
    let config =
        "plugins: {source: {}, leaf: {}}\nroutes: [{from: source, event_type: e, to: leaf}]";
    let runtime = world.start(config).await;
    let id = run(&runtime, "source", "poll", Value::Null).await;
    world.tree(id).await;
    for (jobs_max, shown, more) in [(1, 1, true), (4, 4, true), (5, 5, false), (9, 5, false)] {
        let tree = runtime.job_tree(id, jobs_max).await.unwrap().unwrap();
        assert_eq!((tree.jobs.len(), tree.more), (shown, more), "{jobs_max}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_routed_job_inherits_the_key_and_source_time_and_id_are_the_cores_du_084_du_036() {
    let world = World::new();
    let body = "ok(events=[{'type': 'e', 'payload': {'n': 1}, 'dedupe_key': 'k', 'source': 'liar', 'event_id': 'mine', 'timestamp': '1999-01-01T00:00:00Z'}])";
    world.python("source", "", body);
    world.python("left", "", STEP);
    world.python("right", "", STEP);
    let config = "plugins: {source: {}, left: {}, right: {}}\nroutes:\n  - {from: source, event_type: e, to: left}\n  \
                  - {from: source, event_type: e, to: right}\n";
    let runtime = world.start(config).await;
    let before = jiff::Timestamp::now();
    let id = run(&runtime, "source", "poll", Value::Null).await;
    let tree = world.tree(id).await;
    assert_eq!(tree.len(), 3, "one key, two targets");
    for (job, _) in &tree[1..] {
        assert_eq!(job.dedupe_key.as_deref(), Some("k"));
    }
    let ids: Vec<_> = tree[1..]
        .iter()
        .map(|(job, _)| &job.source_event_id)
        .collect();
    assert_eq!(ids[0], ids[1], "one event");
    for event in trace(&world).iter().map(|line| &line["event"]) {
        assert_eq!(
            (&event["type"], &event["source"]),
            (&"e".into(), &"source".into())
        );
        assert_eq!(event["dedupe_key"], "k");
        assert_eq!(event["event_id"].as_str(), ids[0].as_deref());
        let at: jiff::Timestamp = event["timestamp"].as_str().unwrap().parse().unwrap();
        assert!(before <= at && at <= jiff::Timestamp::now(), "{at}");
    }
    // The same event again: both targets are duplicates.
    let again = run(&runtime, "source", "poll", Value::Null).await;
    assert_eq!(world.tree(again).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_follow_each_other_with_their_baggage_du_085_du_093_du_094() {
    let world = World::new();
    for name in ["one", "two", "three"] {
        world.python(name, "", STEP);
    }
    let config = "
plugins: {one: {}, two: {}, three: {}}
pipelines:
  - name: count
    on: start
    steps:
      - {id: a, uses: one, baggage: {origin.name: payload.name}}
      - {id: b, uses: two, if: {path: payload.n, op: gte, value: 1}}
      - {id: c, uses: three, with: {greeting: 'hi {context.origin.name}'}}
";
    let runtime = world.start(config).await;
    let started = runtime
        .run_pipeline("count", json!({"name": "ada", "n": 0}), SubmittedBy::Api)
        .await
        .unwrap();
    let tree = world.tree(started[0].id).await;
    let plugins: Vec<&str> = tree.iter().map(|(job, _)| job.plugin.as_str()).collect();
    assert_eq!(plugins, ["one", "core.switch", "two", "three"]);
    assert!(tree.iter().all(|(_, intent)| intent.state == State::Acked));
    let traced = trace(&world);
    assert_eq!(traced[2]["payload"]["greeting"], "hi ada");
    assert_eq!(traced[2]["payload"]["n"], 2);
    assert_eq!(traced[2]["context"]["origin"], json!({"name": "ada"}));
    assert_eq!(traced[1]["context"]["ductile_step_id"], "b");
    assert_eq!(traced[1]["payload"]["origin"], json!({"name": "ada"}));
    assert_eq!(traced[1]["payload"]["n"], 1, "the step before gave it");
    assert_eq!(traced[1]["payload"]["ductile_upstream_plugin"], "one");
    let instances: Vec<_> = tree
        .iter()
        .map(|(job, _)| job.instance_id.clone())
        .collect();
    assert!(
        instances
            .iter()
            .all(|id| id.is_some() && *id == instances[0])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_leads_back_to_its_plugin_ends_du_096() {
    let world = World::new();
    world.python("loop", "", STEP);
    let config = "plugins: {loop: {}}\nroutes: [{from: loop, event_type: loop.done, to: loop}]";
    let runtime = world.start(config).await;
    let id = run(&runtime, "loop", "poll", Value::Null).await;
    let tree = world.tree(id).await;
    assert_eq!(tree.len(), 21, "the first one and twenty hops");
    assert!(tree.iter().all(|(_, intent)| intent.state == State::Acked));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_source_of_baggage_fails_the_job_that_made_the_event_du_093() {
    let world = World::new();
    world.python("one", "", STEP);
    world.python("two", "", STEP);
    let config = "
plugins: {one: {}, two: {}}
pipelines:
  - name: broken
    on: start
    steps:
      - {uses: one}
      - {uses: two, baggage: {who: payload.nobody}}
";
    let runtime = world.start(config).await;
    let started = runtime
        .run_pipeline("broken", json!({}), SubmittedBy::Api)
        .await
        .unwrap();
    let tree = world.tree(started[0].id).await;
    assert_eq!(tree.len(), 1);
    assert_eq!(tree[0].1.state, State::Failed);
    assert!(tree[0].1.last_error.as_deref().unwrap().contains("nobody"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_hears_how_a_job_ended_du_097() {
    let world = World::new();
    world.plugin(
        "bad",
        r#"echo '{"status":"error","error":"broken","retry":false}'"#,
    );
    world.python("alarm", "", STEP);
    let config = "
plugins: {bad: {notify_on_complete: true}, alarm: {}}
pipelines: [{name: alarm, on-hook: job.failed, steps: [{uses: alarm}]}]
";
    let runtime = world.start(config).await;
    let id = run(&runtime, "bad", "poll", Value::Null).await;
    let tree = world.tree(id).await;
    assert_eq!(tree.len(), 2);
    assert_eq!(tree[1].0.submitted_by, SubmittedBy::Hook);
    assert_eq!(trace(&world)[0]["payload"]["error"], "broken");
    assert_eq!(trace(&world)[0]["payload"]["plugin"], "bad");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_are_asked_for_and_a_chain_of_them_ends_also_through_events_du_097() {
    let world = World::new();
    for name in ["asks", "silent", "alarm"] {
        world.python(name, "", STEP);
    }
    let config = "
service: {hook_max_depth: 2}
plugins: {asks: {notify_on_complete: true}, silent: {}, alarm: {}}
pipelines: [{name: heard, on-hook: job.completed, steps: [{uses: alarm}]}]
routes: [{from: alarm, event_type: alarm.done, to: asks}]
";
    let runtime = world.start(config).await;
    let id = run(&runtime, "silent", "poll", Value::Null).await;
    assert_eq!(world.tree(id).await.len(), 1, "nobody asked");
    let id = run(&runtime, "asks", "poll", Value::Null).await;
    world.ended(id).await;
    let asked = world.jobs_are("asks", 3).await;
    world.ended(asked[2].1.id).await;
    // The successors are queued together with its end.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let plugins = ["asks", "alarm"].map(|plugin| world.jobs(plugin));
    let [asks, alarm] = plugins;
    let (asks, alarm) = (asks.await, alarm.await);
    assert_eq!((asks.len(), alarm.len()), (3, 2));
    for (job, intent) in &alarm {
        assert_eq!(job.submitted_by, SubmittedBy::Hook);
        assert!(intent.ties.parent.is_some() && job.event_context_id.is_none());
        assert_eq!(job.payload["payload"]["status"], "succeeded");
        assert_eq!(job.payload["payload"]["result"], "done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_multiply_branches_part_and_calls_come_back_du_086_du_087_du_088_du_089() {
    let world = World::new();
    world.python(
        "one",
        "",
        "ok(events=[{'type': 'x', 'payload': {'n': n}} for n in (1, 2)])",
    );
    for name in ["two", "three", "four"] {
        world.python(name, "", "ok()");
    }
    let config = "
service: {max_workers: 4}
plugins: {one: {}, two: {}, three: {}, four: {}}
pipelines:
  - {name: whole, on: start, steps: [{uses: one}, {split: [{uses: two}, {call: part}]}, {uses: three}]}
  - {name: part, on: never, steps: [{uses: four}]}
";
    let runtime = world.start(config).await;
    let started = runtime
        .run_pipeline("whole", json!({}), SubmittedBy::Api)
        .await
        .unwrap();
    let tree = world.tree(started[0].id).await;
    assert!(tree.iter().all(|(_, intent)| intent.state == State::Acked));
    let count = |plugin: &str| tree.iter().filter(|(job, _)| job.plugin == plugin).count();
    let counts = ["one", "two", "four", "three"].map(count);
    assert_eq!(counts, [1, 2, 2, 4], "once for each event and branch");
    for (job, _) in tree.iter().filter(|(job, _)| job.plugin == "three") {
        assert_eq!(job.payload["type"], "ductile.step.succeeded");
        assert_eq!(job.payload["payload"]["result"], "done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_without_its_value_fails_its_step_for_good_du_092() {
    let world = World::new();
    world.python("one", "", STEP);
    world.python("two", "", STEP);
    let config = "
plugins: {one: {}, two: {}}
pipelines: [{name: p, on: start, steps: [{uses: one}, {uses: two, with: {x: '{payload.nothing}'}}]}]
";
    let runtime = world.start(config).await;
    let started = runtime
        .run_pipeline("p", json!({}), SubmittedBy::Api)
        .await
        .unwrap();
    let tree = world.tree(started[0].id).await;
    let ends: Vec<_> = tree
        .iter()
        .map(|(_, intent)| (intent.state, intent.attempts))
        .collect();
    assert_eq!(ends, [(State::Acked, 1), (State::Failed, 1)]);
    let error = tree[1].1.last_error.as_deref().unwrap();
    assert!(error.contains("payload.nothing"), "{error}");
    assert_eq!(trace(&world).len(), 1, "nothing was started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_baggage_is_gone_fails_and_is_logged_du_123() {
    let world = World::new();
    world.plugin("echo", "touch $here/ran");
    let runtime = world.start("").await;
    let job = Job {
        event_context_id: Some("nowhere".to_owned()),
        ..Job::root("echo", "poll", SubmittedBy::Api, json!({}))
    };
    let id = runtime.enqueue(job, None).await.unwrap().id;
    assert_eq!(world.ended(id).await.state, State::Failed);
    let error = world.log(id, 1).await.last_error.unwrap();
    assert_eq!(error, "its baggage nowhere does not exist");
    assert!(!world.path("ran").exists());
}
