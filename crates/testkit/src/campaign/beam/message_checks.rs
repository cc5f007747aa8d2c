//! Compares what clients of the message bus were told with its messages, their states and their events.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use consign_beam::lifecycle::{TransitionContext, check_transition, parse_state};
use serde_json::Value;

use super::CampaignAgents;
use super::bus_clients;
use super::history::{BeamCall, BeamEntry, BeamHistory};
use crate::campaign::findings::{Findings, Promise};
use crate::process::Http;

/// The longest list of the server.
const PAGE: usize = 500;
/// Every message of a trial comes to its end within this time.
const END_LIMIT: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// An event stream without news for this long has sent everything.
const EVENTS_QUIET: Duration = Duration::from_millis(300);
/// One of so many messages is also repeated with other content.
const CONFLICTS_EVERY: usize = 4;

#[derive(Debug)]
pub(super) struct MessageChecks<'a> {
    agents: &'a CampaignAgents,
    /// The requests by nonce.
    sent: BTreeMap<&'a str, Vec<&'a BeamEntry>>,
    /// The acknowledgements by message, in their order.
    acknowledged: BTreeMap<&'a str, Vec<&'a BeamEntry>>,
}

impl<'a> MessageChecks<'a> {
    pub(super) fn new(
        agents: &'a CampaignAgents,
        entries: &'a [BeamEntry],
        nonces: &BTreeSet<String>,
    ) -> Self {
        let mut checks = Self {
            agents,
            sent: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        };
        for entry in entries {
            match entry.call {
                BeamCall::SendMessage if nonces.contains(&entry.key) => {
                    checks.sent.entry(&entry.key).or_default().push(entry);
                }
                BeamCall::Acknowledge => {
                    let acks = checks.acknowledged.entry(&entry.key).or_default();
                    acks.push(entry);
                }
                BeamCall::SendMessage
                | BeamCall::SendIntent
                | BeamCall::Receive
                | BeamCall::Answer => {}
            }
        }
        for acks in checks.acknowledged.values_mut() {
            acks.sort_by_key(|entry| entry.sent_us);
        }
        checks
    }

    /// Sends every message once more, and some with other content.
    pub(super) fn repeat(&self, http: &mut Http, history: &mut BeamHistory) -> io::Result<()> {
        for (number, (nonce, sent)) in self.sent.iter().enumerate() {
            let content = sent.first().map_or("0", |entry| entry.detail.as_str());
            let other = number
                .is_multiple_of(CONFLICTS_EVERY)
                .then(|| format!("{content}-other"));
            for content in std::iter::once(content).chain(other.as_deref()) {
                let reply = bus_clients::send(self.agents, nonce, content, http, history)?;
                reply.ok_or_else(|| io::Error::other("after the fault nobody answers"))?;
            }
        }
        Ok(())
    }

    pub(super) fn check(&self, http: &mut Http, findings: &mut Findings) -> io::Result<()> {
        let stored = load(http)?;
        let mut by_nonce: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for message in &stored {
            let nonce = message["nonce"].as_str().unwrap_or_default();
            by_nonce.entry(nonce).or_default().push(message);
        }
        for (nonce, sent) in &self.sent {
            let found = by_nonce.get(nonce).map_or(&[][..], Vec::as_slice);
            check_nonce(nonce, sent, found, findings);
        }
        for message in &stored {
            let id = message["id"].as_str().unwrap_or_default();
            if let Some(acks) = self.acknowledged.get(id) {
                check_acknowledged(id, acks, message, findings);
            }
        }
        Ok(())
    }
}

/// All responses name one message, which has the content of its requests.
fn check_nonce(nonce: &str, sent: &[&BeamEntry], found: &[&Value], findings: &mut Findings) {
    let accepted = sent.iter().filter(|entry| {
        entry.is(BeamCall::SendMessage, 201) || entry.is(BeamCall::SendMessage, 200)
    });
    let accepted: Vec<(&str, Value)> = accepted
        .map(|entry| (entry.detail.as_str(), entry.json()))
        .collect();
    for (content, reply) in &accepted {
        let is_there = found.len() == 1
            && found[0]["id"] == reply["message_id"]
            && found[0]["payload"]["message"] == *content
            && found[0]["status"]
                .as_str()
                .is_some_and(|word| parse_state(word).is_some());
        findings.check(Promise::BusMessageStays, is_there, || {
            format!("message {nonce} {content} was answered with {reply}, now {found:?}")
        });
    }
    let new = sent
        .iter()
        .filter(|entry| entry.is(BeamCall::SendMessage, 201));
    let new = new.count();
    findings.check(Promise::BusNonceOnce, new <= 1 && found.len() <= 1, || {
        format!("message {nonce} was new {new} times: {found:?}")
    });
    for conflict in sent
        .iter()
        .filter(|entry| entry.is(BeamCall::SendMessage, 409))
    {
        let content = conflict.detail.as_str();
        let is_other = found.len() == 1 && found[0]["payload"]["message"] != content;
        findings.check(Promise::BusNonceOnce, is_other, || {
            format!("message {nonce} {content} was refused, now {found:?}")
        });
    }
}

/// An acknowledged message keeps the response of its first acknowledgement.
fn check_acknowledged(id: &str, acks: &[&BeamEntry], message: &Value, findings: &mut Findings) {
    if !acks
        .iter()
        .any(|entry| entry.is(BeamCall::Acknowledge, 200))
    {
        return;
    }
    let responses: Vec<Value> = acks
        .iter()
        .map(|entry| serde_json::from_str(&entry.detail).unwrap_or_default())
        .collect();
    let is_first_known = acks[0].is(BeamCall::Acknowledge, 200);
    let is_kept = message["status"] == "acked"
        && responses.contains(&message["response"])
        && (!is_first_known || message["response"] == responses[0]);
    findings.check(Promise::BusAckStays, is_kept, || {
        format!("{id} was acknowledged with {responses:?}, now {message}")
    });
}

/// All messages, page by page from the newest one.
fn load(http: &mut Http) -> io::Result<Vec<Value>> {
    let mut messages: BTreeMap<String, Value> = BTreeMap::new();
    let mut until = String::new();
    loop {
        let path = format!("/v1/beam/history?limit={PAGE}{until}");
        let reply = http.get(&path)?;
        if reply.status != 200 {
            let (status, text) = (reply.status, reply.text());
            return Err(io::Error::other(format!(
                "{path} returned {status}: {text}"
            )));
        }
        let body = reply.json();
        let page = body["messages"].as_array().cloned().unwrap_or_default();
        let before = messages.len();
        let (length, last) = (page.len(), page.last().cloned().unwrap_or_default());
        for message in page {
            let id = message["id"].as_str().unwrap_or_default().to_owned();
            messages.insert(id, message);
        }
        // Pages overlap, because several messages may have one time.
        if length < PAGE || messages.len() == before {
            return Ok(messages.into_values().collect());
        }
        until = format!("&until={}", last["created_at"]);
    }
}

/// Waits until no message waits for an attempt.
pub(super) fn await_end(http: &mut Http, findings: &mut Findings) -> io::Result<()> {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let stats = http.get("/v1/beam/stats")?.json();
        let count = |name: &str| stats[name].as_u64().unwrap_or(u64::MAX);
        let waiting = ["received", "queued", "dispatched"].map(count);
        let is_over = waiting == [0, 0, 0];
        if is_over || Instant::now() > deadline {
            findings.check(Promise::BeamEnds, is_over, || {
                format!("messages are not delivered and not given up: {stats}")
            });
            return Ok(());
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// The events of each message of an agent, from the first one, are a walk of legal steps.
pub(super) fn check_events(
    http: &mut Http,
    agent: &str,
    findings: &mut Findings,
) -> io::Result<()> {
    let mut stream = http.connect()?;
    stream.set_read_timeout(Some(EVENTS_QUIET))?;
    // The body of a response to HTTP/1.0 has no chunks.
    let host = http.authority();
    let request = format!(
        "GET /v1/beam/events?agent={agent} HTTP/1.0\r\nHost: {host}\r\nLast-Event-ID: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    // It ends with the timeout.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let mut states: BTreeMap<String, String> = BTreeMap::new();
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            continue;
        };
        let word = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let (id, to) = (word("message_id"), word("status"));
        let known = states.insert(id.clone(), to.clone()).unwrap_or_default();
        let context = TransitionContext::StoredMessage { id: id.clone() };
        let is_legal = word("previous_status") == known
            && parse_state(&to)
                .is_some_and(|to| check_transition(context, parse_state(&known), to).is_ok())
            && (known.as_str(), to.as_str()) != ("delivered", "queued");
        findings.check(Promise::BusLegalSteps, is_legal, || {
            format!("message {id} was {known}, then {event}")
        });
    }
    Ok(())
}
