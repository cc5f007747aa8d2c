//! `schedule next`: what the configuration alone foretells, as if every run succeeded at once.

use consign_automation::schedule::{Entry, Mode};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::commands::automation::ask::{load, print, rows};
use crate::commands::automation::config::tree::TreeArgs;
use crate::failure::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this plugin's
    #[arg(value_name = "PLUGIN")]
    plugin: Option<String>,

    /// So many of each schedule
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let program = load(&self.tree.find()?)?;
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
                for at in instants(entry, now, self.count) {
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

/// Without jitter, which chance decides when the time comes.
fn instants(entry: &Entry, now: Timestamp, count: u32) -> Vec<Timestamp> {
    let system = TimeZone::system();
    let zone = entry.timezone.clone().unwrap_or(TimeZone::UTC);
    let mut state = entry.first_sight(now, &system, 0);
    let mut found = Vec::new();
    while let Some(due) = state.next_run_at
        && found.len() < count as usize
    {
        // Outside of its hours it waits until they begin.
        let mut at = due.max(now);
        while let Some((_, opens_at)) = entry.window.closed(at, &zone) {
            at = opens_at;
        }
        found.push(at);
        entry.fired(&mut state, at, &system, 0);
        if let Mode::Every(every) = entry.mode {
            let every = SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX);
            state.next_run_at = at.checked_add(every).ok();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_follow_the_entry_and_its_hours() {
        let entry = |value| Entry::from_json(&value).unwrap();
        let now: Timestamp = "2026-03-02T10:00:30Z".parse().unwrap();
        let next = |value, count| -> Vec<String> {
            let instants = instants(&entry(value), now, count);
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
}
