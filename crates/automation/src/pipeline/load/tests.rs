//! Invalid routes and pipelines, and their messages.

use serde_json::json;

use super::*;
use crate::pipeline::StepKind;
use crate::pipeline::router::tests::TestPlugins;

fn problems(pipelines: &Value, routes: &Value) -> Vec<String> {
    let found = Router::load(pipelines, routes, &TestPlugins);
    let errors = found.map(|_| ()).unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

/// One pipeline `p` with these steps must be refused with a message that contains `expected`.
fn check(steps: &Value, expected: &str) {
    let found = problems(
        &json!([{"name": "p", "on": "e", "steps": steps}]),
        &json!([]),
    );
    assert!(
        found.len() == 1 && found[0].contains(expected),
        "{steps}: {found:?}"
    );
    assert!(found[0].starts_with("pipeline `p`: "), "{found:?}");
}

fn check_pipeline(key: &str, value: Value, expected: &str) {
    let mut pipeline = json!({"name": "p", "on": "e", "steps": [{"uses": "a"}]});
    pipeline[key] = value;
    let found = problems(&json!([pipeline]), &Value::Null);
    assert!(
        found.len() == 1 && found[0].contains(expected),
        "{key}: {found:?}"
    );
}

#[test]
fn bad_steps_are_refused_with_what_to_change_du_095() {
    check(&json!([]), "at least one step");
    check(&json!({"uses": "a"}), "must be a list");
    check(&json!(["a"]), "steps[0]: a step must be a mapping");
    check(&json!([{"id": "x"}]), "has 0");
    check(&json!([{"uses": "a", "call": "p"}]), "has 2");
    check(&json!([{"uses": "nobody"}]), "names no configured plugin");
    check(&json!([{"uses": "a.dance"}]), "no command `dance`");
    check(
        &json!([{"split": [{"uses": "nobody"}]}]),
        "steps[0]: split[0]: uses",
    );
    check(&json!([{"call": "nowhere"}]), "names no pipeline");
    check(
        &json!([{"call": "p", "with": {"x": "y"}}]),
        "with belongs to a uses step",
    );
    check(
        &json!([{"steps": [{"uses": "a"}], "baggage": {}}]),
        "baggage belongs to a uses step",
    );
    check(
        &json!([{"split": [{"uses": "a"}], "if": {}}]),
        "if cannot guard split",
    );
    check(&json!([{"uses": "a", "if": {"path": "x"}}]), "if: path `x`");
    check(
        &json!([{"uses": "a", "baggage": {"from": "payload"}}]),
        "namespace",
    );
    check(&json!([{"uses": "a", "with": {"x": [1]}}]), "with.x");
    check(
        &json!([{"id": "x", "uses": "a"}, {"id": "x", "uses": "b"}]),
        "`x` is used twice",
    );
    check(
        &json!([{"id": "x", "uses": "a"}, {"id": "x", "steps": [{"uses": "b"}]}]),
        "`x` is used twice",
    );
    check(&json!([{"relay": "far"}]), "not supported");
    let deep = (0..40).fold(json!({"uses": "a"}), |inner, _| json!({"steps": [inner]}));
    check(&json!([deep]), "nested");
}

#[test]
fn bad_pipelines_are_refused_with_what_to_change_du_095() {
    check_pipeline("on", Value::Null, "needs a trigger");
    check_pipeline("on-hook", json!("job.completed"), "both on and on-hook");
    check_pipeline("from_plugin", json!("nobody"), "from_plugin `nobody`");
    check_pipeline("max_depth", json!(-1), "max_depth");
    check_pipeline("execution_mode", json!("later"), "async or synchronous");
    check_pipeline("timeout", json!("soon"), "timeout: `soon`");
    check_pipeline("if", json!({"all": []}), "if: `all`");
    check_pipeline("name", Value::Null, "needs a name");
    let hook = |extra: Value| {
        json!([{"name": "h", "on-hook": extra, "steps": [{"uses": "a"}],
        "if": {"path": "context.x", "op": "exists"}}])
    };
    assert!(problems(&hook(json!("job.failed")), &Value::Null)[0].contains("no context"));
    assert!(problems(&hook(json!("job.gone")), &Value::Null)[0].contains("job.timed_out"));
    let twice = json!([{"name": "p", "on": "e", "steps": [{"uses": "a"}]}, {"name": "p", "on": "f", "steps": [{"uses": "a"}]}]);
    assert!(problems(&twice, &Value::Null)[0].contains("used twice"));
    assert!(problems(&json!({}), &Value::Null)[0].contains("must be a list"));
}

#[test]
fn calls_in_a_circle_and_calls_that_multiply_are_refused_du_095() {
    let call =
        |name: &str, other: &str| json!({"name": name, "on": name, "steps": [{"call": other}]});
    let circle = problems(&json!([call("p", "q"), call("q", "p")]), &Value::Null);
    assert!(
        circle[0].contains("p -> q -> p") && circle.len() == 2,
        "{circle:?}"
    );
    assert!(problems(&json!([call("p", "p")]), &Value::Null)[0].contains("circular"));
    let mut tower = vec![json!({"name": "l0", "on": "e", "steps": [{"uses": "a"}]})];
    for level in 1..30 {
        let below = json!({"call": format!("l{}", level - 1)});
        tower.push(json!({"name": format!("l{level}"), "on": "e", "steps": [below, below]}));
    }
    assert!(problems(&json!(tower), &Value::Null)[0].contains("more than"));
    let mut chain = vec![json!({"name": "c0", "on": "e", "steps": [{"uses": "a"}]})];
    for level in 1..60 {
        chain.push(call(&format!("c{level}"), &format!("c{}", level - 1)));
    }
    assert!(problems(&json!(chain), &Value::Null)[0].contains("nested"));
}

#[test]
fn bad_routes_are_refused_and_all_errors_are_told_at_once_du_095() {
    let routes = json!([
        {"from": "a", "event_type": "e", "to": "nobody"}, {"from": "a", "to": "b"},
        {"from": "a", "event_type": "e", "to": "b"}, "x", {"from": "a", "event_type": "e", "to": "mute"},
    ]);
    let found = problems(&json!([{"name": "p"}]), &routes);
    let places: Vec<&str> = found
        .iter()
        .filter_map(|error| error.split(": ").next())
        .collect();
    assert_eq!(
        places,
        [
            "pipeline `p`",
            "routes[0]",
            "routes[1]",
            "routes[3]",
            "routes[4]"
        ]
    );
}

#[test]
fn steps_without_id_are_numbered_around_the_given_ids_du_085() {
    let router = Router::load(
        &json!([
            {"name": "p", "on": "e", "timeout": "3m", "execution_mode": "synchronous", "steps": [
                {"uses": "a"}, {"id": "step_2", "uses": "b"}, {"split": [{"uses": "c"}, {"call": "q"}]},
                {"uses": "a", "if": {"path": "payload.x", "op": "exists"}},
            ]},
            {"name": "q", "on": "f", "steps": [{"uses": "b"}, {"id": "last", "uses": "dotted.name"}]},
        ]),
        &Value::Null,
        &TestPlugins,
    )
    .unwrap();
    let pipeline = router.pipeline("p").unwrap();
    assert_eq!(
        (pipeline.timeout, pipeline.synchronous),
        (Duration::from_mins(3), true)
    );
    let mut seen = Vec::new();
    let mut waiting: Vec<_> = pipeline.graph.entries().collect();
    while let Some(node) = waiting.pop() {
        seen.push(node.id.as_str());
        waiting.extend(pipeline.graph.after(node));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(
        seen,
        [
            "step_1",
            "step_2",
            "step_3",
            "step_4.last",
            "step_4.step_1",
            "step_5",
            "step_5__switch"
        ]
    );
    assert_eq!(pipeline.graph.longest(), 5, "a, b, two of q, a");
    let last = pipeline.graph.node("step_4.last").unwrap();
    let StepKind::Step(uses) = &last.kind else {
        panic!("a plugin step")
    };
    assert_eq!(
        (uses.plugin.as_str(), uses.command.as_str()),
        ("dotted.name", "handle")
    );
}

#[test]
fn unknown_keys_are_ignored_with_a_warning_each() {
    let pipelines = json!([{"name": "p", "on": "e", "colour": 1, "steps": [{"split": [{"uses": "a", "foreach": 1}]}]}]);
    let routes = json!([{"from": "a", "event_type": "e", "to": "b", "when": 1}]);
    let router = Router::load(&pipelines, &routes, &TestPlugins).unwrap();
    let found: Vec<String> = router.warnings().iter().map(ToString::to_string).collect();
    let starts = [
        "pipeline `p`: `colour` is unknown",
        "pipeline `p`: steps[0]: split[0]: `foreach` is unknown",
        "routes[0]: `when` is unknown",
    ];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
}
