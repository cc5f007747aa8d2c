//! Whether a daemon still runs on the machine that its keys were made on.
//!
//! It finds images, backups and home directories that were copied by accident. It is no defence against an attacker, who
//! copies the record too. Invariant: a machine whose id is the same is the same machine, whatever its network cards are.

#[cfg(test)]
mod tests;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const SCHEMA_VERSION: u32 = 2;

/// Interfaces that are not part of the machine: loopback, tunnels, containers, VPNs, virtual machines, Apple's ad-hoc links.
const EXCLUDED: &[&str] = &[
    "lo",
    "tailscale",
    "wg",
    "utun",
    "ppp",
    "docker0",
    "br-",
    "veth",
    "tap",
    "tun",
    "vboxnet",
    "vmnet",
    "awdl",
    "llw",
];

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkInterface {
    pub name: String,
    pub mac: [u8; 6],
}

impl NetworkInterface {
    fn is_excluded(&self) -> bool {
        self.mac == [0; 6] || EXCLUDED.iter().any(|prefix| self.name.starts_with(prefix))
    }

    /// Set by software, so it may change with a restart.
    const fn is_local(&self) -> bool {
        self.mac[0] & 0x02 != 0
    }

    /// Wired before wireless before others.
    fn rank(&self) -> u8 {
        match self.name.as_str() {
            name if name.starts_with("en") || name.starts_with("eth") => 0,
            name if name.starts_with("wl") => 1,
            _ => 2,
        }
    }
}

/// The address that stands for the machine; `None` if it has no usable interface.
pub fn stable_mac(interfaces: &[NetworkInterface]) -> Option<String> {
    let usable = interfaces.iter().filter(|one| !one.is_excluded());
    let best = usable.min_by_key(|one| (one.is_local(), one.rank(), one.name.clone()))?;
    let parts: Vec<String> = best.mac.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(parts.join(":"))
}

/// What identifies a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// With the prefix of its system, such as `linux:`.
    pub host_id: String,
    pub stable_mac: String,
}

/// An event of the log if something could not be read.
pub const HOST_ID_UNAVAILABLE: &str = "fingerprint_host_id_unavailable";
pub const UNAVAILABLE: &str = "fingerprint_unavailable";

impl HostIdentity {
    /// The identity from what could be read, and the event that reports what could not. Without an id the address is used
    /// twice; without both a random id, and then a copy is not found.
    pub fn new(
        host_id: Option<String>,
        stable_mac: Option<String>,
        random_id: impl FnOnce() -> String,
    ) -> (Self, Option<&'static str>) {
        match (host_id, stable_mac) {
            (Some(host_id), mac) => (
                Self {
                    host_id,
                    stable_mac: mac.unwrap_or_default(),
                },
                None,
            ),
            (None, Some(mac)) => (
                Self {
                    host_id: mac.clone(),
                    stable_mac: mac,
                },
                Some(HOST_ID_UNAVAILABLE),
            ),
            (None, None) => (
                Self {
                    host_id: random_id(),
                    stable_mac: String::new(),
                },
                Some(UNAVAILABLE),
            ),
        }
    }

    /// The hash as hex digits.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for part in ["v2", "\0", &self.host_id, "\0", &self.stable_mac] {
            hash.update(part.as_bytes());
        }
        HEXLOWER.encode(&hash.finalize())
    }

    pub fn to_record(&self, written_at: &str) -> HostRecord {
        HostRecord {
            schema_version: SCHEMA_VERSION,
            fingerprint: self.fingerprint(),
            host_id: self.host_id.clone(),
            stable_mac: self.stable_mac.clone(),
            written_at: written_at.to_owned(),
        }
    }
}

/// The file `host_fingerprint.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    pub schema_version: u32,
    pub fingerprint: String,
    pub host_id: String,
    pub stable_mac: String,
    pub written_at: String,
}

/// How a machine compares with its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMatch {
    Same,
    /// The same machine with another network card: the record is written again.
    SameWithOtherMac,
    Other,
}

impl HostRecord {
    pub fn compare(&self, current: &HostIdentity) -> HostMatch {
        if self.fingerprint == current.fingerprint() {
            return HostMatch::Same;
        }
        if !self.host_id.is_empty() && self.host_id == current.host_id {
            return HostMatch::SameWithOtherMac;
        }
        HostMatch::Other
    }
}
