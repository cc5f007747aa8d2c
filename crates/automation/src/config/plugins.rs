//! `plugins`: the configuration of each plugin and how it runs.
//!
//! Schedules are validated only as far as that needs no manifest.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::confinement;
use super::fields::{SectionReader, scalar_of};
use super::intents;
use super::interpolate;
use super::model::{CircuitBreaker, PluginConfig, RetryPolicy, Timeouts};
use super::node::{ConfigNode, NodeKind};
use super::problem::{ConfigProblems, wrong_kind};
use super::tokens::TokenSet;
use crate::scalar;
use crate::schedule::ScheduleEntry;

const MODES: [&str; 4] = ["every", "cron", "at", "after"];

pub(super) fn read(
    node: Option<&ConfigNode>,
    max_workers: usize,
    tokens: &TokenSet,
    report: &RefCell<ConfigProblems>,
) -> BTreeMap<String, PluginConfig> {
    let Some(node) = node else {
        return BTreeMap::new();
    };
    if !matches!(node.kind, NodeKind::Map(_)) {
        wrong_kind(
            &mut report.borrow_mut(),
            node,
            "plugins",
            "a map of plugins",
        );
    }
    let plugins = node.entries().iter().map(|entry| {
        let path = format!("plugins.{}", entry.key);
        let plugin = plugin(
            SectionReader::top(&entry.value, path, report),
            max_workers,
            tokens,
            report,
        );
        (entry.key.clone(), plugin)
    });
    plugins.collect()
}

fn plugin(
    mut fields: SectionReader<'_>,
    max_workers: usize,
    tokens: &TokenSet,
    report: &RefCell<ConfigProblems>,
) -> PluginConfig {
    let enabled = fields.flag("enabled").unwrap_or(true);
    let given = fields.node("config");
    let config = object(given, &fields.path_of("config"), report);
    if let Some(given) = given.filter(|_| enabled) {
        check_config(given, &fields, tokens, report);
    }
    if let Some(old) = fields.node("schedule") {
        let message = format!("`{}` is no longer read", fields.path_of("schedule"));
        fields.error(&old.at, message, "use `schedules:` with a list of entries");
    }
    let schedules = fields.list("schedules");
    check_schedules(schedules, &fields.path_of("schedules"), report);
    let parallelism = fields.count("parallelism", 1);
    if parallelism.is_some_and(|wanted| wanted > max_workers) {
        let path = fields.path_of("parallelism");
        let message =
            format!("`{path}` is greater than the {max_workers} of `service.max_workers`");
        fields.error(
            &fields.position_of("parallelism"),
            message,
            "lower it, or allow more workers",
        );
    }
    if let Some(path) = fields.node("path") {
        let message = format!("`{}` is ignored", fields.path_of("path"));
        fields.notice(&path.at, message, "list its directory in `plugin_roots`");
    }
    let serves = intents::serves(fields.list("serves"), &fields.path_of("serves"), report);
    fields.ignore(&["run_as", "vault_principal", "requires_vault"]);
    let plugin = PluginConfig {
        at: fields.at.clone(),
        enabled,
        uses: fields.text("uses"),
        config,
        schedules: schedules.to_vec(),
        parallelism,
        max_outstanding_polls: fields.count("max_outstanding_polls", 1).unwrap_or(1),
        timeouts: timeouts(fields.node("timeouts"), &fields.path_of("timeouts"), report),
        retry: retry(fields.section("retry")),
        circuit_breaker: circuit_breaker(fields.section("circuit_breaker")),
        notify_on_complete: fields.flag("notify_on_complete").unwrap_or(false),
        serves,
        confinement: confinement::read(&mut fields),
    };
    fields.finish();
    plugin
}

/// An enabled plugin must have all its values and the secrets that it names.
fn check_config(
    config: &ConfigNode,
    fields: &SectionReader<'_>,
    tokens: &TokenSet,
    report: &RefCell<ConfigProblems>,
) {
    let path = fields.path_of("config");
    config.each_text(&mut |at, text| {
        for name in interpolate::unfilled(text) {
            let message = format!("`{path}` needs the variable `{name}`, which is not set");
            let fix = format!("set {name} in the environment of the service");
            fields.error(at, message, fix);
        }
    });
    for entry in config.entries() {
        let key = format!("{path}.{}", entry.key);
        if !entry.key.ends_with("_ref") {
            continue;
        }
        if let NodeKind::Text(name) = &entry.value.kind {
            drop(tokens.named(name, &key, &entry.value.at, report));
        } else {
            wrong_kind(
                &mut report.borrow_mut(),
                &entry.value,
                &key,
                "the name of a secret",
            );
        }
    }
}

fn object(
    node: Option<&ConfigNode>,
    path: &str,
    report: &RefCell<ConfigProblems>,
) -> Map<String, Value> {
    match node.map(|node| (node, node.json())) {
        Some((_, Value::Object(found))) => found,
        Some((node, _)) => {
            wrong_kind(&mut report.borrow_mut(), node, path, "a map");
            Map::new()
        }
        None => Map::new(),
    }
}

/// Any key is the name of a command.
fn timeouts(node: Option<&ConfigNode>, path: &str, report: &RefCell<ConfigProblems>) -> Timeouts {
    let Some(node) = node else {
        return Timeouts::default();
    };
    if !matches!(node.kind, NodeKind::Map(_)) {
        wrong_kind(&mut report.borrow_mut(), node, path, "a map of commands");
    }
    let timeouts = node.entries().iter().filter_map(|entry| {
        let path = format!("{path}.{}", entry.key);
        let timeout = scalar_of(&entry.value, &path, scalar::duration, report)?;
        Some((entry.key.clone(), timeout))
    });
    Timeouts(timeouts.collect())
}

fn retry(mut fields: SectionReader<'_>) -> RetryPolicy {
    let usual = RetryPolicy::default();
    let retry = RetryPolicy {
        max_attempts: fields
            .count("max_attempts", 1)
            .unwrap_or(usual.max_attempts),
        backoff_base: fields
            .duration("backoff_base")
            .unwrap_or(usual.backoff_base),
    };
    fields.finish();
    retry
}

fn circuit_breaker(mut fields: SectionReader<'_>) -> CircuitBreaker {
    let usual = CircuitBreaker::default();
    let breaker = CircuitBreaker {
        threshold: fields.count("threshold", 1).unwrap_or(usual.threshold),
        reset_after: fields.duration("reset_after").unwrap_or(usual.reset_after),
    };
    fields.finish();
    breaker
}

fn check_schedules(schedules: &[ConfigNode], path: &str, report: &RefCell<ConfigProblems>) {
    let mut ids: Vec<String> = Vec::new();
    for (node, index) in schedules.iter().zip(0..) {
        let errors = report.borrow().errors();
        let mut fields = SectionReader::top(node, format!("{path}[{index}]"), report);
        let id = fields.text("id").unwrap_or_else(|| "default".to_owned());
        if ids.contains(&id) {
            let message = format!("`{path}` has the id `{id}` twice");
            fields.error(&fields.at, message, "give each schedule its own `id`");
        }
        ids.push(id);
        let modes = MODES.into_iter().filter(|mode| fields.node(mode).is_some());
        let modes: Vec<_> = modes.collect();
        if modes.len() != 1 {
            let message = format!(
                "`{path}[{index}]` must have exactly one of {}",
                MODES.join(", ")
            );
            fields.error(&fields.at, message, "");
        }
        fields.scalar("every", scalar::interval);
        fields.duration("after");
        fields.duration("jitter");
        if fields.text("command").as_deref() == Some("handle") {
            let message = "`handle` answers events and cannot be scheduled";
            fields.error(
                &fields.position_of("command"),
                message,
                "schedule `poll` or another command",
            );
        }
        let catch_up = fields.word("catch_up", &["skip", "run_once", "run_all"]);
        if catch_up.is_some_and(|word| word != "skip") && !modes.contains(&"every") {
            let message = "`catch_up` other than skip is only valid with `every`";
            fields.error(&fields.position_of("catch_up"), message, "");
        }
        fields.word("if_running", &["skip", "queue", "cancel"]);
        object(fields.node("payload"), &fields.path_of("payload"), report);
        fields.ignore(&["only_between", "timezone", "not_on", "preferred_window"]);
        // The parser of schedule entries finds the remaining errors.
        if report.borrow().errors() == errors
            && let Err(error) = ScheduleEntry::from_json(&node.json())
        {
            fields.error(&fields.at, format!("`{path}[{index}]`: {error}"), "");
        }
        fields.finish();
    }
}
