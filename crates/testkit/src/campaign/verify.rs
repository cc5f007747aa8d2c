//! Compares the responses of the clients with the state of the server after a restart.

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::clients::NAMESPACE;
use super::findings::{Findings, Promise};
use super::leases;
use crate::history::{ClientAction, ClientOutcome, HistoryEntry};
use crate::process::{Http, Reply};

/// How often a failed read is repeated.
const TROUBLES_MAX: u32 = 20;
const TROUBLE_PAUSE: Duration = Duration::from_millis(50);

/// Checks everything that was acknowledged, intent by intent.
pub fn acknowledged(
    entries: &[HistoryEntry],
    http: &mut Http,
    findings: &mut Findings,
) -> io::Result<()> {
    for (id, acknowledged_by_id) in acknowledged_by_id(entries) {
        let reply = ask(http, &format!("/result/{id}"))?;
        let (status, json) = (reply.status, reply.json());
        if let Some(key) = acknowledged_by_id.key {
            let there = status == 200 && json["goal"] == key;
            findings.check(Promise::PublishSurvives, there, || {
                format!("{key} was acknowledged as {id}, now status {status}")
            });
        }
        for result in acknowledged_by_id.results {
            let kept = json["status"] == "fulfilled" && json["result"]["by"] == result;
            findings.check(Promise::SettlementSurvives, kept, || {
                format!("{id} was fulfilled with {result}, now {json}")
            });
        }
        if acknowledged_by_id.fails > 0 {
            let (outcome, known) = (
                acknowledged_by_id.fails,
                FactVerbs::load(http, id)?.count("failed"),
            );
            findings.check(Promise::SettlementSurvives, outcome <= known, || {
                format!("{id}: {outcome} failures were accepted, {known} are known")
            });
        }
    }
    Ok(())
}

/// The responses that clients received about one intent.
#[derive(Debug, Default)]
struct AcknowledgedState<'a> {
    key: Option<&'a str>,
    results: Vec<&'a str>,
    fails: usize,
}

fn acknowledged_by_id(entries: &[HistoryEntry]) -> BTreeMap<&str, AcknowledgedState<'_>> {
    let mut acknowledged_by_id: BTreeMap<&str, AcknowledgedState<'_>> = BTreeMap::new();
    for entry in entries {
        let ClientOutcome::Yes { id: answered, .. } = &entry.outcome else {
            continue;
        };
        match &entry.action {
            ClientAction::Publish { key } => {
                acknowledged_by_id.entry(answered).or_default().key = Some(key);
            }
            ClientAction::Fulfil { id, result, .. } => acknowledged_by_id
                .entry(id)
                .or_default()
                .results
                .push(result),
            ClientAction::Fail { id, .. } => acknowledged_by_id.entry(id).or_default().fails += 1,
            ClientAction::Claim { .. }
            | ClientAction::Extend { .. }
            | ClientAction::Forge { .. } => {}
        }
    }
    acknowledged_by_id
}

/// While the disk is healthy, no client receives an error.
pub fn no_trouble(entries: &[HistoryEntry], findings: &mut Findings) {
    for entry in entries {
        findings.check(Promise::HealthyAnswers, !entry.outcome.is_trouble(), || {
            format!("{:?} was answered {:?}", entry.action, entry.outcome)
        });
    }
}

/// Every once-key has one intent, and all clients received the same one.
pub fn once_keys(
    entries: &[HistoryEntry],
    http: &mut Http,
    findings: &mut Findings,
) -> io::Result<()> {
    let stored = by_goal(http)?;
    let mut acknowledged_by_id: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in entries {
        if let ClientAction::Publish { key } = &entry.action {
            let ids = acknowledged_by_id.entry(key).or_default();
            if let ClientOutcome::Yes { id, .. } = &entry.outcome {
                ids.push(id);
            }
        }
    }
    for (key, mut ids) in acknowledged_by_id {
        let answers = ids.len();
        ids.sort_unstable();
        ids.dedup();
        let found = stored.get(key).cloned().unwrap_or_default();
        let same = ids.len() <= 1 && found.len() <= 1 && (ids.is_empty() || found == ids);
        findings.check(Promise::OnceKey, same, || {
            format!("{key}: {answers} answers named {ids:?}, the server has {found:?}")
        });
    }
    for (goal, ids) in &stored {
        findings.check(Promise::OnceKey, ids.len() == 1, || {
            format!("{goal} has {} intents: {ids:?}", ids.len())
        });
    }
    Ok(())
}

/// The timeline of each claimed intent is consistent and contains everything that was acknowledged.
pub fn timelines(
    entries: &[HistoryEntry],
    http: &mut Http,
    findings: &mut Findings,
) -> io::Result<()> {
    let left_behind = leases::left_behind(entries);
    for (id, claims) in leases::claims(entries) {
        let facts = FactVerbs::load(http, id)?;
        findings.check(Promise::OneLease, facts.one_holder_at_a_time(), || {
            format!("{id}: {:?}", facts.0)
        });
        let granted = claims.len();
        findings.check(
            Promise::LeaseSurvives,
            granted <= facts.count("claimed"),
            || {
                let known = &facts.0;
                format!("{id} was granted {granted} times, the server knows {known:?}")
            },
        );
        if left_behind.contains_key(id) {
            findings.check(Promise::OfferedAgain, facts.offered_again(), || {
                format!("{id} was not offered again: {:?}", facts.0)
            });
        }
    }
    Ok(())
}

/// The verbs of an intent's facts, oldest first.
#[derive(Debug)]
struct FactVerbs(Vec<String>);

impl FactVerbs {
    fn load(http: &mut Http, id: &str) -> io::Result<Self> {
        let reply = ask(http, &format!("/intents/{id}/timeline"))?.json();
        let facts = reply["facts"].as_array().cloned().unwrap_or_default();
        let verb = |fact: &Value| fact["verb"].as_str().unwrap_or_default().to_owned();
        Ok(Self(facts.iter().map(verb).collect()))
    }

    fn count(&self, verb: &str) -> usize {
        self.0.iter().filter(|known| *known == verb).count()
    }

    /// A lease expired, and the next worker got the intent.
    fn offered_again(&self) -> bool {
        let ran_out = self.0.iter().position(|verb| verb == "expired");
        let again = ran_out.is_some_and(|at| self.0[at..].iter().any(|verb| verb == "claimed"));
        let left = self.0.last().is_some_and(|verb| verb == "extended");
        again && !left
    }

    fn one_holder_at_a_time(&self) -> bool {
        let (mut held, mut done) = (false, false);
        for verb in &self.0 {
            let fits = match verb.as_str() {
                "claimed" => !held && !done,
                "completed" | "failed" => held && !done,
                _ => !done,
            };
            if !fits {
                return false;
            }
            held = match verb.as_str() {
                "claimed" => true,
                "extended" => held,
                _ => false,
            };
            done |= verb == "completed";
        }
        true
    }
}

/// Reads a path, and repeats after an error response.
fn ask(http: &mut Http, path: &str) -> io::Result<Reply> {
    let mut reply = http.get(path)?;
    for _ in 0..TROUBLES_MAX {
        if reply.status < 500 {
            break;
        }
        thread::sleep(TROUBLE_PAUSE);
        reply = http.get(path)?;
    }
    Ok(reply)
}

/// All intents of the campaign by their goal, which is their once-key.
fn by_goal(http: &mut Http) -> io::Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut path = format!("/intents?namespace={NAMESPACE}&limit=100");
    loop {
        let page = ask(http, &path)?.json();
        for intent in page["intents"].as_array().into_iter().flatten() {
            let text = |name: &str| intent[name].as_str().unwrap_or_default().to_owned();
            found.entry(text("goal")).or_default().push(text("id"));
        }
        let Some(cursor) = page["cursor"].as_str() else {
            return Ok(found);
        };
        path = format!("/intents?namespace={NAMESPACE}&limit=100&cursor={cursor}");
    }
}

#[cfg(test)]
mod tests {
    use super::FactVerbs;

    #[test]
    fn a_timeline_shows_one_holder_at_a_time() {
        let fits = |verbs: &str| {
            FactVerbs(verbs.split(' ').map(str::to_owned).collect()).one_holder_at_a_time()
        };
        assert!(fits(
            "admitted claimed extended failed claimed expired claimed completed"
        ));
        assert!(!fits("admitted claimed claimed"));
        assert!(!fits("admitted claimed completed claimed"));
        assert!(!fits("admitted completed"));
    }
}
