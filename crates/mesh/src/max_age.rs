//! How long a daemon keeps trying to send a message: always less than the broker remembers its id.
//!
//! Invariant: the cutoff is at least one hour inside of the broker's window, so a retry never meets a forgotten id.
//! Integer arithmetic in hours.

#[cfg(test)]
mod tests;

use consign_kernel::plant::{self, Plant};

/// Used if the broker never forgets an id.
const PERMANENT_HOURS_DEFAULT: u32 = 168;
const PERMANENT_HOURS_MAX: u32 = 720;

/// Three days: enough to react to an outage.
const HOURS_MIN: u32 = 72;
const MARGIN_HOURS_MIN: u32 = 24;

/// How long a broker remembers ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DedupeWindow {
    Permanent,
    Days(u32),
}

/// The settings `[outbox]` of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxAgeSettings {
    /// Hours if the broker never forgets.
    pub permanent_hours: u32,
    pub permanent_hours_cap: u32,
    pub override_hours: Option<u32>,
}

impl Default for MaxAgeSettings {
    fn default() -> Self {
        Self {
            permanent_hours: PERMANENT_HOURS_DEFAULT,
            permanent_hours_cap: PERMANENT_HOURS_MAX,
            override_hours: None,
        }
    }
}

/// The age that is shown, the one that is applied, and whether an operator should look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaxAge {
    /// What `/v1/version` shows.
    pub hours: u32,
    /// After this age a row is dead and is not sent again.
    pub cutoff_hours: u32,
    pub warning: Option<MaxAgeWarning>,
}

impl MaxAge {
    /// Whether a row is too old to be sent. Its age is known by two clocks: that of the ledger, which a set wall clock hardly
    /// moves, and the one on which daemon and broker agreed when they connected. A row is given up only if both say so: a clock
    /// that was wrong when the row was made, or is now, must not destroy an accepted message.
    pub fn is_past(&self, by_ledger_ms: i64, by_agreement_ms: i64) -> bool {
        let cutoff_ms = i64::from(self.cutoff_hours) * 3_600_000;
        by_ledger_ms.min(by_agreement_ms) >= cutoff_ms
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxAgeWarning {
    /// The setting was above the cap of permanent mode.
    Clamped,
    /// The override leaves less than a day inside of the window.
    NearWindow,
}

/// The override is longer than the broker remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "outbox_max_age_above_dedupe_window: {hours} h, and at most {hours_max} h are inside of the broker's window"
)]
pub struct MaxAgeAboveWindow {
    pub hours: u32,
    pub hours_max: u32,
}

/// The age for a broker's window. The window has at least [`crate::limits::DEDUPE_DAYS_MIN`] days; the negotiation refuses
/// shorter ones.
pub fn max_age(
    window: DedupeWindow,
    settings: &MaxAgeSettings,
) -> Result<MaxAge, MaxAgeAboveWindow> {
    match window {
        DedupeWindow::Permanent => Ok(permanent(settings)),
        DedupeWindow::Days(days) => scoped(days, settings.override_hours),
    }
}

fn permanent(settings: &MaxAgeSettings) -> MaxAge {
    let wanted = settings.override_hours.unwrap_or(settings.permanent_hours);
    let hours = wanted
        .min(settings.permanent_hours_cap)
        .min(PERMANENT_HOURS_MAX);
    MaxAge {
        hours,
        cutoff_hours: hours,
        warning: (hours < wanted).then_some(MaxAgeWarning::Clamped),
    }
}

fn scoped(days: u32, override_hours: Option<u32>) -> Result<MaxAge, MaxAgeAboveWindow> {
    let window = days.saturating_mul(24);
    let hours_max = window.saturating_sub(1);
    let Some(hours) = override_hours else {
        let hours = derived_hours(days);
        return Ok(MaxAge {
            hours,
            cutoff_hours: if plant::on(Plant::CutoffAtWindow) {
                hours
            } else {
                hours.min(hours_max)
            },
            warning: None,
        });
    };
    if hours > hours_max {
        return Err(MaxAgeAboveWindow { hours, hours_max });
    }
    let is_near = hours > window.saturating_sub(MARGIN_HOURS_MIN);
    Ok(MaxAge {
        hours,
        cutoff_hours: hours,
        warning: is_near.then_some(MaxAgeWarning::NearWindow),
    })
}

/// The window without a margin of a tenth, at least a day; and never less than three days.
fn derived_hours(days: u32) -> u32 {
    let window = days.saturating_mul(24);
    let margin = window.div_ceil(10).max(MARGIN_HOURS_MIN);
    window.saturating_sub(margin).max(HOURS_MIN)
}
