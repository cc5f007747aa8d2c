//! Pauses before the next attempt: of a connection, and of a row of the outbox.
//!
//! Invariant: entropy is an argument, and no pause is longer than its maximum, jitter included.

use consign_kernel::retry::Backoff;

use crate::config::ReconnectSettings;

/// The pause before a connection is tried again; `failures` are those in a row, from 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to the maximum, which is far below 2^53"
)]
pub fn reconnect_delay_ms(settings: &ReconnectSettings, failures: u32, entropy: u64) -> u64 {
    let exponent = i32::try_from(failures.min(64)).unwrap_or(64);
    let initial = settings.initial_backoff_ms as f64;
    let max = settings.max_backoff_ms as f64;
    let pause = (initial * settings.backoff_multiplier.powi(exponent)).min(max);
    // From -1 to 1.
    let around = (entropy >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
    let jitter = pause * f64::from(settings.jitter_pct) / 100.0 * around;
    (pause + jitter).clamp(0.0, max) as u64
}

/// The pause before a row is sent again: from half a second to half a minute, a quarter up or down. The outbox profile of the
/// kernel uses the same rule.
pub fn resend_delay_ms(attempts: u32, entropy: u64) -> u64 {
    let us = Backoff::mesh().delay_us(attempts, entropy);
    u64::try_from(us / 1_000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_their_maximum() {
        let exact = ReconnectSettings {
            jitter_pct: 0,
            ..ReconnectSettings::default()
        };
        let pauses: Vec<u64> = (0..8).map(|n| reconnect_delay_ms(&exact, n, 7)).collect();
        assert_eq!(
            pauses,
            [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]
        );
        assert_eq!(reconnect_delay_ms(&exact, u32::MAX, 7), 30_000);
    }

    #[test]
    fn jitter_is_a_quarter_and_never_exceeds_the_maximum() {
        let settings = ReconnectSettings::default();
        assert_eq!(reconnect_delay_ms(&settings, 1, 0), 750);
        assert_eq!(reconnect_delay_ms(&settings, 1, u64::MAX), 1_250);
        assert_eq!(reconnect_delay_ms(&settings, 20, u64::MAX), 30_000);
        assert_eq!(reconnect_delay_ms(&settings, 20, 0), 22_500);
    }

    #[test]
    fn rows_are_sent_again_within_half_a_minute() {
        for attempts in 0..100 {
            let middle = 500_u64 << attempts.min(12);
            let middle = middle.min(30_000);
            for entropy in [0, 1 << 63, u64::MAX] {
                let delay = resend_delay_ms(attempts, entropy);
                assert!(
                    delay <= 30_000 && delay >= middle * 3 / 4 - 1,
                    "{attempts}: {delay}"
                );
                assert!(delay <= middle * 5 / 4, "{attempts}: {delay}");
            }
        }
    }
}
