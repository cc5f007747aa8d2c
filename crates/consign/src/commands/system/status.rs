//! `system status`

use std::fmt::Write as _;

use consign_automation::config::SealCheck;
use consign_client::{Bytes, HeaderMap, Method};
use serde_json::{Value, json};

use super::checks::{check_lines, config_check};
use super::health;
use crate::commands::automation::config::tree::ConfigTree;
use crate::commands::automation::request::{block_on, cell, get, print, rows};
use crate::commands::automation::service_args::ServiceArgs;
use crate::data_dir::DataArgs;
use crate::ductile;
use crate::failure::{Exit, Failure};
use crate::link::ServerArgs;
use crate::system::{ServiceClient, StateDir};

const AFTER_HELP: &str = "\
Exits with 1 if a check fails, including the health command of a plugin, or if no service
runs. Without --health no plugin is run.

The status is that of the automation. If no automation is configured, it is that of the
server of the data directory (--data).";

const NO_AUTOMATION: &str = "none is configured here; one that is elsewhere is named with --config";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct StatusArgs {
    /// Run the health command of each plugin that has one, and show the result
    #[arg(long)]
    health: bool,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl StatusArgs {
    pub(crate) fn new(health: bool, data: &DataArgs, service: ServiceArgs) -> Self {
        let data = DataArgs {
            data: data.data.clone(),
        };
        Self {
            health,
            data,
            service,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let mut whole = if self.service.api_url.is_some() {
            get(&self.service, "/system/status")?
        } else {
            self.local_status()?
        };
        // Plugins can only be checked if the service responded.
        if self.health && whole["plugins"].is_array() {
            block_on(health::add_plugin_health(&self.service, &mut whole))?;
        }
        print(&self.service.tree, &whole, status_text)?;
        let healthy = whole["healthy"] == true;
        Ok(if healthy { Exit::Done } else { Exit::Failed })
    }

    /// The status of the server of the data directory; `None` if none runs there.
    fn server_status(&self) -> anyhow::Result<Option<Value>> {
        let Ok(client) = ServerArgs::of(&self.data).client() else {
            return Ok(None);
        };
        let health = block_on(async {
            let none = (HeaderMap::new(), Bytes::new());
            Ok(client.request(Method::GET, "/health", none.0, none.1).await)
        })?;
        let server = match health {
            Ok(health) => {
                let said: Value = serde_json::from_slice(&health.body).unwrap_or_default();
                let ok = health.status.is_success() && said["ok"] != false;
                let detail = said.get("reason").cloned().unwrap_or_default();
                json!({"name": "server", "ok": ok, "path": client.address().to_string(), "detail": detail})
            }
            Err(error) if error.is_unreachable() => return Ok(None),
            Err(error) => json!({"name": "server", "ok": false, "detail": error.to_string()}),
        };
        let none = json!({"name": "automation", "ok": true, "detail": NO_AUTOMATION});
        let healthy = server["ok"] == true;
        Ok(Some(json!({"healthy": healthy, "checks": [server, none]})))
    }

    fn local_status(&self) -> anyhow::Result<Value> {
        let (mut checks, tree) = match self.service.tree.find() {
            Ok(tree) => {
                let path = tree.path.display().to_string();
                let found = json!({"name": "config_discovery", "ok": true, "path": path});
                (vec![found], Some(tree))
            }
            Err(error) => {
                if !self.service.tree.is_named()
                    && !ductile::is_called()
                    && let Some(whole) = self.server_status()?
                {
                    return Ok(whole);
                }
                let detail = error.to_string();
                let missing = json!({"name": "config_discovery", "ok": false, "detail": detail});
                (vec![missing], None)
            }
        };
        let live = match tree {
            Some(tree) => block_on(service_checks(&tree, &mut checks))?,
            None => Value::Null,
        };
        let mut whole = if live.is_object() { live } else { json!({}) };
        let of_service = whole["checks"].as_array().cloned().unwrap_or_default();
        checks.extend(of_service);
        let healthy = checks.iter().all(|check| check["ok"] == true);
        whole["healthy"] = healthy.into();
        whole["checks"] = checks.into();
        Ok(whole)
    }
}

/// Adds the checks that are made from outside; returns the status that the service reports.
async fn service_checks(tree: &ConfigTree, checks: &mut Vec<Value>) -> anyhow::Result<Value> {
    let state = match StateDir::of_tree(tree) {
        Ok(state) => state,
        Err(error) => {
            let detail = error.to_string();
            checks.push(json!({"name": "config_load", "ok": false, "detail": detail}));
            return Ok(Value::Null);
        }
    };
    let external_ledger = state.external_ledger()?;
    let pid = state.service_pid();
    let report = match pid {
        Some(_) => Some(service_report(tree).await),
        None => None,
    };
    // The service has variables that this shell may lack.
    let (ok, detail) = if let Some(Ok(report)) = &report {
        (report.config["ok"] == true, report.config["detail"].clone())
    } else {
        let refused = tree.load(SealCheck::AsConfigured).err();
        let detail = refused.map(|refused| refused.to_string());
        (detail.is_none(), json!(detail))
    };
    checks.push(json!({"name": "config_load", "ok": ok, "detail": detail}));
    let start = match external_ledger {
        Some(_) => "no service runs; start the server again with `consign serve --config`",
        None => "no service runs; start one with `system start`",
    };
    checks.push(if let Some(place) = external_ledger {
        // Only the server knows the state of its store.
        let ok = matches!(report, Some(Ok(_)));
        let detail = "the store of a `consign serve --config`";
        json!({"name": "state_db", "ok": ok, "path": place, "detail": detail})
    } else {
        let ledger = state.ledger();
        let detail = (!ledger.is_file()).then_some("nothing has run yet");
        json!({"name": "state_db", "ok": detail.is_none(), "path": ledger, "detail": detail})
    });
    let detail = pid.is_none().then_some(start);
    checks.push(
        json!({"name": "pid_lock", "ok": pid.is_some(), "active_pid": pid, "detail": detail}),
    );
    let Some(report) = report else {
        return Ok(Value::Null);
    };
    let detail = report.as_ref().err().map(ToString::to_string);
    let (ok, path) = (report.is_ok(), state.socket());
    checks.push(json!({"name": "control_socket", "ok": ok, "path": path, "detail": detail}));
    Ok(report.map_or(Value::Null, |report| report.status))
}

/// What the service reports.
struct ServiceReport {
    status: Value,
    /// The check of the configuration on disk.
    config: Value,
}

async fn service_report(tree: &ConfigTree) -> anyhow::Result<ServiceReport> {
    let Some(client) = ServiceClient::connect_running(tree).await? else {
        return Err(Failure::failed("the service has just stopped").into());
    };
    Ok(ServiceReport {
        status: client.get("/system/status").await?.body,
        config: config_check(&client).await?,
    })
}

fn status_text(whole: &Value) -> String {
    let mut text = check_lines(&whole["checks"]);
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
            plugin["answer"] = health_text(&plugin["health"]);
        }
        let mut columns = vec![
            ("PLUGIN", "name"),
            ("HEALTHY", "healthy"),
            ("BREAKER", "breaker"),
            ("LAST RUN", "last_status"),
            ("AT", "last_at"),
        ];
        let each = || plugins.as_array().into_iter().flatten();
        if each().any(|plugin| plugin["health"].is_object()) {
            columns.push(("SAYS", "answer"));
        }
        text.push_str(&rows(&plugins, &columns));
        for plugin in each().filter(|plugin| plugin["state"].is_object()) {
            let [name, state, at] =
                ["name", "state", "state_updated_at"].map(|key| cell(&plugin[key]));
            let _ = writeln!(text, "\nstate of {name}, {at}\n    {state}");
        }
        for plugin in each().filter(|plugin| plugin["state_left_out"] == true) {
            let [name, bytes] = ["name", "state_bytes"].map(|key| cell(&plugin[key]));
            let _ = writeln!(
                text,
                "\nthe state of {name} has {bytes} bytes, which is too large to show"
            );
        }
    }
    text
}

/// The result of a health command, or why there is none.
fn health_text(health: &Value) -> Value {
    let key = if health["ok"] == true {
        "result"
    } else {
        "detail"
    };
    health[key].clone()
}
