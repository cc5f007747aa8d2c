//! The log of a daemon: JSON lines in `daemon.log` and, in the foreground, on standard error.
//!
//! Invariant: a line is one object that begins with `ts`, `level`, `msg` and `mesh`, and no value under the name of a secret
//! is written. A log that cannot be written never stops the daemon: the line is lost and counted.

mod file;
#[cfg(test)]
mod tests;
mod tracing_layer;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

use crate::role::words;
use file::RotatedFile;
pub use file::{LOG_AGE_DAYS_MAX, LOG_FILE_BYTES_MAX, LOG_FILES_MAX};

words! {
    /// How important a line is.
    MeshLogLevel {
        Debug => "debug",
        Info => "info",
        Warn => "warn",
        Error => "error",
    }
}

/// Names of members whose values are secrets, wherever they are in a line.
const SECRETS: &[&str] = &[
    "token",
    "secret",
    "privkey",
    "password",
    "passphrase",
    "authorization",
    "root_key",
    "rootkey",
];
const REDACTED: &str = "***";

/// Where lines go.
#[derive(Debug, Clone)]
pub struct MeshLogOptions {
    /// The slug, a member of each line.
    pub mesh: String,
    /// Less important lines are not written.
    pub level: MeshLogLevel,
    pub file: Option<PathBuf>,
    /// For `--foreground`.
    pub on_stderr: bool,
}

/// The log. Clones write to the same files.
#[derive(Debug, Clone)]
pub struct DaemonLog(Arc<Sinks>);

#[derive(Debug)]
struct Sinks {
    mesh: String,
    level: AtomicU8,
    on_stderr: bool,
    file: Option<Mutex<RotatedFile>>,
    lost: AtomicU64,
}

impl DaemonLog {
    /// Opens the file, which is continued.
    pub fn open(options: MeshLogOptions) -> io::Result<Self> {
        let file = options.file.map(RotatedFile::open).transpose()?;
        Ok(Self(Arc::new(Sinks {
            mesh: options.mesh,
            level: AtomicU8::new(options.level as u8),
            on_stderr: options.on_stderr,
            file: file.map(Mutex::new),
            lost: AtomicU64::new(0),
        })))
    }

    /// A log that writes nothing, for tests of other parts.
    pub fn disabled(mesh: &str) -> Self {
        Self(Arc::new(Sinks {
            mesh: mesh.to_owned(),
            level: AtomicU8::new(MeshLogLevel::Error as u8),
            on_stderr: false,
            file: None,
            lost: AtomicU64::new(0),
        }))
    }

    /// Takes effect at once; a reload of the settings may change it.
    pub fn set_level(&self, level: MeshLogLevel) {
        self.0.level.store(level as u8, Ordering::Relaxed);
    }

    pub fn is_enabled(&self, level: MeshLogLevel) -> bool {
        level as u8 >= self.0.level.load(Ordering::Relaxed)
    }

    pub fn debug(&self, msg: &str, fields: &Value) {
        self.write(MeshLogLevel::Debug, msg, fields);
    }

    pub fn info(&self, msg: &str, fields: &Value) {
        self.write(MeshLogLevel::Info, msg, fields);
    }

    pub fn warn(&self, msg: &str, fields: &Value) {
        self.write(MeshLogLevel::Warn, msg, fields);
    }

    pub fn error(&self, msg: &str, fields: &Value) {
        self.write(MeshLogLevel::Error, msg, fields);
    }

    /// Writes one line. `fields` is an object, or null for none.
    pub fn write(&self, level: MeshLogLevel, msg: &str, fields: &Value) {
        if !self.is_enabled(level) {
            return;
        }
        let now = Timestamp::now();
        let line = line(now, level, msg, &self.0.mesh, fields);
        let mut failed = false;
        if let Some(file) = &self.0.file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            failed |= file.append(line.as_bytes(), now).is_err();
        }
        if self.0.on_stderr {
            failed |= io::stderr().lock().write_all(line.as_bytes()).is_err();
        }
        if failed {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }
}

/// A time as logs and answers show it: UTC with milliseconds.
pub fn rfc3339_ms(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn line(now: Timestamp, level: MeshLogLevel, msg: &str, mesh: &str, fields: &Value) -> String {
    let text = |text: &str| Value::String(text.to_owned()).to_string();
    let mut line = format!(
        r#"{{"ts":"{}","level":"{level}","msg":{},"mesh":{}"#,
        rfc3339_ms(now),
        text(msg),
        text(mesh),
    );
    for (name, value) in fields.as_object().into_iter().flatten() {
        // A second member of the same name would make the line ambiguous.
        if !["ts", "level", "msg", "mesh"].contains(&name.as_str()) {
            let value = redacted(name, value);
            let _ = write!(line, ",{}:{value}", text(name));
        }
    }
    line.push_str("}\n");
    line
}

/// The value without secrets. Numbers and flags under such a name, such as a count of tokens, are no secrets.
fn redacted(name: &str, value: &Value) -> Value {
    match value {
        Value::String(_) if is_secret(name) => Value::String(REDACTED.to_owned()),
        Value::Object(members) => {
            let members = members.iter();
            Value::Object(
                members
                    .map(|(name, value)| (name.clone(), redacted(name, value)))
                    .collect(),
            )
        }
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| redacted(name, item)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRETS.iter().any(|secret| name.contains(secret))
}
