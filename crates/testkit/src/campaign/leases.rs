//! Checks of leases from the histories alone.
//!
//! The moment of the server's decision is known only as the interval between request and response.
//! Invariant: a violation is reported only if no moment inside the intervals could explain the outcome.

use std::collections::BTreeMap;

use super::clients::{SECOND_US, SHORT_LEASE_S, is_tried_once};
use super::findings::{Findings, Promise};
use crate::history::{ClientAction, ClientOutcome, HistoryEntry};

const DEFAULT_LEASE_US: i64 = 60 * SECOND_US;
/// Two processes read the same clock with different resolution.
const TOLERANCE_US: i64 = 50_000;

/// One granted claim and everything its holder did with it.
#[derive(Debug)]
pub struct ObservedClaim<'a> {
    granted: &'a HistoryEntry,
    token: &'a str,
    actions: Vec<&'a HistoryEntry>,
}

impl ObservedClaim<'_> {
    /// The first moment at which this lease may have been over.
    fn may_end_us(&self) -> i64 {
        let mut end_us = self.granted.sent_us + DEFAULT_LEASE_US;
        for entry in &self.actions {
            match (&entry.action, &entry.outcome) {
                (ClientAction::Extend { lease_s, .. }, ClientOutcome::Yes { .. }) => {
                    end_us = entry.sent_us + lease_s * SECOND_US;
                }
                (ClientAction::Extend { lease_s, .. }, outcome) if outcome.is_unknown() => {
                    end_us = end_us.min(entry.sent_us + lease_s * SECOND_US);
                }
                (ClientAction::Fail { .. } | ClientAction::Fulfil { .. }, outcome)
                    if outcome.is_unknown() || matches!(outcome, ClientOutcome::Yes { .. }) =>
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
        self.granted.ended_us + tolerance_us >= other.may_end_us()
    }

    /// The last moment at which this lease may have been alive.
    fn must_end_us(&self) -> i64 {
        let mut end_us = self.granted.ended_us.saturating_add(DEFAULT_LEASE_US);
        for entry in &self.actions {
            let ClientAction::Extend { lease_s, .. } = &entry.action else {
                continue;
            };
            let lease_us = lease_s * SECOND_US;
            let extended_us = entry.ended_us.saturating_add(lease_us);
            if matches!(entry.outcome, ClientOutcome::Yes { .. }) {
                end_us = extended_us;
            } else if entry.outcome == ClientOutcome::Lost {
                // A suspended node may execute it later, but not after the end of the lease.
                end_us = end_us.saturating_add(lease_us).max(extended_us);
            } else if entry.outcome.is_unknown() {
                end_us = end_us.max(extended_us);
            }
        }
        end_us
    }

    /// Whether its holder vanished on purpose, and the server has the short lease.
    fn vanished(&self) -> bool {
        self.actions.last().is_some_and(|entry| {
            matches!(entry.outcome, ClientOutcome::Yes { .. })
                && matches!(entry.action, ClientAction::Extend { lease_s, .. } if lease_s == SHORT_LEASE_S)
        })
    }

    fn fulfilled_us(&self) -> Option<i64> {
        let done = self.actions.iter().find(|entry| {
            matches!(entry.action, ClientAction::Fulfil { .. })
                && matches!(entry.outcome, ClientOutcome::Yes { .. })
        });
        done.map(|entry| entry.ended_us)
    }
}

/// Granted claims by intent, in the order of their responses.
pub fn claims(entries: &[HistoryEntry]) -> BTreeMap<&str, Vec<ObservedClaim<'_>>> {
    let mut claims: BTreeMap<&str, Vec<ObservedClaim<'_>>> = BTreeMap::new();
    for granted in entries {
        if let (ClientAction::Claim { .. }, ClientOutcome::Yes { id, token }) =
            (&granted.action, &granted.outcome)
        {
            claims.entry(id).or_default().push(ObservedClaim {
                granted,
                token,
                actions: Vec::new(),
            });
        }
    }
    for entry in entries {
        let (ClientAction::Extend { id, token, .. }
        | ClientAction::Fulfil { id, token, .. }
        | ClientAction::Fail { id, token }) = &entry.action
        else {
            continue;
        };
        let of_intent = claims.get_mut(id.as_str()).into_iter().flatten();
        for claim in of_intent.filter(|claim| claim.token == token) {
            claim.actions.push(entry);
        }
    }
    for of_intent in claims.values_mut() {
        of_intent.sort_by_key(|claim| claim.granted.ended_us);
        for claim in of_intent {
            claim.actions.sort_by_key(|entry| entry.sent_us);
        }
    }
    claims
}

/// Intents whose holder vanished, with their once-keys. Intents with a single attempt are left out: they end with
/// their lease.
pub fn left_behind(entries: &[HistoryEntry]) -> BTreeMap<&str, &str> {
    let claims = claims(entries);
    let mut left = BTreeMap::new();
    for entry in entries {
        if let (ClientAction::Publish { key }, ClientOutcome::Yes { id, .. }) =
            (&entry.action, &entry.outcome)
            && let Some(of_intent) = claims.get(id.as_str())
            && of_intent.iter().any(ObservedClaim::vanished)
            && !is_tried_once(key)
        {
            left.insert(id.as_str(), key.as_str());
        }
    }
    left
}

/// Finds two holders at once, work after the end, forged tokens and lost leases. Leases may have been measured by
/// clocks that differ by `apart_us`.
pub fn judge(entries: &[HistoryEntry], apart_us: i64, findings: &mut Findings) {
    let tolerance_us = TOLERANCE_US + apart_us;
    for (id, of_intent) in claims(entries) {
        for pair in of_intent.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            // A suspended client may be the last to receive its response, although its claim was granted first.
            let free =
                second.may_follow(first, tolerance_us) || first.may_follow(second, tolerance_us);
            findings.check(Promise::OneLease, free, || {
                format!(
                    "{id} was claimed by client {} at {} and by client {} at {}, before {}",
                    first.granted.client,
                    first.granted.ended_us,
                    second.granted.client,
                    second.granted.ended_us,
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
        let fulfilled = of_intent
            .iter()
            .filter_map(ObservedClaim::fulfilled_us)
            .count();
        findings.check(Promise::OneLease, fulfilled <= 1, || {
            format!("{id} was fulfilled {fulfilled} times")
        });
        for claim in &of_intent {
            refusals(id, claim, tolerance_us, findings);
        }
    }
    for entry in entries {
        let ClientAction::Forge { id, path, token } = &entry.action else {
            continue;
        };
        if entry.outcome.is_unknown() {
            continue;
        }
        let refused = entry.outcome == ClientOutcome::Refused { status: 404 };
        findings.check(Promise::TokenChecked, refused, || {
            let outcome = &entry.outcome;
            format!("/{path}/{id} with the wrong token {token}: {outcome:?}")
        });
    }
}

/// A holder inside its lease must never be refused, and a late one always.
fn refusals(id: &str, claim: &ObservedClaim<'_>, tolerance_us: i64, findings: &mut Findings) {
    for (place, entry) in claim.actions.iter().enumerate() {
        let before = ObservedClaim {
            granted: claim.granted,
            token: claim.token,
            actions: claim.actions[..place].to_vec(),
        };
        let certainly_held = entry.ended_us < before.may_end_us() - tolerance_us;
        let let_in = matches!(entry.outcome, ClientOutcome::Yes { .. });
        if entry.sent_us > before.must_end_us().saturating_add(tolerance_us)
            && !entry.outcome.is_unknown()
        {
            findings.check(Promise::LateRefused, !let_in, || {
                format!("{id}: {:?} came after the lease was over", entry.action)
            });
        }
        if certainly_held && !entry.outcome.is_unknown() {
            findings.check(Promise::LeaseSurvives, let_in, || {
                format!(
                    "{id}: {:?} by its holder was {:?}",
                    entry.action, entry.outcome
                )
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at_s: i64, action: ClientAction, outcome: ClientOutcome) -> HistoryEntry {
        HistoryEntry {
            client: 0,
            round: 1,
            sent_us: at_s * SECOND_US,
            ended_us: at_s * SECOND_US + 1_000,
            action,
            outcome,
        }
    }

    fn yes(token: &str) -> ClientOutcome {
        ClientOutcome::Yes {
            id: "a".to_owned(),
            token: token.to_owned(),
        }
    }

    fn claim() -> ClientAction {
        ClientAction::Claim {
            goal: String::new(),
        }
    }

    fn fail(token: &str) -> ClientAction {
        ClientAction::Fail {
            id: "a".to_owned(),
            token: token.to_owned(),
        }
    }

    fn is_clean(entries: &[HistoryEntry]) -> bool {
        let mut findings = Findings::new("test");
        judge(entries, 0, &mut findings);
        findings.is_clean()
    }

    #[test]
    fn a_second_holder_needs_the_first_one_to_be_gone() {
        let claim = |at_s, token| entry(at_s, claim(), yes(token));
        assert!(!is_clean(&[claim(0, "t"), claim(5, "u")]));
        assert!(is_clean(&[claim(0, "t"), claim(61, "u")]));
        let failed = |outcome| entry(3, fail("t"), outcome);
        assert!(is_clean(&[claim(0, "t"), failed(yes("")), claim(5, "u")]));
        assert!(is_clean(&[
            claim(0, "t"),
            failed(ClientOutcome::Lost),
            claim(5, "u")
        ]));
        let refused = |status| failed(ClientOutcome::Refused { status });
        assert!(!is_clean(&[claim(0, "t"), refused(404), claim(5, "u")]));
        assert!(is_clean(&[claim(0, "t"), refused(503), claim(5, "u")]));
        let heard_late = |at_s| HistoryEntry {
            ended_us: 62 * SECOND_US,
            ..claim(at_s, "t")
        };
        assert!(is_clean(&[claim(61, "u"), heard_late(0)]));
        assert!(!is_clean(&[claim(61, "u"), heard_late(5)]));
    }

    #[test]
    fn clocks_that_are_apart_let_a_lease_end_that_much_early_or_late_and_no_more() {
        let claim = |at_s, token| entry(at_s, claim(), yes(token));
        let late = |at_s| entry(at_s, fail("t"), yes(""));
        let refused = |at_s| entry(at_s, fail("t"), ClientOutcome::Refused { status: 404 });
        let is_clean = |entries: &[HistoryEntry], apart_s| {
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
        let forge = ClientAction::Forge {
            id: "a".to_owned(),
            path: "fail".to_owned(),
            token: "x".to_owned(),
        };
        assert!(is_clean(&[entry(
            0,
            forge.clone(),
            ClientOutcome::Refused { status: 404 }
        )]));
        assert!(!is_clean(&[entry(0, forge, yes(""))]));
    }

    #[test]
    fn a_holder_may_not_be_refused_inside_its_lease() {
        let claim = entry(0, claim(), yes("t"));
        let refused = |at_s| entry(at_s, fail("t"), ClientOutcome::Refused { status: 404 });
        assert!(!is_clean(&[claim.clone(), refused(5)]));
        assert!(is_clean(&[claim, refused(60)]));
    }

    #[test]
    fn a_holder_that_comes_late_must_be_refused() {
        let claim = entry(0, claim(), yes("t"));
        let extended = ClientAction::Extend {
            id: "a".to_owned(),
            token: "t".to_owned(),
            lease_s: 90,
        };
        let late = |at_s| entry(at_s, fail("t"), yes(""));
        assert!(is_clean(&[claim.clone(), late(59)]));
        assert!(!is_clean(&[claim.clone(), late(61)]));
        let extended = entry(10, extended, ClientOutcome::Refused { status: 503 });
        assert!(is_clean(&[claim.clone(), extended.clone(), late(61)]));
        assert!(!is_clean(&[claim, extended, late(101)]));
    }
}
