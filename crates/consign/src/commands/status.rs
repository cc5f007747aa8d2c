//! `consign status`: the whole server on one page.

use std::fmt::Write as _;

use clap::Args;
use consign_client::Client;
use serde_json::{Value, json};

use crate::cli::single_thread;
use crate::commands::automation::service_args::ServiceArgs;
use crate::commands::system;
use crate::failure::{self, Exit, Failure};
use crate::figures::{age, bytes, count};
use crate::link::AdminArgs;
use crate::{ductile, out, render};

const AFTER_HELP: &str = "\
Exit codes:
  0  healthy; there may be warnings, such as dead letters
  1  not healthy
  5  no server runs, or it cannot be reached

With --config, --config-dir, --api-url or --health it is the status of an automation that
runs by itself, as `consign system status` shows it.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServerStatusArgs {
    /// Run the health command of each plugin that has one, and show the result
    #[arg(long)]
    health: bool,

    #[command(flatten)]
    service: ServiceArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

impl ServerStatusArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let is_json = self.service.tree.output.json;
        let ended = if self.health || self.service.is_named() {
            system::StatusArgs::new(self.health, self.admin.data(), self.service).run()
        } else {
            single_thread()?.block_on(self.show())
        };
        match ended {
            Err(error) if is_json => failure::report_json(&error),
            ended => ended,
        }
    }

    async fn show(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let status = fetch(&client).await?;
        if self.service.tree.output.json {
            out::json(&status)?;
        } else {
            out::data(&text(&status))?;
        }
        Ok(exit(&status))
    }
}

/// The state of the server, with its address as this command reached it.
pub(crate) async fn fetch(client: &Client) -> anyhow::Result<Value> {
    let status = client.server_status().await;
    let mut status = match status {
        Err(error) if error.status().is_some_and(|status| status.as_u16() == 404) => {
            let message = format!("{} does not tell its status", client.address());
            let hint = "it is an older version; consign node list and /metrics work with it";
            return Err(Failure::failed(message).hint(hint).into());
        }
        other => other?,
    };
    status["reached_at"] = json!(client.address().to_string());
    Ok(status)
}

pub(crate) fn exit(status: &Value) -> Exit {
    if status["healthy"] == true {
        Exit::Done
    } else {
        Exit::Failed
    }
}

/// A page for people.
pub(crate) fn text(status: &Value) -> String {
    let mut text = format!("{}\n", headline(status));
    text.push_str(&render::fields(&about(status)));
    text.push('\n');
    text.push_str(&face_table(status));
    let nodes = status["nodes"].as_array().into_iter().flatten();
    if nodes.clone().count() > 1 {
        text.push('\n');
        text.push_str(&node_table(nodes));
    }
    for (name, figures) in status["parts"].as_object().into_iter().flatten() {
        if name != "server" {
            let _ = write!(text, "\n{name}: {}\n", figures_line(figures));
        }
    }
    text.push_str(&problem_lines(status));
    text
}

/// Version, address and health.
pub(crate) fn headline(status: &Value) -> String {
    let of_level = |level: &str| {
        let problems = status["problems"].as_array().into_iter().flatten();
        problems.filter(|problem| problem["level"] == level).count()
    };
    let health = match (
        status["healthy"] == true,
        of_level("error"),
        of_level("warning"),
    ) {
        (true, _, 0) => "healthy".to_owned(),
        (true, _, 1) => "healthy, with 1 warning".to_owned(),
        (true, _, many) => format!("healthy, with {many} warnings"),
        (false, 1, _) => "NOT HEALTHY: 1 error".to_owned(),
        (false, many, _) => format!("NOT HEALTHY: {many} errors"),
    };
    let draining = if status["draining"] == true {
        ", hands out no work"
    } else {
        ""
    };
    format!(
        "consign {} at {} is {health}{draining}",
        word(&status["version"]),
        word(&status["reached_at"])
    )
}

fn about(status: &Value) -> Vec<(&'static str, Option<String>)> {
    let server = &status["parts"]["server"];
    let now = status["at"].as_f64().unwrap_or_default();
    let since = |at: &Value| at.as_f64().map(|at| age((now - at).max(0.0)));
    let ledger = &status["ledger"];
    let place = server["ledger"].as_str().map(|place| {
        format!(
            "{}: {} {}, schema {}",
            word(&ledger["health"]),
            word(&server["ledger_kind"]),
            render::safe(place),
            server["schema"]
        )
    });
    let disk = server["disk_free_bytes"].as_u64().map(|free| {
        format!(
            "{} of {} free",
            bytes(free),
            bytes(count(&server["disk_bytes"]))
        )
    });
    let process = since(&server["started_at"]).map(|up| {
        format!(
            "up for {up}, pid {}, {} of memory, {} open files",
            server["pid"],
            bytes(count(&server["resident_bytes"])),
            count(&server["open_files"])
        )
    });
    let clock = if status["clock"]["wrong"] == true {
        "differs from the clock of the database; no work is handed out"
    } else {
        "ok"
    };
    let cleanup = since(&status["last_cleanup_at"]).map(|ago| format!("{ago} ago"));
    vec![
        (
            "ledger",
            Some(place.unwrap_or_else(|| word(&ledger["health"]))),
        ),
        (
            "writer",
            Some(format!(
                "{} commits, {} failed, {} requests wait",
                count(&ledger["commits"]),
                count(&ledger["failed_commits"]),
                count(&ledger["waiting_requests"])
            )),
        ),
        ("process", process),
        ("disk", disk),
        ("clock", Some(clock.to_owned())),
        ("cleanup", cleanup),
        ("data", server["data"].as_str().map(render::safe)),
    ]
}

fn face_table(status: &Value) -> String {
    let faces = status["faces"].as_array().into_iter().flatten();
    let used = faces.filter(|face| face["face"] == "intent" || is_used(face));
    let rows: Vec<Vec<String>> = used
        .map(|face| {
            let counter = |kind: &str| count(&face["counters"][kind]).to_string();
            vec![
                word(&face["face"]),
                count(&face["waiting"]).to_string(),
                count(&face["held"]).to_string(),
                count(&face["dead"]).to_string(),
                oldest(face),
                counter("published"),
                counter("claimed"),
                counter("fulfilled"),
                counter("failed"),
                counter("expired"),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = [
        "FACE",
        "WAITING",
        "HELD",
        "DEAD",
        "OLDEST",
        "PUBLISHED",
        "CLAIMED",
        "FULFILLED",
        "FAILED",
        "EXPIRED",
    ];
    render::table(&heading, &rows)
}

/// For how long the oldest row of a face has waited.
pub(crate) fn oldest(face: &Value) -> String {
    face["oldest_waiting_s"]
        .as_f64()
        .map_or_else(|| "-".to_owned(), age)
}

fn is_used(face: &Value) -> bool {
    let has = |value: &Value| {
        let mut figures = value.as_object().into_iter().flatten();
        figures.any(|(_, figure)| count(figure) > 0)
    };
    has(&face["states"]) || has(&face["counters"])
}

fn node_table<'a>(nodes: impl Iterator<Item = &'a Value>) -> String {
    let rows: Vec<Vec<String>> = nodes
        .map(|node| {
            let here = if node["here"] == true { " (this)" } else { "" };
            vec![
                format!("{}{here}", word(&node["name"])),
                word(&node["state"]),
                count(&node["leases"]).to_string(),
                word(&node["address"]),
                word(&node["version"]),
            ]
        })
        .collect();
    render::table(&["NODE", "STATE", "LEASES", "ADDRESS", "VERSION"], &rows)
}

/// `name value, name value`, nested ones with their names.
fn figures_line(figures: &Value) -> String {
    let figures = figures.as_object().into_iter().flatten();
    let shown = figures.map(|(name, value)| {
        let name = name.replace('_', " ");
        match value {
            Value::Object(_) => format!("{name} ({})", figures_line(value)),
            Value::String(text) => format!("{name} {}", render::safe(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                format!("{name} {value}")
            }
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The problems, each with its reason and the next step.
pub(crate) fn problem_lines(status: &Value) -> String {
    let mut text = String::new();
    for problem in status["problems"].as_array().into_iter().flatten() {
        let part = |key: &str| {
            let told = ductile::typed(problem[key].as_str().unwrap_or_default());
            render::block(&told, 9)
        };
        let _ = write!(
            text,
            "\n{:8} {}\n         {}\n         {}\n",
            word(&problem["level"]),
            part("what"),
            part("why"),
            part("next")
        );
    }
    text
}

fn word(value: &Value) -> String {
    render::safe(value.as_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_health_depth_and_what_to_do() {
        let status = json!({
            "healthy": true, "at": 1_000.0, "version": "0.1.0", "draining": false,
            "reached_at": "http://127.0.0.1:7070",
            "ledger": {"health": "ok", "commits": 5, "failed_commits": 0, "waiting_requests": 0},
            "clock": {"wrong": false}, "last_cleanup_at": 940.0,
            "faces": [
                {"face": "intent", "waiting": 2, "held": 1, "dead": 3, "oldest_waiting_s": 75.0,
                 "states": {"queued": 2}, "counters": {"published": 9}},
                {"face": "beam", "states": {}, "counters": {"published": 0}},
            ],
            "nodes": [{"name": "one", "here": true}],
            "parts": {
                "server": {"ledger": "/d/consign.db", "ledger_kind": "SQLite", "schema": 2,
                           "disk_free_bytes": 1_u64 << 30, "disk_bytes": 2_u64 << 30, "data": "/d",
                           "started_at": 0.0, "pid": 7, "resident_bytes": 1 << 20, "open_files": 9},
                "transactions": {"stuck": 0},
            },
            "problems": [{"level": "warning", "what": "3 intents are dead letters", "why": "so\u{1b}[2J",
                          "next": "see them"}],
        });
        assert_eq!(
            text(&status),
            "\
consign 0.1.0 at http://127.0.0.1:7070 is healthy, with 1 warning
ledger   ok: SQLite /d/consign.db, schema 2
writer   5 commits, 0 failed, 0 requests wait
process  up for 16m 40s, pid 7, 1.0 MiB of memory, 9 open files
disk     1.0 GiB of 2.0 GiB free
clock    ok
cleanup  1m ago
data     /d

FACE    WAITING  HELD  DEAD  OLDEST  PUBLISHED  CLAIMED  FULFILLED  FAILED  EXPIRED
intent  2        1     3     1m 15s  9          0        0          0       0

transactions: stuck 0

warning  3 intents are dead letters
         so\\u{1b}[2J
         see them
"
        );
        assert_eq!(exit(&status), Exit::Done);
    }

    #[test]
    fn a_server_whose_ledger_cannot_be_read_is_not_healthy() {
        let status = json!({
            "healthy": false, "version": "0.1.0", "reached_at": "x", "ledger": {"health": "unreadable"},
            "clock": {"wrong": true},
            "problems": [{"level": "error", "what": "a", "why": "b", "next": "c"}],
        });
        let shown = text(&status);
        assert!(shown.contains("NOT HEALTHY: 1 error"), "{shown}");
        assert!(shown.contains("ledger   unreadable\n"), "{shown}");
        assert!(
            shown.contains("error    a\n         b\n         c\n"),
            "{shown}"
        );
        assert_eq!(exit(&status), Exit::Failed);
    }
}
