//! `system status`

use std::fmt::Write as _;

use consign_automation::config::Verify;
use serde_json::{Value, json};

use crate::commands::automation::ask::{block_on, cell, print, rows};
use crate::commands::automation::config::tree::{Tree, TreeArgs};
use crate::failure::Exit;
use crate::system::{Reach, StateDir};

const AFTER_HELP: &str = "Ends with 1 if something is wrong, or if no service runs.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl StatusArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (mut checks, tree) = match self.tree.find() {
            Ok(tree) => {
                let path = tree.path.display().to_string();
                let found = json!({"name": "config_discovery", "ok": true, "path": path});
                (vec![found], Some(tree))
            }
            Err(error) => {
                let detail = error.to_string();
                let missing = json!({"name": "config_discovery", "ok": false, "detail": detail});
                (vec![missing], None)
            }
        };
        let live = match tree {
            Some(tree) => block_on(look(&tree, &mut checks))?,
            None => Value::Null,
        };
        let mut whole = if live.is_object() { live } else { json!({}) };
        let of_service = whole["checks"].as_array().cloned().unwrap_or_default();
        checks.extend(of_service);
        let healthy = checks.iter().all(|check| check["ok"] == true);
        whole["healthy"] = healthy.into();
        whole["checks"] = checks.into();
        print(&self.tree, &whole, shown)?;
        Ok(if healthy { Exit::Done } else { Exit::Failed })
    }
}

/// Adds what can be seen from outside, and gives what the service tells of itself.
async fn look(tree: &Tree, checks: &mut Vec<Value>) -> anyhow::Result<Value> {
    let loaded = tree.load(Verify::AsConfigured);
    let detail = loaded.as_ref().err().map(ToString::to_string);
    checks.push(json!({"name": "config_load", "ok": loaded.is_ok(), "detail": detail}));
    let Ok(config) = tree.peek() else {
        return Ok(Value::Null);
    };
    let state = StateDir::of(&config);
    let pid = state.running();
    let detail = pid
        .is_none()
        .then_some("no service runs; start one with `system start`");
    let lock =
        json!({"name": "pid_lock", "ok": pid.is_some(), "active_pid": pid, "detail": detail});
    let answered = match pid {
        Some(_) => Some(asked(tree).await),
        None => None,
    };
    let ledger = state.ledger();
    // Beside the Intent Protocol the ledger is the server's, and lies elsewhere.
    let kept = ledger.is_file() || matches!(answered, Some(Ok(_)));
    let detail = (!kept).then_some("nothing has run yet");
    checks.push(json!({"name": "state_db", "ok": kept, "path": ledger, "detail": detail}));
    checks.push(lock);
    let Some(answered) = answered else {
        return Ok(Value::Null);
    };
    let detail = answered.as_ref().err().map(ToString::to_string);
    let (ok, path) = (answered.is_ok(), state.socket());
    checks.push(json!({"name": "control_socket", "ok": ok, "path": path, "detail": detail}));
    Ok(answered.unwrap_or(Value::Null))
}

async fn asked(tree: &Tree) -> anyhow::Result<Value> {
    match Reach::of_running(tree).await? {
        Some(reach) => Ok(reach.get("/system/status").await?.body),
        None => Ok(Value::Null),
    }
}

fn shown(whole: &Value) -> String {
    let mut text = String::new();
    for check in whole["checks"].as_array().into_iter().flatten() {
        let word = if check["ok"] == true { "ok" } else { "NOT OK" };
        let more = [&check["path"], &check["active_pid"], &check["detail"]];
        let more: Vec<String> = more
            .into_iter()
            .map(|value| cell(value).replace("\\u{a}", " "))
            .filter(|text| !text.is_empty())
            .collect();
        let line = format!("{word:6}  {}  {}", cell(&check["name"]), more.join("  "));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if whole["queue"].is_object() {
        let queue = &whole["queue"];
        let count = |key: &str| cell(&queue[key]);
        let _ = writeln!(
            text,
            "\nqueued {}, running {}, failed {}, dead {}; up for {} s\n",
            count("queued"),
            count("running"),
            count("failed"),
            count("dead"),
            cell(&whole["uptime_seconds"]),
        );
        let mut plugins = whole["plugins"].clone();
        for plugin in plugins.as_array_mut().into_iter().flatten() {
            plugin["last_status"] = plugin["last_run"]["status"].clone();
            plugin["last_at"] = plugin["last_run"]["completed_at"].clone();
        }
        let columns = [
            ("PLUGIN", "name"),
            ("HEALTHY", "healthy"),
            ("BREAKER", "breaker"),
            ("LAST RUN", "last_status"),
            ("AT", "last_at"),
        ];
        text.push_str(&rows(&plugins, &columns));
    }
    text
}
