//! Plugin state and facts.

use consign_automation::runtime::records;
use consign_kernel::record::Kind;
use consign_kernel::state::State;
use serde_json::{Value, json};

use crate::world::{World, run};

async fn state(world: &World, plugin: &str) -> Value {
    let record = world.record(records::state_key(plugin)).await.unwrap();
    serde_json::from_str::<Value>(&record.value).unwrap()["state"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rules_updates_are_merged_and_sent_next_time_du_079_du_082() {
    let world = World::new();
    let body = "seen = request['state'].get('seen', 0)\nok(state_updates={'seen': seen + 1, 'last': seen})";
    world.python("counter", "", body);
    let runtime = world.start("").await;
    for _ in 0..3 {
        let id = run(&runtime, "counter", "poll", Value::Null).await;
        world.ended(id).await;
    }
    assert_eq!(
        state(&world, "counter").await,
        json!({"seen": 3, "last": 2})
    );
    // Keys that an update does not name stay, except below the first level; and the state survives a restart.
    world.python("counter", "", "ok(state_updates={'last': {'a': 1}})");
    let id = run(&runtime, "counter", "poll", Value::Null).await;
    world.ended(id).await;
    runtime.stop(std::time::Duration::from_secs(5)).await;
    let body = "open(here + '/sent', 'w').write(json.dumps(request['state']))\nok(state_updates={'last': {'b': 2}})";
    world.python("counter", "", body);
    let again = world.start("").await;
    let id = run(&again, "counter", "poll", Value::Null).await;
    world.ended(id).await;
    let sent: Value = serde_json::from_str(&world.read("sent")).unwrap();
    assert_eq!(sent, json!({"seen": 3, "last": {"a": 1}}));
    let kept = state(&world, "counter").await;
    assert_eq!(kept, json!({"seen": 3, "last": {"b": 2}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_appends_facts_and_mirrors_the_last_one_du_080() {
    let world = World::new();
    // The view may be named, left out or empty.
    for view in [
        "",
        ", compatibility_view: ''",
        ", compatibility_view: mirror_object",
    ] {
        let plugin = format!("counter{}", view.len());
        mirrors(&world, &plugin, view).await;
    }
}

async fn mirrors(world: &World, plugin: &str, view: &str) {
    let rules = format!(
        "fact_outputs:\n  - {{when: {{command: poll}}, from: state_updates, fact_type: counter.snapshot{view}}}\n"
    );
    let body = "seen = request['state'].get('seen', 0)\nok(state_updates={'seen': seen + 1, f'only{seen}': True})";
    world.python(plugin, &rules, body);
    let runtime = world.start("").await;
    for _ in 0..3 {
        let id = run(&runtime, plugin, "poll", Value::Null).await;
        world.ended(id).await;
    }
    assert_eq!(
        state(world, plugin).await,
        json!({"seen": 3, "only2": true})
    );
    let facts = world
        .engine
        .last_records(Kind::PluginFact, plugin, "", 10)
        .await
        .unwrap();
    let facts: Vec<records::PluginFact> = facts
        .iter()
        .map(|record| serde_json::from_str(&record.value).unwrap())
        .collect();
    let told: Vec<_> = facts
        .iter()
        .map(|fact| (fact.seq, fact.fact["seen"].clone()))
        .collect();
    assert_eq!(told, [(3, json!(3)), (2, json!(2)), (1, json!(1))]);
    assert_eq!(facts[0].fact_type, "counter.snapshot");
    runtime.stop(std::time::Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_to_remember_fails_the_job_and_changes_nothing_du_081() {
    let world = World::new();
    let body = "ok(state_updates={'big': 'x' * request['payload']['bytes']}, events=[{'type': 'e', 'payload': {}}])";
    world.python("big", "", body);
    let runtime = world
        .start("plugins: {big: {}}\nroutes: [{from: big, event_type: e, to: big}]")
        .await;
    let id = run(&runtime, "big", "poll", json!({"bytes": 10})).await;
    world.ended(id).await;
    let id = run(&runtime, "big", "work", json!({"bytes": 2_000_000})).await;
    assert_eq!(world.ended(id).await.state, State::Failed);
    assert_eq!(world.engine.children(id, 10).await.unwrap(), []);
    assert_eq!(state(&world, "big").await, json!({"big": "x".repeat(10)}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mebibyte_is_remembered_and_a_byte_more_is_not_also_as_a_fact_du_081() {
    let world = World::new();
    // The snapshot is `{"s":"xx…"}`; under `work` it becomes a fact, too.
    let body = "ok(state_updates={'s': 'x' * (request['payload']['bytes'] - 8)})";
    let rule = "fact_outputs: [{when: {command: work}, from: state_updates, fact_type: seen}]\n";
    world.python("big", rule, body);
    let runtime = world.start("").await;
    let remembered = async |command: &str, bytes: u32| {
        let id = run(&runtime, "big", command, json!({"bytes": bytes})).await;
        let ended = world.ended(id).await;
        assert_eq!(ended.attempts, 1);
        ended.state
    };
    for command in ["poll", "work"] {
        assert_eq!(remembered(command, 1 << 20).await, State::Acked);
        assert_eq!(remembered(command, (1 << 20) + 1).await, State::Failed);
    }
    let kept = state(&world, "big").await.to_string();
    assert_eq!(kept.len(), 1 << 20);
    let facts = world.engine.last_records(Kind::PluginFact, "big", "", 10);
    assert_eq!(facts.await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_beside_each_other_lose_no_update() {
    let world = World::new();
    world.python(
        "many",
        "",
        "ok(state_updates={request['payload']['name']: True})",
    );
    let runtime = world.start("service: {max_workers: 4}").await;
    let mut ids = Vec::new();
    for name in 0..12 {
        ids.push(
            run(
                &runtime,
                "many",
                "work",
                json!({"name": format!("k{name}")}),
            )
            .await,
        );
    }
    for id in ids {
        assert_eq!(world.ended(id).await.state, State::Acked);
    }
    assert_eq!(state(&world, "many").await.as_object().unwrap().len(), 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alias_has_its_own_configuration_state_and_facts_du_032() {
    let world = World::new();
    let rule = "fact_outputs: [{when: {command: work}, from: state_updates, fact_type: seen}]\n";
    let body = "
with open(here + '/asked', 'a') as asked:
    asked.write(json.dumps([request['context']['ductile_plugin'], request['config'], request['state']]) + '\\n')
ok(state_updates={'by': request['config'].get('who')})";
    world.python("base", rule, body);
    let config = "plugins: {base: {config: {who: me}}, other: {uses: base, config: {who: you}}}";
    let runtime = world.start(config).await;
    for plugin in ["base", "other"] {
        for command in ["poll", "work"] {
            let id = run(&runtime, plugin, command, Value::Null).await;
            assert_eq!(world.ended(id).await.state, State::Acked);
        }
    }
    let asked = world.read("asked");
    let asked: Vec<Value> = asked
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = [("base", "me"), ("other", "you")].map(|(plugin, who)| {
        let config = json!({"who": who});
        [
            json!([plugin, config, {}]),
            json!([plugin, config, {"by": who}]),
        ]
    });
    assert_eq!(asked, expected.concat());
    assert_eq!(state(&world, "base").await, json!({"by": "me"}));
    assert_eq!(state(&world, "other").await, json!({"by": "you"}));
    let facts = world.engine.last_records(Kind::PluginFact, "other", "", 10);
    assert_eq!(facts.await.unwrap().len(), 1);
}
