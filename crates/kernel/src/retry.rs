//! How long to wait before the next attempt.
//!
//! Invariant: a delay is never negative and never so long that adding it to a present time could
//! overflow. Entropy is an argument, so the same inputs give the same delay. Whether there is another
//! attempt at all is decided elsewhere.

use crate::plant::{self, Plant};

/// The longest delay given: half of what the clock's integer holds.
pub const DELAY_US_MAX: i64 = i64::MAX / 2;

/// The Intent Protocol spreads its retries over this much time, whatever the base.
pub const INTENT_JITTER_US: i64 = 2_000_000;

const SECOND_US: i64 = 1_000_000;

/// A rule for the pause after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// Due at once.
    Now,
    /// Always the same pause.
    Fixed { delay_us: i64 },
    /// One step longer after every attempt.
    Linear { step_us: i64, cap_us: i64 },
    /// Twice as long after every attempt.
    Exponential {
        base_us: i64,
        /// After how many attempts the pause is still just the base.
        undoubled: u32,
        /// Holds for the pause and its jitter together.
        cap_us: i64,
        jitter: Jitter,
    },
    /// The Beam bus: listed steps in whole seconds, 15 % up or down; a second may be scaled for tests. Wants [`key_entropy`].
    Bus { second_us: i64 },
}

/// How entropy changes a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    None,
    /// Adds less than this.
    Added {
        below_us: i64,
    },
    /// Moves it by up to this share, in either direction.
    Around {
        percent: u8,
    },
}

impl Backoff {
    /// Intent Protocol: `base * 2^attempts` and up to two seconds more.
    pub const fn intent(base_us: i64) -> Self {
        Self::Exponential {
            base_us,
            undoubled: 0,
            cap_us: DELAY_US_MAX,
            jitter: Jitter::Added {
                below_us: INTENT_JITTER_US,
            },
        }
    }

    /// Automation: `base * 2^(attempts - 1)` and up to one base more.
    pub const fn automation(base_us: i64) -> Self {
        Self::Exponential {
            base_us,
            undoubled: 1,
            cap_us: DELAY_US_MAX,
            jitter: Jitter::Added { below_us: base_us },
        }
    }

    /// Mesh outbox and reconnects: from half a second to half a minute, a quarter up or down.
    pub const fn mesh() -> Self {
        Self::Exponential {
            base_us: SECOND_US / 2,
            undoubled: 0,
            cap_us: 30 * SECOND_US,
            jitter: Jitter::Around { percent: 25 },
        }
    }

    /// ATP agents: from a quarter of a second to half a minute, a half up or down.
    pub const fn agent() -> Self {
        Self::Exponential {
            base_us: SECOND_US / 4,
            undoubled: 0,
            cap_us: 30 * SECOND_US,
            jitter: Jitter::Around { percent: 50 },
        }
    }

    /// The pause after this many attempts. `entropy` is any 64 bits, evenly spread.
    pub fn delay_us(self, attempts: u32, entropy: u64) -> i64 {
        let delay_us = match self {
            Self::Now => 0,
            Self::Fixed { delay_us } => delay_us,
            Self::Linear { step_us, cap_us } => {
                step_us.saturating_mul(i64::from(attempts)).min(cap_us)
            }
            Self::Exponential {
                base_us,
                undoubled,
                cap_us,
                jitter,
            } => {
                let pause_us = doubled(base_us, attempts.saturating_sub(undoubled)).min(cap_us);
                jitter.applied(pause_us, entropy).min(cap_us)
            }
            Self::Bus { second_us } => bus_delay_s(attempts, entropy).saturating_mul(second_us),
        };
        delay_us.clamp(0, DELAY_US_MAX)
    }
}

impl Jitter {
    fn applied(self, pause_us: i64, entropy: u64) -> i64 {
        match self {
            Self::None => pause_us,
            Self::Added { below_us } => {
                let below_us = if plant::on(Plant::JitterOutOfRange) {
                    below_us.saturating_mul(2)
                } else {
                    below_us
                };
                pause_us.saturating_add(share_of(below_us, entropy))
            }
            Self::Around { percent } => {
                let reach_us = percent_of(pause_us, percent);
                // One more than twice the reach, so that both ends can be drawn.
                let width_us = reach_us.saturating_mul(2).saturating_add(1);
                pause_us
                    .saturating_sub(reach_us)
                    .saturating_add(share_of(width_us, entropy))
            }
        }
    }
}

fn doubled(base_us: i64, times: u32) -> i64 {
    2_i64.saturating_pow(times).saturating_mul(base_us)
}

fn percent_of(pause_us: i64, percent: u8) -> i64 {
    let share_us = i128::from(pause_us) * i128::from(percent) / 100;
    i64::try_from(share_us).unwrap_or(i64::MAX)
}

/// A number in `[0, width)` at the place where `entropy` stands among all 64-bit numbers.
fn share_of(width_us: i64, entropy: u64) -> i64 {
    let scaled = (i128::from(width_us.max(0)) * i128::from(entropy)) >> u64::BITS;
    i64::try_from(scaled).expect("a share of an i64 fits into an i64")
}

const BUS_STEPS_S: [i64; 5] = [30, 60, 120, 240, 480];
const BUS_DELAY_S_MIN: i64 = 5;
const BUS_JITTER_PERCENT: i64 = 15;

/// The Beam bus draws its jitter from the message, so that every node computes the same time. The
/// hash is the protocol's: 31 times the last value plus each UTF-16 unit, in wrapping 32 bits.
pub fn key_entropy(nonce: &str, retry: u32) -> u64 {
    let retry = retry.wrapping_add(u32::from(plant::on(Plant::JitterOfAttempt)));
    let hash = format!("{nonce}:{retry}")
        .encode_utf16()
        .fold(0_i32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(i32::from(unit))
        });
    u64::from(hash.unsigned_abs())
}

fn bus_delay_s(retry: u32, entropy: u64) -> i64 {
    let last = BUS_STEPS_S.len() - 1;
    let step = usize::try_from(retry.saturating_sub(1)).map_or(last, |step| step.min(last));
    let choices = BUS_JITTER_PERCENT.unsigned_abs() * 2 + 1;
    let drawn = i64::try_from(entropy % choices).expect("a remainder below 31 fits");
    let percent = 100 + drawn - BUS_JITTER_PERCENT;
    // Rounds halves up, as the protocol does.
    let delay_s = (BUS_STEPS_S[step] * percent + 50) / 100;
    delay_s.max(BUS_DELAY_S_MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Backoff, DELAY_US_MAX, INTENT_JITTER_US, Jitter, SECOND_US, key_entropy};
    use crate::plant;

    const HOUR_US: i64 = 3_600 * SECOND_US;
    const BUS: Backoff = Backoff::Bus {
        second_us: SECOND_US,
    };

    proptest! {
        // A planted defect must fail here, and would leave a file of seeds in the tree each time.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn ip_022_ip_023_ip_165_backoff_doubles_and_stays_within_two_seconds_above(
            base_us in SECOND_US..=HOUR_US,
            attempts in 0_u32..=20,
            entropy: u64,
        ) {
            plant::wake_from_environment();
            let floor_us = base_us * (1 << attempts);
            let delay_us = Backoff::intent(base_us).delay_us(attempts, entropy);
            prop_assert!((floor_us..floor_us + INTENT_JITTER_US).contains(&delay_us));
        }

        #[test]
        fn wait_lies_between_the_doubled_base_and_one_base_more_du_057(
            base_us in 1..=HOUR_US,
            attempts in 1_u32..=10,
            entropy: u64,
        ) {
            let floor_us = base_us * (1 << (attempts - 1));
            let delay_us = Backoff::automation(base_us).delay_us(attempts, entropy);
            prop_assert!((floor_us..floor_us + base_us).contains(&delay_us));
        }

        #[test]
        fn no_policy_gives_a_negative_or_overflowing_delay(
            base_us: i64,
            cap_us: i64,
            percent: u8,
            attempts: u32,
            entropy: u64,
        ) {
            let policies = [
                Backoff::Now,
                Backoff::Bus { second_us: SECOND_US },
                Backoff::Fixed { delay_us: base_us },
                Backoff::Linear { step_us: base_us, cap_us },
                Backoff::intent(base_us),
                Backoff::automation(base_us),
                Backoff::Exponential {
                    base_us,
                    undoubled: 0,
                    cap_us,
                    jitter: Jitter::Around { percent },
                },
            ];
            for policy in policies {
                let delay_us = policy.delay_us(attempts, entropy);
                prop_assert!((0..=DELAY_US_MAX).contains(&delay_us), "{policy:?}");
            }
        }
    }

    #[test]
    fn ip_022_backoff_bounds_are_exact_for_a_base_of_five_seconds() {
        let retry = Backoff::intent(5 * SECOND_US);
        for (attempts, floor_s) in [(0, 5), (1, 10), (2, 20), (3, 40), (20, 5 * 1_048_576)] {
            let floor_us = floor_s * SECOND_US;
            assert_eq!(retry.delay_us(attempts, 0), floor_us);
            assert_eq!(retry.delay_us(attempts, u64::MAX), floor_us + 1_999_999);
        }
    }

    #[test]
    fn ip_023_jitter_covers_its_range_evenly() {
        let retry = Backoff::intent(0);
        let steps = 1_000_u64;
        let drawn: Vec<_> = (0..steps)
            .map(|step| retry.delay_us(1, step * (u64::MAX / steps)))
            .collect();
        // A thousand evenly spread draws are two milliseconds apart, from one end to the other.
        assert_eq!(drawn[0], 0);
        assert!(
            drawn
                .windows(2)
                .all(|pair| (1_999..=2_001).contains(&(pair[1] - pair[0])))
        );
        assert!(drawn[999] >= 1_997_000);
    }

    #[test]
    fn delays_saturate_instead_of_wrapping() {
        assert_eq!(
            Backoff::intent(HOUR_US).delay_us(u32::MAX, u64::MAX),
            DELAY_US_MAX
        );
        assert_eq!(
            Backoff::automation(i64::MAX).delay_us(64, u64::MAX),
            DELAY_US_MAX
        );
        assert_eq!(Backoff::intent(i64::MIN).delay_us(64, 0), 0);
        let largest_us = HOUR_US * (1 << 20);
        assert_eq!(Backoff::intent(HOUR_US).delay_us(20, 0), largest_us);
        assert!(
            largest_us < DELAY_US_MAX,
            "nothing the protocol allows saturates"
        );
    }

    #[test]
    fn automation_waits_one_base_first_and_up_to_one_base_more() {
        let retry = Backoff::automation(30 * SECOND_US);
        for (attempts, floor_s) in [(1, 30), (2, 60), (3, 120)] {
            let floor_us = floor_s * SECOND_US;
            assert_eq!(retry.delay_us(attempts, 0), floor_us);
            assert_eq!(
                retry.delay_us(attempts, u64::MAX),
                floor_us + 30 * SECOND_US - 1
            );
        }
    }

    #[test]
    fn mesh_and_agents_jitter_both_ways_and_keep_their_cap() {
        let mesh = Backoff::mesh();
        assert_eq!(mesh.delay_us(0, 0), 375_000);
        assert_eq!(mesh.delay_us(0, u64::MAX), 625_000);
        assert_eq!(mesh.delay_us(40, 0), 22_500_000);
        assert_eq!(mesh.delay_us(40, u64::MAX), 30 * SECOND_US);
        let agent = Backoff::agent();
        assert_eq!(agent.delay_us(1, 0), 250_000);
        assert_eq!(agent.delay_us(1, u64::MAX), 750_000);
        assert_eq!(agent.delay_us(u32::MAX, u64::MAX), 30 * SECOND_US);
    }

    #[test]
    fn simple_policies_ignore_chance() {
        for entropy in [0, u64::MAX] {
            assert_eq!(Backoff::Now.delay_us(9, entropy), 0);
            assert_eq!(Backoff::Fixed { delay_us: 500 }.delay_us(9, entropy), 500);
            let linear = Backoff::Linear {
                step_us: 10,
                cap_us: 25,
            };
            let delays = [0, 1, 2, 3].map(|attempts| linear.delay_us(attempts, entropy));
            assert_eq!(delays, [0, 10, 20, 25]);
        }
    }

    #[test]
    fn be_029_the_bus_computes_the_protocols_own_delays() {
        plant::wake_from_environment();
        let vectors = [
            ("bus-1", [34, 68, 137, 276, 408, 413]),
            ("bus-off", [32, 65, 132, 266, 538, 542]),
            ("retry-nonce-1", [28, 57, 115, 233, 470, 475]),
            (
                "00000000-0000-4000-8000-000000000001",
                [27, 54, 109, 221, 446, 451],
            ),
        ];
        for (nonce, expected_s) in vectors {
            let delays_s = [1, 2, 3, 4, 5, 6]
                .map(|retry| BUS.delay_us(retry, key_entropy(nonce, retry)) / SECOND_US);
            assert_eq!(delays_s, expected_s, "{nonce}");
        }
    }

    // The protocol's reference computes in floating point; at exact halves that could differ.
    #[test]
    fn the_bus_rounds_as_the_reference_does_for_every_draw() {
        for (retry, step_s) in [(1, 30.0), (2, 60.0), (3, 120.0), (4, 240.0), (5, 480.0_f64)] {
            for draw in 0..31_u8 {
                let percent = f64::from(draw) - 15.0;
                let expected_s = (step_s * (1.0 + percent / 100.0) + 0.5).floor();
                let delay_us = BUS.delay_us(retry, u64::from(draw));
                let whole_s = u32::try_from(delay_us / SECOND_US).expect("a few minutes");
                assert!(
                    (f64::from(whole_s) - expected_s).abs() < 0.1,
                    "{step_s} {draw}"
                );
            }
        }
    }
}
