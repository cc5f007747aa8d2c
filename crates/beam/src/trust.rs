//! Trust: the score of an agent of this directory, and how much of a foreign directory's assertion counts here.
//!
//! Invariant: every result is between 0 and 1, also for arguments that are no numbers. Ages are arguments; an age that is
//! negative, because two clocks differ, counts as none.

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
const WEEK_MS: i64 = 7 * DAY_MS;

/// The largest number of directories between the agent and this one.
pub const HOPS_MAX: u8 = 3;

/// How thoroughly the identity behind an agent was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VerificationTier {
    Basic,
    Verified,
    Business,
    Enterprise,
}

impl VerificationTier {
    pub const ALL: [Self; 4] = [
        Self::Basic,
        Self::Verified,
        Self::Business,
        Self::Enterprise,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Verified => "verified",
            Self::Business => "business",
            Self::Enterprise => "enterprise",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.word() == word)
    }
}

/// What the score of an agent depends on.
#[derive(Debug, Clone, Copy)]
pub struct TrustFacts {
    /// An operator marked the agent as harmful.
    pub flagged: bool,
    pub verified: bool,
    pub tier: VerificationTier,
    /// The time since the agent was last seen.
    pub unseen_ms: i64,
    /// The time since the agent was registered.
    pub age_ms: i64,
}

/// The score of an agent, to two decimals. A flagged agent has none.
pub fn trust_score(facts: &TrustFacts) -> f64 {
    if facts.flagged {
        return 0.0;
    }
    let bonuses = [
        (facts.verified, 30),
        (facts.tier != VerificationTier::Basic, 20),
        (facts.unseen_ms <= DAY_MS, 20),
        (facts.age_ms >= WEEK_MS, 20),
    ];
    // In hundredths, so that no sum is inexact.
    let hundredths = 30
        + bonuses
            .into_iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, bonus)| bonus)
            .sum::<i32>();
    f64::from(hundredths.min(100)) / 100.0
}

/// What an assertion is worth after this many hops, to four decimals: half of it after each. At least one hop counts, and at most
/// [`HOPS_MAX`].
pub fn effective_trust(asserted: f64, hops: u32) -> f64 {
    let hops = hops.clamp(1, u32::from(HOPS_MAX));
    share(within_unit(asserted) / f64::from(1_u32 << hops))
}

/// What an assertion that was worth this much is worth now, to four decimals. It loses a tenth per week, continuously.
pub fn decayed_trust(effective: f64, age_ms: i64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "an age has far fewer than 53 bits"
    )]
    let weeks = age_ms.max(0) as f64 / WEEK_MS as f64;
    share(within_unit(effective) * 0.9_f64.powf(weeks))
}

fn share(value: f64) -> f64 {
    within_unit((value * 10_000.0).round() / 10_000.0)
}

fn within_unit(value: f64) -> f64 {
    if value.is_nan() {
        0.0
    } else {
        value.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: TrustFacts = TrustFacts {
        flagged: false,
        verified: false,
        tier: VerificationTier::Basic,
        unseen_ms: 0,
        age_ms: 0,
    };

    fn check(found: f64, expected: &str) {
        assert_eq!(found.to_string(), expected);
    }

    #[test]
    fn a_fresh_agent_is_trusted_by_half() {
        check(trust_score(&FRESH), "0.5");
    }

    #[test]
    fn each_fact_raises_the_score() {
        let unseen = TrustFacts {
            unseen_ms: DAY_MS + 1,
            ..FRESH
        };
        check(trust_score(&unseen), "0.3");
        let just_seen = TrustFacts {
            unseen_ms: DAY_MS,
            ..FRESH
        };
        check(trust_score(&just_seen), "0.5");
        let verified = TrustFacts {
            verified: true,
            ..unseen
        };
        check(trust_score(&verified), "0.6");
        for tier in [
            VerificationTier::Verified,
            VerificationTier::Business,
            VerificationTier::Enterprise,
        ] {
            check(trust_score(&TrustFacts { tier, ..unseen }), "0.5");
        }
        let aged = |age_ms| TrustFacts { age_ms, ..unseen };
        check(trust_score(&aged(WEEK_MS - 1)), "0.3");
        check(trust_score(&aged(WEEK_MS)), "0.5");
    }

    #[test]
    fn the_score_is_at_most_one_and_none_for_a_flagged_agent() {
        let all = TrustFacts {
            flagged: false,
            verified: true,
            tier: VerificationTier::Enterprise,
            unseen_ms: -5,
            age_ms: WEEK_MS,
        };
        check(trust_score(&all), "1");
        let flagged = TrustFacts {
            flagged: true,
            ..all
        };
        check(trust_score(&flagged), "0");
    }

    #[test]
    fn an_assertion_is_halved_per_hop() {
        for (asserted, hops, expected) in [
            (0.9, 1, "0.45"),
            (0.9, 2, "0.225"),
            (0.9, 3, "0.1125"),
            (0.9, 4, "0.1125"),
            (0.9, 0, "0.45"),
            (1.0, u32::MAX, "0.125"),
            (0.333_33, 1, "0.1667"),
            (7.0, 1, "0.5"),
            (-1.0, 1, "0"),
            (f64::NAN, 1, "0"),
            (f64::INFINITY, 1, "0.5"),
        ] {
            check(effective_trust(asserted, hops), expected);
        }
    }

    #[test]
    fn an_assertion_loses_a_tenth_per_week() {
        for (age_ms, expected) in [
            (0, "0.5"),
            (WEEK_MS, "0.45"),
            (2 * WEEK_MS, "0.405"),
            (WEEK_MS / 2, "0.4743"),
            (-WEEK_MS, "0.5"),
            (i64::MAX, "0"),
        ] {
            check(decayed_trust(0.5, age_ms), expected);
        }
    }

    #[test]
    fn a_tier_is_known_by_its_word() {
        for tier in VerificationTier::ALL {
            assert_eq!(VerificationTier::parse(tier.word()), Some(tier));
        }
        assert_eq!(VerificationTier::parse("Basic"), None);
    }
}
