//! A member without an outbox: it sends under ids of its own, repeats them, and tries ids of the other sender.
//!
//! An id of the other sender is a conflict for ever, and its answer names no message.

use std::collections::BTreeMap;

use consign_testkit::mesh_members::direct_message;
use consign_testkit::seeded_random::SeededRandom;
use serde_json::Value;

use super::link::MemberLink;
use crate::ledger_checks::BrokenPromise;

#[derive(Default)]
pub(crate) struct SimStranger {
    pub(crate) link: Option<MemberLink>,
    /// Its own ids, with the body that was sent first.
    pub(crate) sent: Vec<(String, String)>,
    /// The accepted messages by id: the broker's id and the body.
    pub(crate) accepted: BTreeMap<String, (String, String)>,
    /// The frame whose answer is awaited: the id, the body, and whether the id belongs to the other sender.
    waiting: Option<(String, String, bool)>,
    /// The number of bodies so far.
    bodies: u64,
}

impl SimStranger {
    /// Sends one more frame, unless an answer is missing. `foreign` is an id that the broker has accepted of another member,
    /// with its body. Returns what it does.
    pub(crate) fn send(
        &mut self,
        to: &str,
        foreign: Option<(String, String)>,
        random: &mut SeededRandom,
    ) -> Option<String> {
        let is_ready = self.link.as_ref().is_some_and(MemberLink::is_negotiated);
        if !is_ready || self.waiting.is_some() {
            return None;
        }
        let steals = foreign.is_some() && random.percent(40);
        let (id, body) = match foreign.filter(|_| steals) {
            Some(foreign) => foreign,
            None if !self.sent.is_empty() && random.percent(40) => {
                self.sent[random.index(self.sent.len())].clone()
            }
            None => {
                let id = format!("x-{}", self.sent.len());
                let new = (id, self.body());
                self.sent.push(new.clone());
                new
            }
        };
        let body = if random.percent(25) {
            self.body()
        } else {
            body
        };
        let frame = direct_message(to, &id, &body);
        self.link.as_ref()?.send(&frame);
        let told = format!("the stranger sends {id}: {body}");
        self.waiting = Some((id, body, steals));
        Some(told)
    }

    fn body(&mut self) -> String {
        self.bodies += 1;
        format!("strange {}", self.bodies)
    }

    /// Its connection breaks, and with it the answer that it waits for.
    pub(crate) fn disconnect(&mut self) {
        self.link = None;
        self.waiting = None;
    }

    /// Reads the answers. Returns the code of each.
    pub(crate) fn receive(&mut self) -> Result<Vec<u64>, BrokenPromise> {
        let Some(link) = &mut self.link else {
            return Ok(Vec::new());
        };
        let mut codes = Vec::new();
        for frame in link.take() {
            if frame["type"] != "ack" {
                continue;
            }
            let Some((id, body, steals)) = self.waiting.take_if(|(id, ..)| frame["id"] == **id)
            else {
                return Err(format!("nobody asked for {frame}"));
            };
            codes.push(frame["code"].as_u64().unwrap_or_default());
            self.check(&id, &body, steals, &frame)?;
        }
        Ok(codes)
    }

    fn check(
        &mut self,
        id: &str,
        body: &str,
        steals: bool,
        ack: &Value,
    ) -> Result<(), BrokenPromise> {
        let code = ack["code"].as_u64().unwrap_or_default();
        let message_id = ack["messageId"].as_str().unwrap_or_default();
        let known = self.accepted.get(id);
        let is_right = match (code, steals, known) {
            // The ledger may be out of order.
            (500.., ..) => true,
            (409, true, _) => message_id.is_empty() && ack["broker_fingerprint_prefix"].is_null(),
            (_, true, _) => false,
            (201, false, known) => known.is_none(),
            (200, false, Some((known_id, known_body))) => {
                known_id == message_id && known_body == body
            }
            // An earlier request was accepted, and its answer was lost.
            (200, false, None) => true,
            (409, false, Some((_, known_body))) => known_body != body,
            (409, false, None) => self.sent.iter().any(|(sent, _)| sent == id),
            _ => false,
        };
        if !is_right {
            return Err(format!(
                "{id}: {body} was answered with {ack}; known is {known:?}"
            ));
        }
        if (200..300).contains(&code) {
            let accepted = (message_id.to_owned(), body.to_owned());
            self.accepted.insert(id.to_owned(), accepted);
        }
        Ok(())
    }
}
