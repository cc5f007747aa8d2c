//! One entry of `schedules:`, parsed from the configuration.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::cron::{self, Cron};
use super::window::{self, FiringWindow};
use crate::scalar::{self, ScalarError};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("a schedule must be a mapping, such as {{every: 15m}}")]
    Shape,
    #[error("`{key}` of a schedule must be {expected}")]
    Type {
        key: &'static str,
        expected: &'static str,
    },
    #[error("a schedule needs exactly one of every, cron, at, after; this one has {0}")]
    Modes(usize),
    #[error("{key}: {source}")]
    Scalar {
        key: &'static str,
        source: ScalarError,
    },
    #[error(transparent)]
    Cron(#[from] cron::Error),
    #[error("at `{0}` is not a time; write RFC 3339 with a zone, such as 2026-03-01T09:00:00Z")]
    Instant(String),
    #[error("timezone `{0}` is unknown; write an IANA name, such as Europe/Berlin")]
    Zone(String),
    #[error(transparent)]
    Window(#[from] window::Error),
    #[error("{key} `{found}` is unknown; write {expected}")]
    Policy {
        key: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("catch_up needs every; remove it, or write every instead of cron, at or after")]
    CatchUpMode,
    #[error("handle needs an event and cannot be scheduled; write another command, such as poll")]
    ScheduledHandle,
    #[error("plugin `{plugin}` has no command `{command}`; write one that its manifest declares")]
    UndeclaredCommand { plugin: String, command: String },
}

impl Error {
    /// Why the entry is paused, in the words of the event stream.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ScheduledHandle => "scheduled_handle_disallowed",
            Self::UndeclaredCommand { .. } => "command_not_supported",
            Self::Shape
            | Self::Type { .. }
            | Self::Modes(_)
            | Self::Scalar { .. }
            | Self::Cron(_)
            | Self::Instant(_)
            | Self::Zone(_)
            | Self::Window(_)
            | Self::Policy { .. }
            | Self::CatchUpMode => "invalid_schedule_config",
        }
    }
}

/// `preferred_window` is accepted and has no effect.
const KEYS: [&str; 14] = [
    "id",
    "every",
    "cron",
    "at",
    "after",
    "command",
    "payload",
    "jitter",
    "catch_up",
    "if_running",
    "only_between",
    "timezone",
    "not_on",
    "preferred_window",
];

#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleMode {
    /// Repeatedly, counted from each successful end.
    Every(Duration),
    Cron(Cron),
    /// Once.
    At(Timestamp),
    /// Once, counted from the first time the entry was seen.
    After(Duration),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    #[default]
    Skip,
    RunOnce,
    RunAll,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IfRunning {
    #[default]
    Skip,
    Queue,
    Cancel,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleEntry {
    pub id: String,
    pub mode: ScheduleMode,
    pub command: String,
    pub payload: Map<String, Value>,
    pub jitter: Duration,
    pub catch_up: CatchUp,
    pub if_running: IfRunning,
    pub window: FiringWindow,
    /// As configured; the default is the system's zone for cron and UTC for windows.
    pub timezone: Option<TimeZone>,
}

impl ScheduleEntry {
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let fields = EntryFields(value.as_object().ok_or(Error::Shape)?);
        let mode = fields.mode()?;
        let catch_up = match fields.text("catch_up")?.unwrap_or("skip") {
            "skip" => CatchUp::Skip,
            "run_once" => CatchUp::RunOnce,
            "run_all" => CatchUp::RunAll,
            other => return Err(unknown("catch_up", other, "skip, run_once or run_all")),
        };
        if catch_up != CatchUp::Skip && !matches!(mode, ScheduleMode::Every(_)) {
            return Err(Error::CatchUpMode);
        }
        let if_running = match fields.text("if_running")?.unwrap_or("skip") {
            "skip" => IfRunning::Skip,
            "queue" => IfRunning::Queue,
            "cancel" => IfRunning::Cancel,
            other => return Err(unknown("if_running", other, "skip, queue or cancel")),
        };
        let command = fields.text("command")?.unwrap_or("poll").to_owned();
        if command == "handle" {
            return Err(Error::ScheduledHandle);
        }
        let zone = |name: &str| TimeZone::get(name).map_err(|_| Error::Zone(name.to_owned()));
        Ok(Self {
            id: fields.text("id")?.unwrap_or("default").to_owned(),
            mode,
            command,
            payload: fields.payload()?,
            jitter: fields.duration("jitter")?.unwrap_or_default(),
            catch_up,
            if_running,
            window: FiringWindow::parse(fields.text("only_between")?, fields.0.get("not_on"))?,
            timezone: fields.text("timezone")?.map(zone).transpose()?,
        })
    }

    /// Unknown keys, which may be misspelt.
    pub fn unknown_keys(value: &Value) -> Vec<&str> {
        let keys = value.as_object().into_iter().flat_map(Map::keys);
        keys.map(String::as_str)
            .filter(|key| !KEYS.contains(key))
            .collect()
    }

    /// The manifest decides which commands can be scheduled.
    pub fn check_command(
        &self,
        plugin: &str,
        declared: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        if declared(&self.command) {
            return Ok(());
        }
        Err(Error::UndeclaredCommand {
            plugin: plugin.to_owned(),
            command: self.command.clone(),
        })
    }

    /// `every`, `cron`, `at` or `after`.
    pub fn mode_word(&self) -> &'static str {
        match self.mode {
            ScheduleMode::Every(_) => "every",
            ScheduleMode::Cron(_) => "cron",
            ScheduleMode::At(_) => "at",
            ScheduleMode::After(_) => "after",
        }
    }

    /// The rule in one line; it changes whenever the rule does.
    pub fn rule(&self) -> String {
        match &self.mode {
            ScheduleMode::Every(every) => format!("every {every:?}"),
            ScheduleMode::Cron(cron) => {
                let zone = self.timezone.as_ref().and_then(TimeZone::iana_name);
                format!("cron {} {}", cron.text(), zone.unwrap_or("local"))
            }
            ScheduleMode::At(at) => format!("at {at}"),
            ScheduleMode::After(delay) => format!("after {delay:?}"),
        }
    }

    /// The key by which the queue recognises a duplicate of this entry's job.
    pub fn dedupe_key(&self, plugin: &str) -> String {
        format!("{plugin}:{}:{}", self.command, self.id)
    }

    /// How long a finished job blocks its duplicates: the interval, or one tick for other modes.
    pub fn dedupe_ttl(&self, tick: Duration) -> Duration {
        match self.mode {
            ScheduleMode::Every(every) => every,
            ScheduleMode::Cron(_) | ScheduleMode::At(_) | ScheduleMode::After(_) => tick,
        }
    }
}

fn unknown(key: &'static str, found: &str, expected: &'static str) -> Error {
    Error::Policy {
        key,
        found: found.to_owned(),
        expected,
    }
}

struct EntryFields<'a>(&'a Map<String, Value>);

impl<'a> EntryFields<'a> {
    fn mode(&self) -> Result<ScheduleMode, Error> {
        let given = |key: &&&str| self.0.get(**key).is_some_and(|value| !value.is_null());
        let modes = ["every", "cron", "at", "after"]
            .iter()
            .filter(given)
            .count();
        if modes != 1 {
            return Err(Error::Modes(modes));
        }
        if let Some(text) = self.text("every")? {
            let every = scalar::interval(text).map_err(|source| scalar_error("every", source))?;
            return Ok(ScheduleMode::Every(every));
        }
        if let Some(text) = self.text("cron")? {
            return Ok(ScheduleMode::Cron(Cron::parse(text)?));
        }
        if let Some(text) = self.text("at")? {
            let at = text.trim().parse();
            return Ok(ScheduleMode::At(
                at.map_err(|_| Error::Instant(text.to_owned()))?,
            ));
        }
        let after = self.duration("after")?;
        Ok(ScheduleMode::After(after.ok_or(Error::Modes(0))?))
    }

    fn payload(&self) -> Result<Map<String, Value>, Error> {
        match self.0.get("payload") {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(payload)) => Ok(payload.clone()),
            Some(_) => Err(Error::Type {
                key: "payload",
                expected: "a mapping",
            }),
        }
    }

    fn text(&self, key: &'static str) -> Result<Option<&'a str>, Error> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Error::Type {
                key,
                expected: "a text; put it in quotes",
            }),
        }
    }

    fn duration(&self, key: &'static str) -> Result<Option<Duration>, Error> {
        let parse = |text| scalar::duration(text).map_err(|source| scalar_error(key, source));
        self.text(key)?.map(parse).transpose()
    }
}

fn scalar_error(key: &'static str, source: ScalarError) -> Error {
    Error::Scalar { key, source }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_filled_in_and_the_payload_is_kept_du_073() {
        let entry =
            ScheduleEntry::from_json(&json!({"every": "15m", "payload": {"a": [1]}})).unwrap();
        assert_eq!(
            (entry.id.as_str(), entry.command.as_str()),
            ("default", "poll")
        );
        assert_eq!(entry.mode, ScheduleMode::Every(Duration::from_mins(15)));
        assert_eq!(Value::Object(entry.payload.clone()), json!({"a": [1]}));
        assert_eq!(
            (entry.catch_up, entry.if_running),
            (CatchUp::Skip, IfRunning::Skip)
        );
        assert_eq!(
            entry.dedupe_ttl(Duration::from_mins(1)),
            Duration::from_mins(15)
        );
    }

    #[test]
    fn entries_of_one_plugin_have_keys_of_their_own_du_072() {
        let key = |value| ScheduleEntry::from_json(&value).unwrap().dedupe_key("mail");
        assert_eq!(key(json!({"every": "1h"})), "mail:poll:default");
        assert_eq!(
            key(json!({"id": "night", "cron": "0 3 * * *", "command": "sync"})),
            "mail:sync:night"
        );
        let cron = ScheduleEntry::from_json(&json!({"cron": "0 3 * * *"})).unwrap();
        assert_eq!(
            cron.dedupe_ttl(Duration::from_mins(1)),
            Duration::from_mins(1)
        );
    }

    #[test]
    fn scheduled_handle_and_undeclared_commands_are_refused_du_071() {
        let found = ScheduleEntry::from_json(&json!({"every": "1h", "command": "handle"}));
        assert_eq!(found, Err(Error::ScheduledHandle));
        assert_eq!(
            Error::ScheduledHandle.reason(),
            "scheduled_handle_disallowed"
        );
        let entry = ScheduleEntry::from_json(&json!({"every": "1h", "command": "sync"})).unwrap();
        assert_eq!(
            entry.check_command("mail", |command| command == "sync"),
            Ok(())
        );
        let found = entry
            .check_command("mail", |command| command == "poll")
            .unwrap_err();
        assert_eq!(found.reason(), "command_not_supported");
        assert!(
            found
                .to_string()
                .contains("plugin `mail` has no command `sync`")
        );
    }

    #[test]
    fn bad_entries_say_what_to_write() {
        let check = |value: Value, expected: &str| {
            let found = ScheduleEntry::from_json(&value).unwrap_err().to_string();
            assert!(found.contains(expected), "{value}: {found}");
        };
        check(json!("15m"), "{every: 15m}");
        check(json!({}), "exactly one");
        check(json!({"every": "1h", "after": "1m"}), "has 2");
        check(json!({"every": 15}), "quotes");
        check(
            json!({"every": "often"}),
            "every: `often` is not an interval",
        );
        check(json!({"after": "10"}), "after: `10` is not a duration");
        check(json!({"cron": "* * *"}), "five fields");
        check(json!({"at": "2026-03-01"}), "RFC 3339");
        check(json!({"every": "1h", "timezone": "Mars/Base"}), "IANA");
        check(
            json!({"every": "1h", "only_between": "9-10"}),
            "08:00-22:00",
        );
        check(json!({"every": "1h", "not_on": ["x"]}), "monday");
        check(json!({"every": "1h", "catch_up": "all"}), "run_all");
        check(
            json!({"cron": "0 0 * * *", "catch_up": "run_all"}),
            "needs every",
        );
        check(json!({"every": "1h", "if_running": "wait"}), "cancel");
        check(json!({"every": "1h", "payload": [1]}), "a mapping");
        assert_eq!(
            ScheduleEntry::unknown_keys(&json!({"every": "1h", "jiter": "1m"})),
            ["jiter"]
        );
    }
}
