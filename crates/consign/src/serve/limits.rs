//! The connection limits of each listener, derived from the limit of open files.

use consign_automation::http::listeners::ConnectionShares;
use consign_automation::plugin::open_files;
use consign_web::server::CONNECTIONS_MAX_DEFAULT;

/// Files reserved for the ledger, plugins and system libraries.
const RESERVED_FILES: usize = 128;
/// If the reserve would leave nothing, connections get this fraction of the files.
const SCARCE_FRACTION: usize = 4;

/// The connections of all listeners together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionBudget(usize);

impl ConnectionBudget {
    /// Raises the limit of open files as far as the system allows, and derives the budget from it.
    pub(crate) fn raise() -> Self {
        let files = usize::try_from(open_files::raise()).unwrap_or(usize::MAX);
        Self::within(files)
    }

    fn within(files: usize) -> Self {
        let free = files.saturating_sub(RESERVED_FILES);
        Self(free.max(files / SCARCE_FRACTION))
    }

    /// The share of the main listener.
    pub(super) fn main_listener(self, beside_automation: bool) -> usize {
        let share = if beside_automation {
            self.0 / 8 * 5
        } else {
            self.0
        };
        share.clamp(1, CONNECTIONS_MAX_DEFAULT)
    }

    /// Of the automation's listeners beside the main one.
    pub(super) fn embedded_automation(self) -> ConnectionShares {
        ConnectionShares {
            api: (self.0 / 4).max(1),
            webhooks: (self.0 / 8).max(1),
        }
    }

    /// Of the automation's listeners where there is no other.
    pub(crate) fn standalone_automation(self) -> ConnectionShares {
        ConnectionShares {
            api: (self.0 / 4 * 3).max(1),
            webhooks: (self.0 / 4).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_listeners_together_stay_below_the_files_minus_the_reserve() {
        for (files, expected) in [
            (64, 16),
            (256, 128),
            (1_024, 896),
            (1 << 20, (1 << 20) - 128),
        ] {
            let all = ConnectionBudget::within(files);
            assert_eq!(all, ConnectionBudget(expected));
            let (embedded_automation, standalone_automation) =
                (all.embedded_automation(), all.standalone_automation());
            assert!(
                all.main_listener(true) + embedded_automation.api + embedded_automation.webhooks
                    <= expected
            );
            assert!(standalone_automation.api + standalone_automation.webhooks <= expected);
            assert_eq!(
                all.main_listener(false),
                expected.min(CONNECTIONS_MAX_DEFAULT)
            );
        }
    }
}
