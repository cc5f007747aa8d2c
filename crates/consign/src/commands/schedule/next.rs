//! `schedule next`: the next runs from the current state of each schedule, as if every run succeeded at once.
//!
//! The state comes from the running service or the ledger; a schedule that neither knows starts now. A paused or exhausted
//! schedule has no runs.

use consign_automation::schedule::ScheduleEntry;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::commands::automation::config::tree::{ConfigTree, TreeArgs};
use crate::commands::automation::request::{block_on, load, print, rows};
use crate::failure::{Exit, Failure};
use crate::system::{ServiceClient, StateDir, WhenStopped};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only schedules of this plugin
    #[arg(value_name = "PLUGIN")]
    plugin: Option<String>,

    /// The number of runs per schedule
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let tree = self.tree.find()?;
        let program = load(&tree)?;
        if let Some(name) = &self.plugin
            && program.plugin(name).is_none()
        {
            return Err(Failure::failed(program.missing_plugin(name)).into());
        }
        let known_schedules = known_schedules(&tree)?;
        let now = Timestamp::now();
        let mut found = Vec::new();
        for plugin in program.plugins() {
            if self
                .plugin
                .as_ref()
                .is_some_and(|name| *name != plugin.name)
            {
                continue;
            }
            for entry in &plugin.schedules {
                let known = known_schedules.iter().find(|one| {
                    one["plugin"] == plugin.name.as_str() && one["schedule_id"] == entry.id.as_str()
                });
                for at in instants(entry, known, now, self.count) {
                    found.push((
                        at,
                        plugin.name.clone(),
                        entry.id.clone(),
                        entry.command.clone(),
                    ));
                }
            }
        }
        found.sort();
        let listed = found.iter().map(|(at, plugin, id, command)| {
            json!({"at": at.to_string(), "plugin": plugin, "schedule_id": id, "command": command})
        });
        let listed = json!({"next": listed.collect::<Vec<_>>()});
        print(&self.tree, &listed, |listed| {
            let columns = [
                ("AT", "at"),
                ("PLUGIN", "plugin"),
                ("SCHEDULE", "schedule_id"),
                ("COMMAND", "command"),
            ];
            rows(&listed["next"], &columns)
        })
    }
}

/// All schedules with their state; empty if nothing has run yet.
fn known_schedules(tree: &ConfigTree) -> anyhow::Result<Vec<Value>> {
    let has_ledger = StateDir::of(&tree.peek()?).ledger().exists();
    block_on(async {
        let client = match ServiceClient::connect_running(tree).await? {
            Some(client) => client,
            None if has_ledger => ServiceClient::new(tree, WhenStopped::ReadLedger).await?,
            None => return Ok(Vec::new()),
        };
        let answer = client.get("/schedules").await;
        client.close().await?;
        let schedules = answer?.body["schedules"].as_array().cloned();
        Ok(schedules.unwrap_or_default())
    })
}

/// Without jitter after the next run, because it is drawn when a run is due.
fn instants(
    entry: &ScheduleEntry,
    known: Option<&Value>,
    now: Timestamp,
    count: u32,
) -> Vec<Timestamp> {
    let system = TimeZone::system();
    let mut state = entry.initial_state(now, &system, 0);
    if let Some(known) = known {
        if known["status"] != "active" {
            return Vec::new();
        }
        let next = known["next_run_at"].as_str();
        state.next_run_at = next.and_then(|next| next.parse().ok());
    }
    entry.coming(&state, now, &system, count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_follow_the_entry_and_its_hours() {
        let entry = |value| ScheduleEntry::from_json(&value).unwrap();
        let now: Timestamp = "2026-03-02T10:00:30Z".parse().unwrap();
        let next = |value, count| -> Vec<String> {
            let instants = instants(&entry(value), None, now, count);
            instants.iter().map(Timestamp::to_string).collect()
        };
        assert_eq!(
            next(json!({"cron": "0 12 * * *", "timezone": "UTC"}), 2),
            ["2026-03-02T12:00:00Z", "2026-03-03T12:00:00Z"]
        );
        assert_eq!(
            next(json!({"every": "1h"}), 2),
            ["2026-03-02T10:00:30Z", "2026-03-02T11:00:30Z"]
        );
        assert_eq!(
            next(json!({"every": "1h", "only_between": "12:00-18:00"}), 1),
            ["2026-03-02T12:00:00Z"]
        );
        assert_eq!(
            next(json!({"at": "2026-03-03T00:00:00Z"}), 5),
            ["2026-03-03T00:00:00Z"]
        );
    }

    #[test]
    fn instants_begin_where_the_schedule_stands_and_a_paused_one_has_none() {
        let entry = ScheduleEntry::from_json(&json!({"every": "1h"})).unwrap();
        let now: Timestamp = "2026-03-02T10:00:30Z".parse().unwrap();
        let known =
            |status| json!({"status": status, "next_run_at": "2026-03-02T10:40:00.000000000Z"});
        let next = instants(&entry, Some(&known("active")), now, 2);
        let next: Vec<String> = next.iter().map(Timestamp::to_string).collect();
        assert_eq!(next, ["2026-03-02T10:40:00Z", "2026-03-02T11:40:00Z"]);
        assert!(instants(&entry, Some(&known("paused_manual")), now, 2).is_empty());
    }
}
