//! Compares the machine with the one that `host_fingerprint.json` records.
//!
//! Invariant: under the policy `refuse` a daemon starts only on the recorded machine, and only the first start and
//! [`accept_host`] record another one.

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use consign_kernel::plant::{self, Plant};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::host::{Machine, MachineRoot};
use super::log::{DaemonLog, rfc3339_ms};
use super::metrics::{DaemonMetric, DaemonMetrics};
use super::private_file::{self, PRIVATE};
use super::random;
use crate::config::CloneMismatch;
use crate::host_fingerprint::{HostIdentity, HostMatch, HostRecord, UNAVAILABLE};

/// The file in the folder of the daemon.
pub const HOST_FILE: &str = "host_fingerprint.json";
/// Ids that were drawn because the machine has none. They differ at each start, so they never match and never refuse.
const RANDOM_PREFIX: &str = "random:";

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct HostCheck<'a> {
    /// The folder of the daemon.
    pub directory: &'a Path,
    pub root: &'a MachineRoot,
    /// Takes the place of the machine's own id.
    pub id_override: Option<&'a str>,
    pub policy: CloneMismatch,
}

/// Why the daemon does not start; it exits with 4.
#[derive(Debug, thiserror::Error)]
pub enum HostCheckError {
    #[error(
        "this machine is not the one that the keys of this daemon were used on; `daemon accept-host` keeps the keys on this \
         machine, `daemon remint` makes new ones"
    )]
    OtherMachine,
    #[error(
        "{HOST_FILE} cannot be understood; `daemon accept-host` writes it again for this machine, `daemon remint` makes new keys"
    )]
    Malformed,
    #[error("{HOST_FILE}: {0}")]
    Io(#[from] io::Error),
}

/// Checks the machine at the start. Returns its identity.
pub fn check_host(
    check: &HostCheck<'_>,
    log: &DaemonLog,
    metrics: &DaemonMetrics,
) -> Result<HostIdentity, HostCheckError> {
    let current = identity(check, log);
    let path = check.directory.join(HOST_FILE);
    let Some(text) = private_file::read(&path)? else {
        write(&path, &current)?;
        return Ok(current);
    };
    let record: Option<HostRecord> = serde_json::from_str(&text).ok();
    let refusal = match &record {
        Some(record) => match compare(record, &current) {
            HostMatch::Same => return Ok(current),
            HostMatch::SameWithOtherMac => {
                write(&path, &current)?;
                return Ok(current);
            }
            HostMatch::Other => HostCheckError::OtherMachine,
        },
        None => HostCheckError::Malformed,
    };
    metrics.count(DaemonMetric::CloneSuspected, &[]);
    let recorded = record.map(|record| record.fingerprint);
    let fields = json!({"recorded": recorded, "current": current.fingerprint()});
    match check.policy {
        CloneMismatch::Refuse if plant::on(Plant::OtherMachineStarts) => Ok(current),
        CloneMismatch::Refuse => {
            log.error("host_fingerprint_mismatch", &fields);
            Err(refusal)
        }
        CloneMismatch::Warn => {
            log.warn("host_fingerprint_mismatch", &fields);
            Ok(current)
        }
        CloneMismatch::Allow => {
            log.info("host_fingerprint_mismatch", &fields);
            Ok(current)
        }
    }
}

/// Records this machine; the keys stay. Returns its identity.
pub fn accept_host(check: &HostCheck<'_>, log: &DaemonLog) -> io::Result<HostIdentity> {
    let current = identity(check, log);
    write(&check.directory.join(HOST_FILE), &current)?;
    log.info("host_accepted", &json!({"current": current.fingerprint()}));
    Ok(current)
}

/// The hash of the machine for the broker. One without any id has another hash at each start, and would look like a copy.
pub(super) fn told_to_broker(machine: &HostIdentity) -> Option<String> {
    let has_id = !machine.host_id.starts_with(RANDOM_PREFIX);
    has_id.then(|| machine.fingerprint())
}

fn identity(check: &HostCheck<'_>, log: &DaemonLog) -> HostIdentity {
    let Machine {
        host_id,
        stable_mac,
    } = check.root.read();
    let host_id = check.id_override.map(str::to_owned).or(host_id);
    let random_id = || format!("{RANDOM_PREFIX}{}", random::uuid());
    let (identity, event) = HostIdentity::new(host_id, stable_mac, random_id);
    match event {
        Some(event @ UNAVAILABLE) => log.warn(event, &Value::Null),
        Some(event) => log.info(event, &Value::Null),
        None => {}
    }
    identity
}

/// A machine without any id cannot be told from another one, so nothing is compared with it.
fn compare(record: &HostRecord, current: &HostIdentity) -> HostMatch {
    let is_random = |id: &str| id.starts_with(RANDOM_PREFIX);
    match (is_random(&record.host_id), is_random(&current.host_id)) {
        (_, true) => HostMatch::Same,
        // The machine has got an id since.
        (true, false) => HostMatch::SameWithOtherMac,
        (false, false) => record.compare(current),
    }
}

fn write(path: &Path, identity: &HostIdentity) -> io::Result<()> {
    let record = identity.to_record(&rfc3339_ms(Timestamp::now()));
    let text = serde_json::to_string_pretty(&record)?;
    private_file::replace(path, text.as_bytes(), PRIVATE)
}
