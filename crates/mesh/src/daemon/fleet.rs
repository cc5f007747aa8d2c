//! Limits over the daemons of one user: how many run, and what each may use.

use serde::Serialize;

use crate::config::{ByteSize, FleetSettings};

/// What one daemon may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FleetShare {
    pub memory_bytes: u64,
    pub disk_bytes: u64,
}

/// Why no further daemon starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{running} daemons run and {wanted} more would exceed fleet.max_daemons = {max}; stop one with `daemon down --mesh SLUG`, \
     or raise the setting in config.toml"
)]
pub struct FleetFull {
    pub running: usize,
    pub wanted: usize,
    pub max: usize,
}

/// Admits `wanted` daemons beside those that run, all or none. Returns the share of each.
pub fn admit(
    settings: &FleetSettings,
    running: usize,
    wanted: usize,
) -> Result<FleetShare, FleetFull> {
    let together = running.saturating_add(wanted);
    if together > settings.max_daemons {
        return Err(FleetFull {
            running,
            wanted,
            max: settings.max_daemons,
        });
    }
    let ByteSize(disk_bytes) = settings.disk_per_daemon(together);
    let ByteSize(memory_bytes) = settings.memory_per_daemon(together);
    Ok(FleetShare {
        memory_bytes,
        disk_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cm_112_one_daemon_too_many_is_a_clear_error() {
        let settings = FleetSettings::default();
        let share = admit(&settings, 0, 10).unwrap();
        assert_eq!(share.memory_bytes, 200_000_000);
        assert_eq!(share.disk_bytes, 2_000_000_000);
        assert_eq!(admit(&settings, 3, 1).unwrap().memory_bytes, 500_000_000);
        for (running, wanted) in [(0, 11), (10, 1), (usize::MAX, 1)] {
            let refused = admit(&settings, running, wanted).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("fleet.max_daemons = 10"), "{text}");
            assert!(text.contains("daemon down"), "{text}");
        }
    }
}
