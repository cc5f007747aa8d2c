//! A connection of a member to the broker, and what the members of a campaign do with it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::CampaignMembers;
use super::history::MemberHistory;
use crate::campaign::socket::CampaignSocket;
use crate::history::now_us;
use crate::mesh_members::{Membership, TestMember, direct_message, negotiation};
use crate::process::Http;
use crate::seeded_random::SeededRandom;

/// More ids than this are not checked in time.
const IDS_MAX: usize = 60;

/// A negotiated connection, as daemons have one.
#[derive(Debug)]
pub(super) struct MemberConnection {
    socket: CampaignSocket,
}

impl MemberConnection {
    pub(super) fn open(
        http: &Http,
        member: &TestMember,
        membership: &Membership,
    ) -> io::Result<Self> {
        let authority = http.authority().to_owned();
        let mut socket = CampaignSocket::connect(http, &authority, "/ws")?;
        let now_ms = u64::try_from(now_us() / 1_000).unwrap_or(0);
        socket.send(&member.hello(membership, now_ms).to_string())?;
        let mut connection = Self { socket };
        connection.wait_for("hello_ack")?;
        connection.socket.send(&negotiation().to_string())?;
        connection.wait_for("feature_negotiation_response")?;
        Ok(connection)
    }

    /// Frames before the awaited one are skipped: before the negotiation nothing is pushed for the member.
    fn wait_for(&mut self, kind: &str) -> io::Result<Value> {
        loop {
            let Some(frame) = self.look()? else {
                continue;
            };
            if frame["type"] == kind {
                return Ok(frame);
            }
            if frame["type"] == "error" {
                return Err(io::Error::other(frame.to_string()));
            }
        }
    }

    /// The next frame, if one arrives soon. An error means that the connection is closed.
    fn look(&mut self) -> io::Result<Option<Value>> {
        let text = self.socket.look()?;
        Ok(text.map(|text| serde_json::from_str(&text).unwrap_or_default()))
    }

    /// Sends a message and waits for its answer. `None` if the connection is closed.
    pub(super) fn send(
        &mut self,
        to: &str,
        id: &str,
        body: &str,
        history: &mut MemberHistory,
    ) -> io::Result<Option<Value>> {
        history.send(id, body)?;
        if self
            .socket
            .send(&direct_message(to, id, body).to_string())
            .is_err()
        {
            return Ok(None);
        }
        loop {
            match self.look() {
                Ok(Some(frame)) if frame["type"] == "ack" && frame["id"] == id => {
                    history.ack(&frame)?;
                    return Ok(Some(frame));
                }
                Ok(_) => {}
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Sends messages, and repeats some of its ids, also with other content.
#[derive(Debug)]
pub(super) struct SendingMember {
    pub(super) members: Arc<CampaignMembers>,
    pub(super) index: usize,
    pub(super) prefix: String,
    pub(super) http: Http,
    pub(super) history: MemberHistory,
    pub(super) random: SeededRandom,
}

impl SendingMember {
    /// Works until the server is gone.
    pub(super) fn work(mut self) -> io::Result<()> {
        let (member, membership) = &self.members.senders[self.index];
        let to = self.members.recipient.0.pubkey();
        let Ok(mut connection) = MemberConnection::open(&self.http, member, membership) else {
            return Ok(());
        };
        let mut used: Vec<(String, String)> = Vec::new();
        loop {
            let again = self.random.percent(25) || used.len() == IDS_MAX;
            let (id, body) = if again && !used.is_empty() {
                let (id, body) = used[self.random.index(used.len())].clone();
                if self.random.percent(10) {
                    (id, self.random.token())
                } else {
                    (id, body)
                }
            } else {
                let new = (
                    format!("{}-{}", self.prefix, used.len()),
                    self.random.token(),
                );
                used.push(new.clone());
                new
            };
            if connection
                .send(&to, &id, &body, &mut self.history)?
                .is_none()
            {
                return Ok(());
            }
        }
    }
}

/// Receives messages, and acknowledges most of them.
#[derive(Debug)]
pub(super) struct ReceivingMember {
    pub(super) members: Arc<CampaignMembers>,
    pub(super) http: Http,
    pub(super) history: MemberHistory,
    pub(super) random: SeededRandom,
    /// Set when the client must end; it also ends with its server.
    pub(super) end: Arc<AtomicBool>,
    /// How many of a hundred pushes it acknowledges.
    pub(super) acknowledges: u64,
}

impl ReceivingMember {
    pub(super) fn work(mut self) -> io::Result<()> {
        let (member, membership) = &self.members.recipient;
        let Ok(mut connection) = MemberConnection::open(&self.http, member, membership) else {
            return Ok(());
        };
        while !self.end.load(Ordering::Relaxed) {
            let frame = match connection.look() {
                Ok(Some(frame)) => frame,
                Ok(None) => continue,
                Err(_) => return Ok(()),
            };
            if frame["type"] != "push" || frame["subtype"] == "system" {
                continue;
            }
            self.history.push(&frame)?;
            if self.random.percent(self.acknowledges) {
                let ack = json!({"type": "client_ack", "brokerMessageId": frame["messageId"]});
                if connection.socket.send(&ack.to_string()).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
