//! What the histories say about leases, without asking the server.
//!
//! A client knows the server's moment of decision only as an interval between sending and hearing.
//! Invariant: a violation is reported only when no moment inside the intervals could explain what
//! was heard.

use std::collections::BTreeMap;

use super::clients::{SECOND_US, SHORT_LEASE_S, is_tried_once};
use super::findings::{Findings, Promise};
use crate::history::{Act, Entry, Heard};

const DEFAULT_LEASE_US: i64 = 60 * SECOND_US;
/// The two processes read the same clock, but not with the same ticks.
const TOLERANCE_US: i64 = 50_000;

/// One granted claim and everything its holder did with it.
#[derive(Debug)]
pub struct Claim<'a> {
    granted: &'a Entry,
    token: &'a str,
    acts: Vec<&'a Entry>,
}

impl Claim<'_> {
    /// The first moment at which this lease may have been over.
    fn may_end_us(&self) -> i64 {
        let mut end_us = self.granted.sent_us + DEFAULT_LEASE_US;
        for entry in &self.acts {
            match (&entry.act, &entry.heard) {
                (Act::Extend { lease_s, .. }, Heard::Yes { .. }) => {
                    end_us = entry.sent_us + lease_s * SECOND_US;
                }
                (Act::Extend { lease_s, .. }, heard) if heard.is_unknown() => {
                    end_us = end_us.min(entry.sent_us + lease_s * SECOND_US);
                }
                (Act::Fail { .. } | Act::Fulfil { .. }, heard)
                    if heard.is_unknown() || matches!(heard, Heard::Yes { .. }) =>
                {
                    return end_us.min(entry.sent_us);
                }
                _ => {}
            }
        }
        end_us
    }

    /// Whether it may have been granted when the other lease was over.
    fn may_follow(&self, other: &Self, tolerance_us: i64) -> bool {
        self.granted.heard_us + tolerance_us >= other.may_end_us()
    }

    /// The last moment at which this lease may have been alive.
    fn must_end_us(&self) -> i64 {
        let mut end_us = self.granted.heard_us.saturating_add(DEFAULT_LEASE_US);
        for entry in &self.acts {
            let Act::Extend { lease_s, .. } = &entry.act else {
                continue;
            };
            let lease_us = lease_s * SECOND_US;
            let extended_us = entry.heard_us.saturating_add(lease_us);
            if matches!(entry.heard, Heard::Yes { .. }) {
                end_us = extended_us;
            } else if entry.heard == Heard::Lost {
                // A node that slept may carry it out later, but not after the lease was over.
                end_us = end_us.saturating_add(lease_us).max(extended_us);
            } else if entry.heard.is_unknown() {
                end_us = end_us.max(extended_us);
            }
        }
        end_us
    }

    /// Whether its holder went away on purpose, and the server knows the short lease.
    fn vanished(&self) -> bool {
        self.acts.last().is_some_and(|entry| {
            matches!(entry.heard, Heard::Yes { .. })
                && matches!(entry.act, Act::Extend { lease_s, .. } if lease_s == SHORT_LEASE_S)
        })
    }

    fn fulfilled_us(&self) -> Option<i64> {
        let done = self.acts.iter().find(|entry| {
            matches!(entry.act, Act::Fulfil { .. }) && matches!(entry.heard, Heard::Yes { .. })
        });
        done.map(|entry| entry.heard_us)
    }
}

/// Granted claims by intent, in the order in which their answers were heard.
pub fn claims(entries: &[Entry]) -> BTreeMap<&str, Vec<Claim<'_>>> {
    let mut claims: BTreeMap<&str, Vec<Claim<'_>>> = BTreeMap::new();
    for granted in entries {
        if let (Act::Claim { .. }, Heard::Yes { id, token }) = (&granted.act, &granted.heard) {
            claims.entry(id).or_default().push(Claim {
                granted,
                token,
                acts: Vec::new(),
            });
        }
    }
    for entry in entries {
        let (Act::Extend { id, token, .. }
        | Act::Fulfil { id, token, .. }
        | Act::Fail { id, token }) = &entry.act
        else {
            continue;
        };
        let of_intent = claims.get_mut(id.as_str()).into_iter().flatten();
        for claim in of_intent.filter(|claim| claim.token == token) {
            claim.acts.push(entry);
        }
    }
    for of_intent in claims.values_mut() {
        of_intent.sort_by_key(|claim| claim.granted.heard_us);
        for claim in of_intent {
            claim.acts.sort_by_key(|entry| entry.sent_us);
        }
    }
    claims
}

/// Intents whose holder vanished, with their once-keys. Those that may be tried only once are left
/// out: the end of their lease is their end.
pub fn left_behind(entries: &[Entry]) -> BTreeMap<&str, &str> {
    let claims = claims(entries);
    let mut left = BTreeMap::new();
    for entry in entries {
        if let (Act::Publish { key }, Heard::Yes { id, .. }) = (&entry.act, &entry.heard)
            && let Some(of_intent) = claims.get(id.as_str())
            && of_intent.iter().any(Claim::vanished)
            && !is_tried_once(key)
        {
            left.insert(id.as_str(), key.as_str());
        }
    }
    left
}

/// Looks for two holders at once, work after the end, forged tokens and leases that got lost. Leases may have been measured
/// by clocks that are so far apart.
pub fn judge(entries: &[Entry], apart_us: i64, findings: &mut Findings) {
    let tolerance_us = TOLERANCE_US + apart_us;
    for (id, of_intent) in claims(entries) {
        for pair in of_intent.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            // A client that slept may hear last what was granted first.
            let free =
                second.may_follow(first, tolerance_us) || first.may_follow(second, tolerance_us);
            findings.check(Promise::OneLease, free, || {
                format!(
                    "{id} was claimed by client {} at {} and by client {} at {}, before {}",
                    first.granted.client,
                    first.granted.heard_us,
                    second.granted.client,
                    second.granted.heard_us,
                    first.may_end_us(),
                )
            });
            let after_end = first
                .fulfilled_us()
                .is_some_and(|done_us| second.granted.sent_us > done_us);
            findings.check(Promise::OneLease, !after_end, || {
                format!("{id} was claimed again after it was fulfilled")
            });
        }
        let fulfilled = of_intent.iter().filter_map(Claim::fulfilled_us).count();
        findings.check(Promise::OneLease, fulfilled <= 1, || {
            format!("{id} was fulfilled {fulfilled} times")
        });
        for claim in &of_intent {
            refusals(id, claim, tolerance_us, findings);
        }
    }
    for entry in entries {
        let Act::Forge { id, path, token } = &entry.act else {
            continue;
        };
        if entry.heard.is_unknown() {
            continue;
        }
        let refused = entry.heard == Heard::Refused { status: 404 };
        findings.check(Promise::TokenChecked, refused, || {
            let heard = &entry.heard;
            format!("/{path}/{id} with the wrong token {token}: {heard:?}")
        });
    }
}

/// A holder inside its lease must never be turned away, and one that comes late always.
fn refusals(id: &str, claim: &Claim<'_>, tolerance_us: i64, findings: &mut Findings) {
    for (place, entry) in claim.acts.iter().enumerate() {
        let before = Claim {
            granted: claim.granted,
            token: claim.token,
            acts: claim.acts[..place].to_vec(),
        };
        let certainly_held = entry.heard_us < before.may_end_us() - tolerance_us;
        let let_in = matches!(entry.heard, Heard::Yes { .. });
        if entry.sent_us > before.must_end_us().saturating_add(tolerance_us)
            && !entry.heard.is_unknown()
        {
            findings.check(Promise::LateRefused, !let_in, || {
                format!("{id}: {:?} came after the lease was over", entry.act)
            });
        }
        if certainly_held && !entry.heard.is_unknown() {
            findings.check(Promise::LeaseSurvives, let_in, || {
                format!("{id}: {:?} by its holder was {:?}", entry.act, entry.heard)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at_s: i64, act: Act, heard: Heard) -> Entry {
        Entry {
            client: 0,
            round: 1,
            sent_us: at_s * SECOND_US,
            heard_us: at_s * SECOND_US + 1_000,
            act,
            heard,
        }
    }

    fn yes(token: &str) -> Heard {
        Heard::Yes {
            id: "a".to_owned(),
            token: token.to_owned(),
        }
    }

    fn claim() -> Act {
        Act::Claim {
            goal: String::new(),
        }
    }

    fn fail(token: &str) -> Act {
        Act::Fail {
            id: "a".to_owned(),
            token: token.to_owned(),
        }
    }

    fn is_clean(entries: &[Entry]) -> bool {
        let mut findings = Findings::new("test");
        judge(entries, 0, &mut findings);
        findings.is_clean()
    }

    #[test]
    fn a_second_holder_needs_the_first_one_to_be_gone() {
        let claim = |at_s, token| entry(at_s, claim(), yes(token));
        assert!(!is_clean(&[claim(0, "t"), claim(5, "u")]));
        assert!(is_clean(&[claim(0, "t"), claim(61, "u")]));
        let failed = |heard| entry(3, fail("t"), heard);
        assert!(is_clean(&[claim(0, "t"), failed(yes("")), claim(5, "u")]));
        assert!(is_clean(&[
            claim(0, "t"),
            failed(Heard::Lost),
            claim(5, "u")
        ]));
        let refused = |status| failed(Heard::Refused { status });
        assert!(!is_clean(&[claim(0, "t"), refused(404), claim(5, "u")]));
        assert!(is_clean(&[claim(0, "t"), refused(503), claim(5, "u")]));
        let heard_late = |at_s| Entry {
            heard_us: 62 * SECOND_US,
            ..claim(at_s, "t")
        };
        assert!(is_clean(&[claim(61, "u"), heard_late(0)]));
        assert!(!is_clean(&[claim(61, "u"), heard_late(5)]));
    }

    #[test]
    fn clocks_that_are_apart_let_a_lease_end_that_much_early_or_late_and_no_more() {
        let claim = |at_s, token| entry(at_s, claim(), yes(token));
        let late = |at_s| entry(at_s, fail("t"), yes(""));
        let refused = |at_s| entry(at_s, fail("t"), Heard::Refused { status: 404 });
        let is_clean = |entries: &[Entry], apart_s| {
            let mut findings = Findings::new("test");
            judge(entries, apart_s * SECOND_US, &mut findings);
            findings.is_clean()
        };
        for other in [claim(58, "u"), refused(58), late(62)] {
            let entries = [claim(0, "t"), other];
            assert!(is_clean(&entries, 2) && !is_clean(&entries, 1));
        }
    }

    #[test]
    fn a_forged_token_must_be_answered_with_404() {
        let forge = Act::Forge {
            id: "a".to_owned(),
            path: "fail".to_owned(),
            token: "x".to_owned(),
        };
        assert!(is_clean(&[entry(
            0,
            forge.clone(),
            Heard::Refused { status: 404 }
        )]));
        assert!(!is_clean(&[entry(0, forge, yes(""))]));
    }

    #[test]
    fn a_holder_may_not_be_refused_inside_its_lease() {
        let claim = entry(0, claim(), yes("t"));
        let refused = |at_s| entry(at_s, fail("t"), Heard::Refused { status: 404 });
        assert!(!is_clean(&[claim.clone(), refused(5)]));
        assert!(is_clean(&[claim, refused(60)]));
    }

    #[test]
    fn a_holder_that_comes_late_must_be_refused() {
        let claim = entry(0, claim(), yes("t"));
        let extended = Act::Extend {
            id: "a".to_owned(),
            token: "t".to_owned(),
            lease_s: 90,
        };
        let late = |at_s| entry(at_s, fail("t"), yes(""));
        assert!(is_clean(&[claim.clone(), late(59)]));
        assert!(!is_clean(&[claim.clone(), late(61)]));
        let extended = entry(10, extended, Heard::Refused { status: 503 });
        assert!(is_clean(&[claim.clone(), extended.clone(), late(61)]));
        assert!(!is_clean(&[claim, extended, late(101)]));
    }
}
