//! Runs the health command of each plugin that has one.
//!
//! Invariant: no job is left behind. A job that does not start or end in time is cancelled, and a failed one is not retried.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::commands::automation::service_args::ServiceArgs;
use crate::system::{ServiceClient, path_segment};

const COMMAND: &str = "health";
/// The number of plugins that are checked concurrently.
const AT_ONCE: usize = 8;
/// The timeout of each group: its jobs may have to wait in the queue and then run up to their own timeout.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Adds the health of the plugins to the status: to each plugin, and to the checks.
pub(super) async fn add_plugin_health(
    service: &ServiceArgs,
    whole: &mut Value,
) -> anyhow::Result<()> {
    let Some(client) = service.running().await? else {
        return Ok(());
    };
    let listed = client.get("/plugins").await?.body;
    let listed = listed["plugins"].as_array().into_iter().flatten();
    let has_health = |plugin: &&Value| {
        let mut commands = plugin["commands"].as_array().into_iter().flatten();
        commands.any(|command| command == COMMAND)
    };
    let names = listed.filter(has_health);
    let names: Vec<&str> = names.filter_map(|plugin| plugin["name"].as_str()).collect();
    for group in names.chunks(AT_ONCE) {
        let mut asked = Vec::new();
        for name in group {
            let path = format!("/plugin/{}/{COMMAND}", path_segment(name));
            asked.push((*name, client.post(&path, None).await));
        }
        let until = Instant::now() + PATIENCE;
        for (name, job) in asked {
            let said = match job {
                Ok(job) => answer(&client, &job.body["job_id"], until).await?,
                Err(error) => json!({"ok": false, "detail": error.to_string()}),
            };
            add(whole, name, said);
        }
    }
    Ok(())
}

/// The result of a single attempt.
async fn answer(client: &ServiceClient, id: &Value, until: Instant) -> anyhow::Result<Value> {
    let path = format!("/job/{}", path_segment(id.as_str().unwrap_or_default()));
    loop {
        let job = client.get(&path).await?.body;
        let is_open = matches!(job["status"].as_str(), Some("queued" | "running"));
        let has_failed = job["status"] == "queued" && job["attempt"].as_u64() > Some(1);
        let is_late = is_open && Instant::now() >= until;
        if is_open && (has_failed || is_late) {
            let reason = json!({"reason": "timeout of `status --health`"});
            // It may have ended just now.
            let _ = client.post(&format!("{path}/cancel"), Some(&reason)).await;
        }
        if has_failed || !is_open {
            let ok = job["status"] == "succeeded";
            return Ok(json!({
                "ok": ok, "job_id": id, "result": job["result"]["result"], "detail": job["last_error"],
            }));
        }
        if is_late {
            let detail = format!("no response within {} s", PATIENCE.as_secs());
            return Ok(json!({"ok": false, "job_id": id, "detail": detail}));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn add(whole: &mut Value, name: &str, said: Value) {
    let check =
        json!({"name": format!("health {name}"), "ok": said["ok"], "detail": said["detail"]});
    if said["ok"] != true {
        whole["healthy"] = false.into();
    }
    if let Some(checks) = whole["checks"].as_array_mut() {
        checks.push(check);
    }
    let mut plugins = whole["plugins"].as_array_mut().into_iter().flatten();
    if let Some(plugin) = plugins.find(|plugin| plugin["name"] == name) {
        plugin["health"] = said;
    }
}
