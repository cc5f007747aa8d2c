//! The one-time setup of plugins: `init` runs once per program and configuration, and again when either changes.
//!
//! The setup is an ordinary job that is queued before any other of the plugin. No job waits for it: a job that needs it fails and
//! is retried. The setup itself is never retried. After a failure the plugin is unhealthy until its program or configuration
//! changes or an operator runs `init`.

use std::sync::Arc;
use std::{fs, io};

use consign_engine::{Engine, Error, UnitOfWork, Versioned};
use consign_kernel::error::Refusal;
use serde::Serialize;
use serde_json::{Value, json};

use super::attempt::{Attempt, AttemptFailure};
use super::finish::INIT;
use super::job::{Job, SubmittedBy};
use super::lifecycle::{Runtime, RuntimeInner};
use super::records;
use crate::plugin::discovery::MANIFEST;
use crate::program::{Plugin, Program};

/// The result of a plugin's setup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetupInfo {
    pub plugin: String,
    #[serde(flatten)]
    pub setup: records::SetupRecord,
}

impl Runtime {
    /// The setups of all plugins that have an `init`.
    pub async fn setups(&self) -> Result<Vec<SetupInfo>, Error> {
        let mut found = Vec::new();
        for plugin in self.program().plugins() {
            let key = records::setup_key(&plugin.name);
            let setup = self.engine().load::<records::SetupRecord>(key).await?;
            if let Some(setup) = setup {
                found.push(SetupInfo {
                    plugin: plugin.name.clone(),
                    setup: setup.value,
                });
            }
        }
        Ok(found)
    }
}

/// Queues `init` for plugins that are new or have changed.
pub(super) async fn queue_setups(
    inner: &RuntimeInner,
    program: &Arc<Program>,
) -> Result<(), Error> {
    for plugin in program.plugins() {
        if plugin.manifest.command(INIT).is_none() {
            continue;
        }
        let read_by = plugin.clone();
        let fingerprint = tokio::task::spawn_blocking(move || fingerprint(&read_by));
        let fingerprint = match fingerprint.await {
            Ok(Ok(fingerprint)) => fingerprint,
            Ok(Err(error)) => {
                tracing::error!(plugin = plugin.name, %error, "the program of a plugin cannot be read; its setup is skipped");
                continue;
            }
            Err(error) => return Err(Error::Internal(error.to_string())),
        };
        match queue_setup(inner, program, plugin, &fingerprint).await {
            // Another node has just queued it.
            Ok(()) | Err(Error::Refused(Refusal::VersionMismatch)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn queue_setup(
    inner: &RuntimeInner,
    program: &Program,
    plugin: &Plugin,
    fingerprint: &str,
) -> Result<(), Error> {
    let key = records::setup_key(&plugin.name);
    let mut record: Versioned<records::SetupRecord> = inner.engine.load_or_default(key).await?;
    if record.value.fingerprint == fingerprint {
        return Ok(());
    }
    record.value = records::SetupRecord {
        fingerprint: fingerprint.to_owned(),
        pending: true,
        ..records::SetupRecord::default()
    };
    let mut unit = UnitOfWork::default();
    unit.replace(&record);
    let payload = json!({"fingerprint": fingerprint});
    let job = Job::root(&plugin.name, INIT, SubmittedBy::Scheduler, payload);
    unit.admit(vec![job.intent(program, None, None)]);
    inner.engine.commit(unit).await?;
    tracing::info!(
        plugin = plugin.name,
        "the setup of a new or changed plugin was queued"
    );
    Ok(())
}

/// Records the result of `init`. A run by hand updates the health but not the fingerprint.
pub(super) async fn record_result(
    engine: &Engine,
    attempt: &Attempt,
    failure: Option<&AttemptFailure>,
    unit: &mut UnitOfWork,
) -> Result<(), Error> {
    let key = records::setup_key(&attempt.job.plugin);
    let mut record: Versioned<records::SetupRecord> = engine.load_or_default(key).await?;
    let made_for = attempt
        .job
        .payload
        .get("fingerprint")
        .and_then(Value::as_str);
    if made_for.is_some_and(|made_for| made_for != record.value.fingerprint) {
        // A setup for a newer program is already queued.
        return Ok(());
    }
    record.value = records::SetupRecord {
        fingerprint: record.value.fingerprint,
        job_id: attempt.job_id(),
        pending: false,
        healthy: failure.is_none(),
        error: failure.map(|failure| failure.error.clone()),
    };
    unit.replace(&record);
    Ok(())
}

fn fingerprint(plugin: &Plugin) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let manifest = fs::read(plugin.directory.join(MANIFEST))?;
    let config = Value::Object(plugin.config.clone()).to_string();
    for part in [manifest.as_slice(), config.as_bytes()] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.update_reader(fs::File::open(&plugin.entrypoint)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}
