//! Events, routes and pipelines through real plugins.

use consign_automation::runtime::SubmittedBy;
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::world::{World, run};

/// Appends what it was given, and answers with an event.
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
