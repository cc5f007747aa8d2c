//! Events followed through routes and pipelines, job by job.

use proptest::prelude::*;

use super::*;
use crate::pipeline::PluginCatalogue;

pub(crate) struct TestPlugins;

impl PluginCatalogue for TestPlugins {
    fn has_plugin(&self, plugin: &str) -> bool {
        ["a", "b", "c", "dotted.name", "mute", "dotted"].contains(&plugin)
    }

    fn has_command(&self, plugin: &str, command: &str) -> bool {
        plugin != "mute" && ["handle", "sync", "poll"].contains(&command)
    }
}

fn router(pipelines: &Value, routes: &Value) -> Router {
    Router::load(pipelines, routes, &TestPlugins).unwrap()
}

fn one(steps: &Value) -> Router {
    router(
        &json!([{"name": "p", "on": "go", "steps": steps}]),
        &Value::Null,
    )
}

/// The events `kinds` of a job of `plugin` outside of any pipeline.
fn emit(router: &Router, plugin: &str, kinds: &[&str], payload: &Value) -> Routed {
    let context = Map::new();
    let producer = Producer {
        plugin,
        context: &context,
        depth: 0,
        position: None,
    };
    let events: Vec<_> = kinds
        .iter()
        .map(|event_type| EventRef {
            event_type,
            payload,
        })
        .collect();
    router.finished(producer, &events, None).unwrap()
}

/// The jobs that follow `job` when it succeeds with these events.
fn after(router: &Router, job: &NextJob, kinds: &[&str], payload: &Value) -> Result<Routed, Error> {
    let events: Vec<_> = kinds
        .iter()
        .map(|event_type| EventRef {
            event_type,
            payload,
        })
        .collect();
    router.finished(producer(job), &events, Some("done"))
}

fn producer(job: &NextJob) -> Producer<'_> {
    Producer {
        plugin: &job.plugin,
        context: &job.context,
        depth: job.depth,
        position: job.position.as_ref(),
    }
}

fn targets(routed: &Routed) -> Vec<String> {
    let place = |job: &NextJob| {
        job.position
            .as_ref()
            .map_or_else(String::new, |at| at.step.clone())
    };
    routed
        .jobs
        .iter()
        .map(|job| format!("{}.{}@{}", job.plugin, job.command, place(job)))
        .collect()
}

fn answer(router: &Router, job: &NextJob) -> Routed {
    let switch = router.switch(job.position.as_ref().unwrap()).unwrap();
    let config = Map::new();
    let scope = PathScope {
        payload: &job.payload,
        context: &job.context,
        config: &config,
    };
    let event = EventRef {
        event_type: &job.event_type,
        payload: &job.payload,
    };
    router
        .switched(producer(job), event, switch.condition.holds(&scope))
        .unwrap()
}

#[test]
fn routes_match_exactly_and_all_of_them_fire_du_083() {
    let routes = json!([
        {"from": "a", "event_type": "made", "to": "b"}, {"from": "a", "event_type": "made", "to": "c"},
        {"from": "b", "event_type": "made", "to": "a"},
    ]);
    let router = router(&Value::Null, &routes);
    assert_eq!(
        targets(&emit(&router, "a", &["made"], &json!({}))),
        ["b.handle@", "c.handle@"]
    );
    for (plugin, kind) in [("a", "made.x"), ("a", "mad"), ("c", "made"), ("a", "*")] {
        let routed = emit(&router, plugin, &[kind], &json!({}));
        let event_type = kind.to_owned();
        assert_eq!(
            routed,
            Routed {
                jobs: vec![],
                notices: vec![Notice::Unmatched { event_type }]
            }
        );
    }
}

#[test]
fn each_job_names_the_event_it_came_from_and_where_that_was_made_du_084() {
    let routes = json!([{"from": "a", "event_type": "made", "to": "b"}]);
    let router = router(&Value::Null, &routes);
    let context = Map::from_iter([("user".to_owned(), json!("ann"))]);
    let position = PipelinePosition {
        pipeline: "old".to_owned(),
        step: "s".to_owned(),
        hop: 1,
    };
    let payload = json!({"n": 1});
    let producer = Producer {
        plugin: "a",
        context: &context,
        depth: 3,
        position: Some(&position),
    };
    let events = ["other", "made"].map(|event_type| EventRef {
        event_type,
        payload: &payload,
    });
    let routed = router.finished(producer, &events, None).unwrap();
    let [job] = routed.jobs.as_slice() else {
        panic!("one job: {routed:?}")
    };
    assert_eq!(
        (job.event, job.event_type.as_str(), job.depth),
        (Some(1), "made", 4)
    );
    assert_eq!(job.context, context, "baggage is inherited");
    assert_eq!(
        job.payload,
        json!({"n": 1, "ductile_upstream_plugin": "a", "ductile_upstream_pipeline": "old", "ductile_upstream_step_id": "s"})
    );
    assert!(
        routed.notices.contains(&Notice::Gone(position.clone())),
        "the place is no longer configured"
    );
}

#[test]
fn pipeline_runs_its_steps_in_order_and_passes_the_payload_on_du_085() {
    let router =
        one(&json!([{"uses": "a"}, {"uses": "b.sync"}, {"id": "end", "uses": "dotted.name"}]));
    let first = emit(&router, "c", &["go"], &json!({"n": 1}));
    assert_eq!(targets(&first), ["a.handle@step_1"]);
    assert!(first.jobs[0].enters && first.jobs[0].payload["n"] == 1);
    let second = after(&router, &first.jobs[0], &["whatever"], &json!({"n": 2})).unwrap();
    assert_eq!(targets(&second), ["b.sync@step_2"]);
    assert!(!second.jobs[0].enters && second.jobs[0].payload["n"] == 2);
    let third = after(&router, &second.jobs[0], &["x"], &json!({})).unwrap();
    assert_eq!(targets(&third), ["dotted.name.handle@end"]);
    assert_eq!(
        (
            third.jobs[0].depth,
            third.jobs[0].position.as_ref().unwrap().hop
        ),
        (3, 3)
    );
    let end = after(&router, &third.jobs[0], &["x"], &json!({})).unwrap();
    assert_eq!(end.jobs, []);
    let event = EventRef {
        event_type: "api",
        payload: &json!({}),
    };
    let started = router.start("p", event).unwrap().unwrap();
    assert_eq!(targets(&started), ["a.handle@step_1"]);
    assert!(router.start("nowhere", event).is_none());
}

#[test]
fn step_that_emits_nothing_still_drives_its_followers_du_086() {
    let pipelines = json!([
        {"name": "p", "on": "go", "steps": [{"uses": "a"}, {"uses": "b"}]},
        {"name": "q", "on": STEP_SUCCEEDED, "steps": [{"uses": "c"}]},
    ]);
    let router = router(&pipelines, &Value::Null);
    let first = emit(&router, "c", &["go"], &json!({}));
    let next = after(&router, &first.jobs[0], &[], &json!({})).unwrap();
    assert_eq!(
        targets(&next),
        ["b.handle@step_2"],
        "the core's own event triggers nothing else"
    );
    assert_eq!(
        (next.jobs[0].event, next.jobs[0].event_type.as_str()),
        (None, STEP_SUCCEEDED)
    );
    assert_eq!(next.jobs[0].payload["result"], "done");
    assert_eq!(
        emit(&router, "c", &[], &json!({})),
        Routed::default(),
        "no pipeline, no followers"
    );
}

#[test]
fn follower_runs_once_for_each_event_du_087() {
    let router = one(&json!([{"uses": "a"}, {"uses": "b"}]));
    let first = emit(&router, "c", &["go"], &json!({}));
    let next = after(&router, &first.jobs[0], &["x", "y", "go"], &json!({})).unwrap();
    let expected = [
        "b.handle@step_2",
        "b.handle@step_2",
        "b.handle@step_2",
        "a.handle@step_1",
    ];
    assert_eq!(
        targets(&next),
        expected,
        "and an event also triggers what waits for it"
    );
    let events: Vec<_> = next.jobs.iter().map(|job| job.event).collect();
    assert_eq!(events, [Some(0), Some(1), Some(2), Some(2)]);
}

#[test]
fn split_runs_all_branches_and_what_follows_once_for_each_du_088() {
    let router = one(&json!([
        {"split": [{"id": "x", "uses": "a"}, {"steps": [{"id": "y", "uses": "b"}, {"id": "z", "uses": "b"}]}]},
        {"id": "end", "uses": "c"},
    ]));
    let first = emit(&router, "c", &["go"], &json!({}));
    assert_eq!(targets(&first), ["a.handle@x", "b.handle@y"]);
    let left = after(&router, &first.jobs[0], &[], &json!({})).unwrap();
    assert_eq!(targets(&left), ["c.handle@end"]);
    let right = after(&router, &first.jobs[1], &[], &json!({})).unwrap();
    assert_eq!(targets(&right), ["b.handle@z"]);
    let right = after(&router, &right.jobs[0], &[], &json!({})).unwrap();
    assert_eq!(targets(&right), ["c.handle@end"]);
}

#[test]
fn call_runs_the_other_pipeline_and_comes_back_du_089() {
    let pipelines = json!([
        {"name": "p", "on": "go", "steps": [{"id": "in", "call": "q"}, {"id": "back", "uses": "c"}]},
        {"name": "q", "on": "other", "steps": [{"uses": "a"}, {"uses": "b"}]},
    ]);
    let router = router(&pipelines, &Value::Null);
    let mut step = emit(&router, "c", &["go"], &json!({}));
    for expected in ["a.handle@in.step_1", "b.handle@in.step_2", "c.handle@back"] {
        assert_eq!(targets(&step), [expected]);
        assert_eq!(step.jobs[0].position.as_ref().unwrap().pipeline, "p");
        step = after(&router, &step.jobs[0], &[], &json!({})).unwrap();
    }
    assert_eq!(step.jobs, []);
}

#[test]
fn false_if_goes_on_to_the_step_after_du_090() {
    let router = one(&json!([
        {"id": "s", "uses": "a", "if": {"path": "payload.on", "op": "eq", "value": true}, "baggage": {"n": "payload.n"}},
        {"id": "end", "uses": "b"},
    ]));
    let asked = emit(&router, "c", &["go"], &json!({"on": true, "n": 1}));
    assert_eq!(targets(&asked), ["core.switch.handle@s__switch"]);
    assert_eq!(
        (asked.jobs[0].depth, asked.jobs[0].context.len()),
        (0, 0),
        "no hop, no claim yet"
    );
    let yes = answer(&router, &asked.jobs[0]);
    assert_eq!(targets(&yes), ["a.handle@s"]);
    assert_eq!(yes.jobs[0].payload, asked.jobs[0].payload);
    assert_eq!(
        (yes.jobs[0].event_type.as_str(), &yes.jobs[0].context["n"]),
        ("go", &json!(1))
    );
    let asked = emit(&router, "c", &["go"], &json!({"on": "true"}));
    let no = answer(&router, &asked.jobs[0]);
    assert_eq!(targets(&no), ["b.handle@end"]);
    assert_eq!(
        switch_result(false),
        json!({"matched": false, "event": "ductile.switch.false"})
    );
    let last = one(&json!([{"uses": "a", "if": {"path": "payload.on", "op": "exists"}}]));
    let asked = emit(&last, "c", &["go"], &json!({}));
    assert_eq!(answer(&last, &asked.jobs[0]), Routed::default(), "the end");
}

#[test]
fn source_plugin_and_pipeline_condition_hold_a_trigger_back_du_091() {
    let pipelines = json!([{"name": "p", "on": "go", "from_plugin": "a", "steps": [{"uses": "b"}],
        "if": {"path": "payload.n", "op": "gt", "value": 3}}]);
    let router = router(&pipelines, &Value::Null);
    assert_eq!(
        targets(&emit(&router, "a", &["go"], &json!({"n": 4}))),
        ["b.handle@step_1"]
    );
    for (plugin, n) in [("a", 3), ("b", 4), ("", 4)] {
        assert_eq!(
            emit(&router, plugin, &["go"], &json!({"n": n})).jobs,
            [],
            "{plugin} {n}"
        );
    }
}

#[test]
fn baggage_is_claimed_when_a_job_is_made_and_reaches_later_steps_du_093() {
    let router = one(&json!([
        {"uses": "a", "baggage": {"user.id": "payload.id"}}, {"uses": "b"},
        {"id": "end", "uses": "c", "baggage": {"user.id": "payload.id"}},
    ]));
    let first = emit(&router, "c", &["go"], &json!({"id": 7}));
    assert_eq!(json!(first.jobs[0].context), json!({"user": {"id": 7}}));
    let second = after(&router, &first.jobs[0], &[], &json!({})).unwrap();
    assert_eq!(second.jobs[0].context, first.jobs[0].context);
    let same = after(&router, &second.jobs[0], &["x"], &json!({"id": 7})).unwrap();
    assert_eq!(same.jobs[0].context, first.jobs[0].context);
    let changed = after(&router, &second.jobs[0], &["x", "y"], &json!({"id": 8})).unwrap_err();
    assert_eq!(changed.step, "end");
    assert!(
        changed
            .to_string()
            .contains("`user.id` was set by an earlier step"),
        "{changed}"
    );
    let missing = router.start(
        "p",
        EventRef {
            event_type: "api",
            payload: &json!({}),
        },
    );
    assert!(
        missing
            .unwrap()
            .unwrap_err()
            .to_string()
            .contains("payload.id")
    );
}

#[test]
fn loops_end_at_the_hop_cap_unless_told_otherwise_du_096() {
    consign_testkit::plants::from_environment();
    let looping = |extra: Value| {
        let mut pipeline = json!({"name": "p", "on": "go", "steps": [{"uses": "a"}]});
        pipeline["max_depth"] = extra;
        router(
            &json!([pipeline]),
            &json!([{"from": "b", "event_type": "go", "to": "b"}]),
        )
    };
    let run = |router: &Router, plugin: &str| {
        let mut routed = emit(router, plugin, &["go"], &json!({}));
        routed.jobs.retain(|job| job.plugin == plugin);
        let mut made = 0;
        while let (Some(job), true) = (routed.jobs.pop(), made < 50) {
            made += 1;
            routed = after(router, &job, &["go"], &json!({})).unwrap();
            routed.jobs.retain(|job| job.plugin == plugin);
        }
        (made, routed.notices)
    };
    let (made, notices) = run(&looping(Value::Null), "a");
    let target = "p/step_1".to_owned();
    assert_eq!(
        (made, notices),
        (
            HOPS_MAX,
            vec![Notice::Cut {
                target,
                depth: HOPS_MAX + 1
            }]
        )
    );
    assert_eq!(run(&looping(json!(0)), "a").0, 50, "unlimited");
    assert_eq!(run(&looping(Value::Null), "b").0, HOPS_MAX, "routes too");
}

#[test]
fn own_depth_cuts_a_pipeline_and_a_long_one_runs_to_its_end_du_096() {
    let steps = vec![json!({"uses": "a"}); 30];
    let run = |router: &Router| {
        let mut routed = emit(router, "c", &["go"], &json!({}));
        let mut made = 0;
        while let Some(job) = routed.jobs.pop() {
            made += 1;
            routed = after(router, &job, &[], &json!({})).unwrap();
        }
        made
    };
    assert_eq!(run(&one(&json!(steps))), 30);
    let capped = json!([{"name": "p", "on": "go", "max_depth": 3, "steps": steps}]);
    assert_eq!(run(&router(&capped, &Value::Null)), 3);
}

#[test]
fn hooks_start_fresh_and_their_chains_are_cut_du_097() {
    let pipelines = json!([
        {"name": "alarm", "on-hook": "job.failed", "from_plugin": "a", "steps": [{"uses": "b"}]},
        {"name": "other", "on": "job.failed", "steps": [{"uses": "c"}]},
    ]);
    let router = router(&pipelines, &Value::Null);
    let payload = json!({"status": "failed"});
    let hook = |hook, plugin, depth, max| router.hook(hook, plugin, &payload, depth, max).unwrap();
    let routed = hook(Hook::Failed, "a", 0, 0);
    assert_eq!(targets(&routed), ["b.handle@step_1"]);
    let job = &routed.jobs[0];
    assert!(
        job.enters
            && job.context.is_empty()
            && job.payload == payload
            && job.event_type == "job.failed"
    );
    assert_eq!(hook(Hook::Completed, "a", 0, 0), Routed::default());
    assert_eq!(hook(Hook::Failed, "b", 0, 0), Routed::default());
    assert_eq!(hook(Hook::Failed, "a", 3, 0).jobs.len(), 1);
    for (depth, max) in [(4, 0), (1, 1)] {
        let target = "alarm".to_owned();
        assert_eq!(
            hook(Hook::Failed, "a", depth, max).notices,
            [Notice::Cut { target, depth }]
        );
    }
    assert_eq!(
        targets(&emit(&router, "a", &["job.failed"], &json!({}))),
        ["c.handle@step_1"],
        "an event is no hook"
    );
}

proptest! {
    #[test]
    fn every_way_through_nested_splits_ends_and_no_branch_is_lost_du_088(widths in prop::collection::vec(1usize..4, 1..5)) {
        let steps: Vec<Value> = widths.iter().map(|width| json!({"split": vec![json!({"uses": "a"}); *width]})).collect();
        let router = one(&json!(steps));
        let mut jobs = emit(&router, "c", &["go"], &json!({})).jobs;
        let mut expected = 1;
        for width in widths {
            expected *= width;
            prop_assert_eq!(jobs.len(), expected);
            jobs = jobs.iter().flat_map(|job| after(&router, job, &[], &json!({})).unwrap().jobs).collect();
        }
        prop_assert!(jobs.is_empty());
    }
}
