//! The protocol's tables as SQL clients read them.

use consign_automation::runtime::{job_id, records};
use consign_kernel::command::Command;
use consign_kernel::record::Put;
use serde_json::{Value, json};

use crate::world::{OK, World, run};

const FACTS: &str = "fact_outputs:\n  - {when: {command: poll}, from: state_updates, fact_type: one.seen, compatibility_view: mirror_object}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_of_the_protocol_hold_the_data_du_122() {
    let world = World::new();
    world.python("one", FACTS, "ok(state_updates={'n': 1}, events=[{'type': 'e', 'payload': {'a': [1]}, 'dedupe_key': 'k'}])");
    world.plugin(
        "two",
        r#"echo oops >&2; echo '{"status":"error","error":"broken"}'"#,
    );
    let config = "
plugins: {one: {}, two: {retry: {max_attempts: 3, backoff_base: 1h}}}
pipelines: [{name: p, on: e, steps: [{id: s, uses: two, baggage: {x: payload.a}}]}]
";
    let runtime = world.start(config).await;
    let id = run(&runtime, "one", "poll", Value::Null).await;
    world.ended(id).await;
    let child = world.engine.children(id, 10).await.unwrap().remove(0).id;
    world
        .until(child, |job| job.attempts == 1 && job.holder.is_none())
        .await;
    let sql = |text: &str| world.ledger.sql(text);
    let (parent, child) = (job_id(id), job_id(child));
    assert_eq!(
        sql(
            "SELECT id, plugin, command, status, attempt, max_attempts, submitted_by, dedupe_key, last_error, parent_job_id FROM job_queue ORDER BY created_at"
        ),
        [
            format!("{parent}|one|poll|succeeded|1|4|api|||"),
            format!("{child}|two|handle|queued|2|3|route|k|broken|{parent}"),
        ]
    );
    let times = sql(
        "SELECT created_at, started_at, completed_at, next_retry_at FROM job_queue ORDER BY created_at",
    );
    for (row, filled) in times
        .iter()
        .zip([[true, true, true, false], [true, true, false, true]])
    {
        let cells: Vec<&str> = row.split('|').collect();
        assert_eq!(
            cells
                .iter()
                .map(|cell| !cell.is_empty())
                .collect::<Vec<_>>(),
            filled,
            "{row}"
        );
        assert!(
            cells
                .iter()
                .all(|cell| cell.is_empty() || (cell.len() == 30 && cell.ends_with('Z'))),
            "{row}"
        );
    }
    let payload = sql(&format!(
        "SELECT payload FROM job_queue WHERE id = '{child}'"
    ));
    let payload: Value = serde_json::from_str(&payload[0]).unwrap();
    assert_eq!(payload["payload"]["a"], json!([1]));
    assert_eq!(
        sql(
            "SELECT id, plugin, command, status, attempt, submitted_by, last_error, length(stderr) FROM job_log ORDER BY completed_at"
        ),
        [
            format!("{parent}-1|one|poll|succeeded|1|api||"),
            format!("{child}-1|two|handle|failed|1|route|broken|5"),
        ]
    );
    assert_eq!(
        sql("SELECT id, seq, plugin_name, fact_type, job_id, command FROM plugin_facts"),
        [format!("1|1|one|one.seen|{parent}|poll")]
    );
    let state: Value =
        serde_json::from_str(&sql("SELECT state FROM plugin_state WHERE plugin_name = 'one'")[0])
            .unwrap();
    assert_eq!(state, json!({"n": 1}));
    let context = sql("SELECT pipeline_name, step_id, accumulated_json FROM event_context");
    assert_eq!(context.len(), 1);
    assert!(context[0].starts_with("p|s|{"), "{context:?}");
    let moves = sql(&format!(
        "SELECT from_status, to_status FROM job_transitions WHERE job_id = '{child}' ORDER BY id"
    ));
    assert_eq!(
        moves,
        [
            "|queued",
            "queued|running",
            "running|failed",
            "failed|queued"
        ]
    );
    assert_eq!(
        sql(&format!(
            "SELECT attempt FROM job_attempts WHERE job_id = '{child}'"
        )),
        ["1"]
    );
    for table in [
        "circuit_breakers",
        "circuit_breaker_transitions",
        "schedule_entries",
    ] {
        assert_eq!(
            sql(&format!("SELECT count(*) FROM {table}")),
            ["0"],
            "{table}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breakers_schedules_and_the_rest_of_the_columns_are_there_du_122() {
    let world = World::new();
    world.python(
        "one",
        FACTS,
        "ok(state_updates={'n': 1}, events=[{'type': 'e', 'payload': {}}])",
    );
    world.plugin("two", r#"echo '{"status":"error","error":"broken"}'"#);
    world.plugin("end", OK);
    let config = "
service: {tick_interval: 100ms}
plugins:
  one: {schedules: [{id: s, every: 1h}]}
  two: {retry: {max_attempts: 1}, circuit_breaker: {threshold: 1}, schedules: [{every: 1h}]}
  end: {}
pipelines: [{name: p, on: e, steps: [{id: a, uses: end}, {id: b, uses: end}]}]
";
    let runtime = world.start(config).await;
    let one = world.jobs_are("one", 1).await[0].1.id;
    world.tree(one).await;
    let two = world.jobs_are("two", 1).await[0].1.id;
    world.ended(two).await;
    let sql = |text: &str| world.ledger.sql(text);
    let (one, two) = (job_id(one), job_id(two));
    // Times are compared by length only.
    assert_eq!(
        sql(
            "SELECT plugin, command, state, failure_count, length(opened_at), length(last_failure_at), last_job_id, length(updated_at) FROM circuit_breakers ORDER BY plugin"
        ),
        [
            format!("one|poll|closed|0|||{one}|30"),
            format!("two|poll|open|1|30|30|{two}|30"),
        ]
    );
    assert_eq!(
        sql(
            "SELECT plugin, command, from_state, to_state, failure_count, reason, job_id, length(created_at), length(id) > 0 FROM circuit_breaker_transitions"
        ),
        [format!(
            "two|poll|closed|open|1|failure_threshold|{two}|30|{}",
            sql("SELECT 1 = 1")[0]
        )]
    );
    assert_eq!(
        sql(
            "SELECT plugin, schedule_id, command, status, reason, length(last_fired_at), last_success_job_id, length(last_success_at), length(next_run_at), length(updated_at) FROM schedule_entries ORDER BY plugin"
        ),
        [
            format!("one|s|poll|active||30|{one}|30|30|30"),
            "two|default|poll|active||30|||30|30".to_owned(),
        ]
    );
    let fact = sql("SELECT fact_json, length(created_at) FROM plugin_facts");
    assert_eq!(fact, [r#"{"n":1}|30"#]);
    assert_eq!(
        sql("SELECT plugin_name, length(updated_at) FROM plugin_state"),
        ["one|30"]
    );
    let contexts = sql(
        "SELECT c.step_id, p.step_id, length(c.created_at) FROM event_context c LEFT JOIN event_context p ON p.id = c.parent_id ORDER BY c.step_id",
    );
    assert_eq!(contexts, ["a||30", "b|a|30"]);
    let queue = sql(
        "SELECT source_event_id IS NOT NULL, event_context_id IS NOT NULL FROM job_queue WHERE plugin = 'end'",
    );
    let log = sql(
        "SELECT source_event_id IS NOT NULL, parent_job_id IS NOT NULL FROM job_log WHERE plugin = 'end'",
    );
    let yes = sql("SELECT 1 = 1")[0].clone();
    for row in queue.iter().chain(&log) {
        assert_eq!(*row, format!("{yes}|{yes}"));
    }
    assert_eq!((queue.len(), log.len()), (2, 2));
    let log = sql(
        "SELECT job_id, length(created_at), length(completed_at), result FROM job_log WHERE plugin = 'two'",
    );
    // The printed output ends with a newline.
    let log = log.concat();
    let begins = format!("{two}|30|30|{{");
    assert!(log.starts_with(&begins) && log.contains("broken"), "{log}");
    drop(runtime);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_character_of_a_plugin_makes_a_table_unreadable() {
    let world = World::new();
    let body = "sys.stderr.write('a\\0b')\nok(state_updates={'s': 'x\\0y'}, events=[{'type': 'e', 'payload': {'p': 'x\\0y'}}])";
    world.python("odd", "", body);
    world.plugin("sink", OK);
    let config = "plugins: {odd: {}, sink: {}}\nroutes: [{from: odd, event_type: e, to: sink}]";
    let runtime = world.start(config).await;
    let id = run(&runtime, "odd", "poll", json!({"p": "x\0y"})).await;
    assert_eq!(world.tree(id).await.len(), 2);
    for table in ["job_queue", "job_log", "plugin_state"] {
        assert!(
            !world
                .ledger
                .sql(&format!("SELECT * FROM {table}"))
                .is_empty()
        );
    }
}

/// A client that reads new facts by id reads each of them once, whatever the clock showed when they were written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ids_of_facts_only_grow_du_122() {
    let world = World::new();
    for (plugin, created_at) in [
        ("b", "2026-03-01"),
        ("a", "2026-02-01"),
        ("c", "2026-01-01"),
    ] {
        let fact = records::PluginFact {
            seq: 1,
            fact_type: "seen".to_owned(),
            job_id: "j".to_owned(),
            command: "poll".to_owned(),
            fact: serde_json::Map::new(),
            created_at: format!("{created_at}T00:00:00Z").parse().unwrap(),
        };
        let put = Command::Put(Put {
            key: records::fact_key(plugin, 1),
            value: serde_json::to_string(&fact).unwrap(),
            expires_at: None,
            expect: None,
        });
        world.engine.apply(None, put).await.unwrap();
        let record = world.record(records::fact_key(plugin, 1)).await.unwrap();
        let kept: records::PluginFact = serde_json::from_str(&record.value).unwrap();
        assert_eq!(kept, fact);
    }
    let ids = "SELECT id, plugin_name, seq FROM plugin_facts ORDER BY id";
    assert_eq!(world.ledger.sql(ids), ["1|b|1", "2|a|1", "3|c|1"]);
}
