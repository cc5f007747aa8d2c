//! How long a failed attempt waits for the next one.

use std::time::Duration;

use crate::schedule::fraction_of;

/// The wait after failed attempt number `attempt` (from 1): `base` doubled each time, plus a share of one `base` that `draw`
/// picks, so that jobs which failed together do not come back together.
pub fn delay(base: Duration, attempt: u32, draw: u64) -> Duration {
    let factor = 1u32
        .checked_shl(attempt.saturating_sub(1))
        .unwrap_or(u32::MAX);
    base.saturating_mul(factor)
        .saturating_add(fraction_of(base, draw))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_double_and_never_overflow_du_057() {
        let base = Duration::from_secs(30);
        let waits: Vec<_> = (1..=3).map(|attempt| delay(base, attempt, 0)).collect();
        assert_eq!(waits, [30, 60, 120].map(Duration::from_secs));
        assert_eq!(delay(base, 0, 0), base);
        assert!(delay(base, 33, 0) >= delay(base, 32, 0));
        assert_eq!(delay(Duration::MAX, u32::MAX, u64::MAX), Duration::MAX);
    }

    proptest! {
        #[test]
        fn wait_lies_between_the_doubled_base_and_one_base_more_du_057(
            base_ms in 1u64..600_000, attempt in 1u32..20, draw: u64,
        ) {
            let base = Duration::from_millis(base_ms);
            let least = base * (1 << (attempt - 1));
            let found = delay(base, attempt, draw);
            prop_assert!(found >= least && found < least + base);
        }
    }
}
