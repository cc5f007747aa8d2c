//! Compares what senders and recipients of intents experienced with the traces of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use consign_beam::lifecycle::{TransitionContext, check_transition, parse_state};
use consign_beam::timestamp;
use serde_json::Value;

use super::CampaignAgents;
use super::history::{BeamCall, BeamEntry, BeamHistory};
use super::senders::{self, IntentUse};
use super::setup::{RESULT_TIMEOUT, viewer_session};
use crate::beam_agents::INTENT_TYPES;
use crate::campaign::findings::{Findings, Promise};
use crate::process::Http;

/// The codes of the relay itself; with another one, the recipient reported the failure.
const RELAY_CODES: [&str; 3] = ["TIMEOUT", "DELIVERY_FAILED", "OFFLINE"];
/// Times in a trace are whole milliseconds.
const TOLERANCE_MS: i64 = 5;

#[derive(Debug)]
pub(super) struct DirectoryChecks<'a> {
    agents: &'a CampaignAgents,
    nonces: BTreeMap<&'a str, KnownNonce<'a>>,
}

/// What happened to one nonce, from the view of all clients.
#[derive(Debug, Default)]
struct KnownNonce<'a> {
    sent: Vec<(IntentUse, &'a BeamEntry)>,
    is_message: bool,
    is_received: bool,
    answers: BTreeSet<&'a str>,
}

impl<'a> KnownNonce<'a> {
    /// The responses that contain a result.
    fn results(&self) -> impl Iterator<Item = (IntentUse, &'a str)> {
        let answered = self.sent.iter();
        let answered = answered.filter(|(_, entry)| entry.is(BeamCall::SendIntent, 200));
        answered.map(|(used, entry)| (*used, entry.body()))
    }
}

impl<'a> DirectoryChecks<'a> {
    pub(super) fn new(
        agents: &'a CampaignAgents,
        entries: &'a [BeamEntry],
        nonces: &BTreeSet<String>,
    ) -> Self {
        let mut known: BTreeMap<&str, KnownNonce<'_>> = BTreeMap::new();
        let relevant = entries.iter().filter(|entry| entry.call.has_nonce());
        for entry in relevant.filter(|entry| nonces.contains(&entry.key)) {
            let nonce = known.entry(&entry.key).or_default();
            match entry.call {
                BeamCall::SendIntent => {
                    nonce
                        .sent
                        .extend(IntentUse::parse(&entry.detail).map(|used| (used, entry)));
                }
                BeamCall::Receive => nonce.is_received = true,
                BeamCall::Answer => drop(nonce.answers.insert(&entry.detail)),
                BeamCall::SendMessage => nonce.is_message = true,
                BeamCall::Acknowledge => {}
            }
        }
        Self {
            agents,
            nonces: known,
        }
    }

    /// What reached its recipient is known. A repetition would store it.
    pub(super) fn check_received(
        &self,
        http: &mut Http,
        findings: &mut Findings,
    ) -> io::Result<()> {
        let session = viewer_session(http)?;
        for (nonce, _) in self.nonces.iter().filter(|(_, known)| known.is_received) {
            let trace = BeamTrace::load(http, &session, nonce)?;
            findings.check(Promise::BeamStoredFirst, trace.is_of_directory(), || {
                format!("{nonce} reached its recipient and is unknown: {trace:?}")
            });
        }
        Ok(())
    }

    /// Sends every intent once more: as it was answered, or as it was first sent.
    pub(super) fn repeat(&self, http: &mut Http, history: &mut BeamHistory) -> io::Result<()> {
        for (nonce, known) in &self.nonces {
            let answered = known.results().next().map(|(used, _)| used);
            let first = known.sent.first().map(|(used, _)| *used);
            if let Some(used) = answered.or(first) {
                let sent = senders::send(self.agents, nonce, used, http, history)?;
                sent.ok_or_else(|| io::Error::other("after the fault nobody answers"))?;
            }
        }
        Ok(())
    }

    pub(super) fn check(&self, http: &mut Http, findings: &mut Findings) -> io::Result<()> {
        let session = viewer_session(http)?;
        for (nonce, known) in &self.nonces {
            let trace = BeamTrace::load(http, &session, nonce)?;
            check_results(nonce, known, &trace, findings);
            self.check_refusals(nonce, known, &trace, findings);
            let is_legal = trace.is_legal(nonce, known.is_message);
            findings.check(Promise::BeamLegalSteps, is_legal, || {
                format!("{nonce}: {trace:?}")
            });
            for (dispatched, failed) in trace.unanswered() {
                let timeout_ms = i64::try_from(RESULT_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
                let is_over = failed - dispatched >= timeout_ms - TOLERANCE_MS;
                findings.check(Promise::BeamDeliveredOpen, is_over, || {
                    let ms = failed - dispatched;
                    format!(
                        "{nonce} was delivered and failed {ms} ms after its dispatch: {trace:?}"
                    )
                });
            }
        }
        Ok(())
    }

    /// A nonce is refused only if it belongs to another intent.
    fn check_refusals(
        &self,
        nonce: &str,
        known: &KnownNonce<'_>,
        trace: &BeamTrace,
        findings: &mut Findings,
    ) {
        for (used, entry) in &known.sent {
            let Some(status @ 400..500) = entry.status() else {
                continue;
            };
            // Another request with this nonce is in progress, or was when the server ended.
            if status == 409 {
                continue;
            }
            let to = &self.agents.recipients[used.recipient].beam_id;
            let is_other = trace.is_of_directory()
                && (trace.to != *to || trace.intent_type != INTENT_TYPES[used.kind]);
            findings.check(Promise::BeamNonceFree, is_other, || {
                let body = entry.body();
                format!("{nonce} {used:?} was refused with {body}, now {trace:?}")
            });
        }
    }

    /// Every intent has come to its end.
    pub(super) fn check_ends(&self, http: &mut Http, findings: &mut Findings) -> io::Result<()> {
        let session = viewer_session(http)?;
        for nonce in self.nonces.keys() {
            let trace = BeamTrace::load(http, &session, nonce)?;
            let has_ended = !trace.is_of_directory() || trace.is_at_its_end();
            findings.check(Promise::BeamEnds, has_ended, || {
                format!("{nonce} never ends: {trace:?}")
            });
        }
        Ok(())
    }
}

/// All senders got one result, which the recipient sent, and which a repetition returns.
fn check_results(nonce: &str, known: &KnownNonce<'_>, trace: &BeamTrace, findings: &mut Findings) {
    let results: BTreeSet<&str> = known.results().map(|(_, result)| result).collect();
    if results.is_empty() {
        return;
    }
    findings.check(Promise::BeamOneResult, results.len() == 1, || {
        format!("{nonce} was answered with {results:?}")
    });
    let uses: Vec<IntentUse> = known.results().map(|(used, _)| used).collect();
    let is_one = uses.iter().all(|used| *used == uses[0]);
    findings.check(Promise::BeamOneResult, is_one, || {
        format!("{nonce} was answered for several intents: {uses:?}")
    });
    for result in results {
        let body: Value = serde_json::from_str(result).unwrap_or_default();
        let expected = if body["success"] == true {
            "acked"
        } else {
            "failed"
        };
        let is_stored = trace.status == expected && known.answers.contains(result);
        findings.check(Promise::BeamResultStays, is_stored, || {
            let answers = &known.answers;
            format!("{nonce} was answered with {result}, now {trace:?}; sent were {answers:?}")
        });
    }
    // The last request of each nonce is the repetition after the fault.
    let last = known.sent.last().map(|(_, entry)| *entry);
    findings.check(
        Promise::BeamResultStays,
        last.is_some_and(|entry| entry.is(BeamCall::SendIntent, 200)),
        || format!("{nonce} was answered, and its repetition got {last:?}"),
    );
}

/// The stages of an intent, as the server reports them.
#[derive(Debug)]
struct BeamTrace {
    status: String,
    to: String,
    intent_type: String,
    stages: Vec<TracedStage>,
}

#[derive(Debug)]
struct TracedStage {
    word: String,
    at_ms: i64,
    code: String,
}

impl BeamTrace {
    fn load(http: &mut Http, session: &str, nonce: &str) -> io::Result<Self> {
        let path = format!("/observability/intents/{nonce}");
        let headers = [("Authorization", session)];
        let reply = http.send("GET", &path, &headers, None)?;
        if reply.status != 200 && reply.status != 404 {
            let (status, text) = (reply.status, reply.text());
            return Err(io::Error::other(format!(
                "{path} returned {status}: {text}"
            )));
        }
        let body = reply.json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let stages = body["stages"].as_array().into_iter().flatten();
        let stages = stages.map(|stage| TracedStage {
            word: text(&stage["status"]),
            at_ms: timestamp::parse(&text(&stage["timestamp"])).map_or(0, |at| at.0 / 1_000),
            code: text(&stage["details"]["errorCode"]),
        });
        Ok(Self {
            status: text(&body["intent"]["status"]),
            to: text(&body["intent"]["to"]),
            intent_type: text(&body["intent"]["intentType"]),
            stages: stages.collect(),
        })
    }

    /// Without an intent, the server shows the message of the bus with this nonce, which is never validated.
    fn is_of_directory(&self) -> bool {
        self.stages.iter().any(|stage| stage.word == "validated")
    }

    fn is_at_its_end(&self) -> bool {
        self.status == "acked" || self.status == "failed"
    }

    /// Every step is in the table, the last one is the status, and at most one acknowledges.
    fn is_legal(&self, nonce: &str, is_message: bool) -> bool {
        let mut from = None;
        for stage in &self.stages {
            let Some(to) = parse_state(&stage.word) else {
                return false;
            };
            let context = if is_message && !self.is_of_directory() {
                TransitionContext::Message
            } else {
                TransitionContext::Trace {
                    nonce: nonce.to_owned(),
                }
            };
            if check_transition(context, from, to).is_err() {
                return false;
            }
            from = Some(to);
        }
        let acked = self.stages.iter().filter(|stage| stage.word == "acked");
        let last = self.stages.last().map_or("", |stage| &stage.word);
        acked.count() <= 1 && last == self.status
    }

    /// When delivered attempts without a result were dispatched and failed, in milliseconds.
    fn unanswered(&self) -> Vec<(i64, i64)> {
        let mut ends = Vec::new();
        let mut dispatched = 0;
        for pair in self.stages.windows(2) {
            if pair[0].word == "dispatched" {
                dispatched = pair[0].at_ms;
            }
            let code = pair[1].code.as_str();
            let by_relay = code.is_empty() || RELAY_CODES.contains(&code);
            if pair[0].word == "delivered" && pair[1].word == "failed" && by_relay {
                ends.push((dispatched, pair[1].at_ms));
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(words: &str) -> BeamTrace {
        let stages: Vec<TracedStage> = words
            .split(' ')
            .enumerate()
            .map(|(at, word)| TracedStage {
                word: word.to_owned(),
                at_ms: i64::try_from(at).unwrap(),
                code: "TIMEOUT".to_owned(),
            })
            .collect();
        BeamTrace {
            status: stages.last().unwrap().word.clone(),
            to: String::new(),
            intent_type: String::new(),
            stages,
        }
    }

    #[test]
    fn a_trace_is_legal_if_each_step_is_and_one_acknowledges() {
        let is_legal = |words: &str| trace(words).is_legal("n", false);
        assert!(is_legal("received validated dispatched delivered acked"));
        assert!(is_legal(
            "received validated dispatched delivered failed queued dispatched delivered acked"
        ));
        assert!(!is_legal("received dispatched"));
        assert!(!is_legal("received validated dispatched acked"));
        assert!(!is_legal(
            "received validated dispatched delivered acked acked"
        ));
        assert!(trace("received dispatched").is_legal("n", true));
    }

    #[test]
    fn an_attempt_that_failed_without_a_result_shows_its_times() {
        let twice =
            "received validated dispatched delivered failed queued dispatched delivered failed";
        assert_eq!(trace(twice).unanswered(), [(2, 4), (6, 8)]);
        assert_eq!(
            trace("received validated dispatched failed").unanswered(),
            []
        );
    }
}
