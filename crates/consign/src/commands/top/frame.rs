//! The overview as lines.

use std::time::Duration;

use serde_json::Value;

use super::list::WantedRows;
use super::terminal::ScreenLine;
use super::view::PASSED_MIN;
use crate::commands::status;
use crate::figures::{bytes, count, rate};
use crate::render;

/// The look before this one.
#[derive(Debug)]
pub(super) struct Passed<'a> {
    pub(super) status: &'a Value,
    /// Between the two looks.
    pub(super) time: Duration,
}

/// The lines that can be selected, in the order of the overview: faces, then goals.
pub(super) fn selectable(status: &Value) -> Vec<WantedRows> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let faces = list(status, "faces").map(|face| WantedRows::Recent {
        face: text(&face["face"]),
        namespace: None,
        goal: None,
    });
    let goals = list(status, "goals").map(|goal| WantedRows::Recent {
        face: text(&goal["face"]),
        namespace: Some(text(&goal["namespace"])),
        goal: Some(text(&goal["goal"])),
    });
    faces.chain(goals).collect()
}

/// Health, faces with rates, goals, nodes and parts. Goals are left out where the screen ends.
pub(super) fn overview(
    status: &Value,
    before: Option<&Passed<'_>>,
    selected: usize,
    lines_max: usize,
) -> Vec<ScreenLine> {
    let mut lines = vec![
        ScreenLine::plain(status::headline(status)),
        ScreenLine::plain(machine(status)),
        ScreenLine::plain(""),
    ];
    let below = below(status);
    let faces: Vec<Vec<String>> = list(status, "faces")
        .enumerate()
        .map(|(index, face)| face_row(index, face, before))
        .collect();
    let face_count = faces.len();
    let heading = [
        "FACE", "WAITING", "HELD", "DEAD", "OLDEST", "PUB/s", "CLAIM/s", "DONE/s", "FAIL/s",
    ];
    lines.extend(table(&heading, &faces, selected, 0));
    let goals: Vec<Vec<String>> = list(status, "goals")
        .map(|goal| goal_row(goal, before))
        .collect();
    if !goals.is_empty() {
        lines.push(ScreenLine::plain(""));
        let heading = [
            "GOAL", "FACE", "PUB/s", "CLAIM/s", "DONE/s", "FAIL/s", "DEAD",
        ];
        // One line for the keys.
        let room = lines_max.saturating_sub(lines.len() + below.len() + 2);
        let from_selected = (selected + 1).saturating_sub(face_count);
        let skipped = from_selected.saturating_sub(room);
        let shown: Vec<Vec<String>> = goals.into_iter().skip(skipped).take(room).collect();
        lines.extend(table(&heading, &shown, selected, face_count + skipped));
    }
    lines.extend(below);
    lines
}

fn machine(status: &Value) -> String {
    let (ledger, server) = (&status["ledger"], &status["parts"]["server"]);
    let text = |value: &Value| render::safe(value.as_str().unwrap_or("?"));
    format!(
        "ledger {}, {} requests wait, {} failed commits; disk {} free; memory {}",
        text(&ledger["health"]),
        count(&ledger["waiting_requests"]),
        count(&ledger["failed_commits"]),
        bytes(count(&server["disk_free_bytes"])),
        bytes(count(&server["resident_bytes"])),
    )
}

fn face_row(index: usize, face: &Value, before: Option<&Passed<'_>>) -> Vec<String> {
    let earlier = before.map(|before| (&before.status["faces"][index], before.time));
    let mut row = vec![
        cell(&face["face"]),
        count(&face["waiting"]).to_string(),
        count(&face["held"]).to_string(),
        count(&face["dead"]).to_string(),
        status::oldest(face),
    ];
    row.extend(rates(face, earlier));
    row
}

fn goal_row(goal: &Value, before: Option<&Passed<'_>>) -> Vec<String> {
    // The busiest goals come first, so their order changes between two looks.
    let is_same = |other: &&Value| {
        ["face", "namespace", "goal"]
            .iter()
            .all(|key| other[*key] == goal[*key])
    };
    let earlier = before.and_then(|before| {
        let found = list(before.status, "goals").find(is_same)?;
        Some((found, before.time))
    });
    let name = format!("{}/{}", cell(&goal["namespace"]), cell(&goal["goal"]));
    let mut row = vec![cut(&name, 36), cell(&goal["face"])];
    row.extend(rates(goal, earlier));
    row.push(count(&goal["counters"]["dead"]).to_string());
    row
}

/// How often per second each of these happened since the earlier look.
fn rates(now: &Value, earlier: Option<(&Value, Duration)>) -> [String; 4] {
    ["published", "claimed", "fulfilled", "failed"].map(|kind| {
        let Some((earlier, time)) = earlier else {
            return "-".to_owned();
        };
        let of = |value: &Value| count(&value["counters"][kind]);
        // Smaller counters are those of a server that was started again.
        let more = of(now).saturating_sub(of(earlier));
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let more = more as f64;
        rate(more / time.max(PASSED_MIN).as_secs_f64())
    })
}

/// Nodes, parts and problems.
fn below(status: &Value) -> Vec<ScreenLine> {
    let mut lines = vec![ScreenLine::plain("")];
    let nodes: Vec<String> = list(status, "nodes")
        .map(|node| {
            format!(
                "{} {} ({} leases)",
                cell(&node["name"]),
                cell(&node["state"]),
                count(&node["leases"])
            )
        })
        .collect();
    lines.push(ScreenLine::plain(format!("nodes: {}", nodes.join(", "))));
    let parts = &status["parts"];
    let figure = |part: &str, names: &[&str]| {
        parts[part].is_object().then(|| {
            let shown = names.iter().map(|name| {
                let value = &parts[part][*name];
                format!("{} {}", name.replace('_', " "), count(value))
            });
            format!("{part}: {}", shown.collect::<Vec<_>>().join(", "))
        })
    };
    let jobs = figure("automation", &["queued", "running", "delayed", "dead"]);
    let transactions = figure("transactions", &["executing", "executed", "stuck"]);
    lines.extend(
        [jobs, transactions]
            .into_iter()
            .flatten()
            .map(ScreenLine::plain),
    );
    let problems = list(status, "problems").take(3);
    lines.extend(problems.map(|problem| {
        ScreenLine::plain(format!(
            "{}: {}",
            cell(&problem["level"]),
            cell(&problem["what"])
        ))
    }));
    lines
}

/// A table whose line with this number is selected; its lines have the numbers from `first` on.
fn table(heading: &[&str], rows: &[Vec<String>], selected: usize, first: usize) -> Vec<ScreenLine> {
    let text = render::table(heading, rows);
    let lines = text.lines().enumerate();
    lines
        .map(|(index, line)| ScreenLine {
            text: line.to_owned(),
            // The heading is the first line.
            selected: index > 0 && first + index - 1 == selected,
        })
        .collect()
}

fn list<'a>(status: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    status[key].as_array().into_iter().flatten()
}

fn cell(value: &Value) -> String {
    render::safe(value.as_str().unwrap_or_default())
}

fn cut(text: &str, chars_max: usize) -> String {
    render::summary(text, chars_max)
}
