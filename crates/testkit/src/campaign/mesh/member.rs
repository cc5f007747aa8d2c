//! A connection of a member to the broker, and what the members of a campaign do with it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::CampaignMembers;
use super::history::MemberHistory;
use crate::campaign::endpoints::Endpoints;
use crate::campaign::socket::CampaignSocket;
use crate::history::now_us;
use crate::mesh_members::{Membership, TestMember, direct_message, negotiation};
use crate::process::Http;
use crate::seeded_random::SeededRandom;

/// More ids than this are not checked in time.
const IDS_MAX: usize = 60;
/// After this time without an answer a member uses another node, if there is one.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A negotiated connection, as daemons have one.
#[derive(Debug)]
pub(super) struct MemberConnection {
    socket: CampaignSocket,
    /// How long an answer may take; `None` if there is no other server to ask.
    patience: Option<Duration>,
}

impl MemberConnection {
    pub(super) fn open(
        http: &Http,
        member: &TestMember,
        membership: &Membership,
        patience: Option<Duration>,
    ) -> io::Result<Self> {
        let authority = http.authority().to_owned();
        let mut socket = CampaignSocket::connect(http, &authority, "/ws")?;
        let now_ms = u64::try_from(now_us() / 1_000).unwrap_or(0);
        socket.send(&member.hello(membership, now_ms).to_string())?;
        let mut connection = Self { socket, patience };
        connection.wait_for("hello_ack")?;
        connection.socket.send(&negotiation().to_string())?;
        connection.wait_for("feature_negotiation_response")?;
        Ok(connection)
    }

    /// A connection to the current one of several servers, or to the only one.
    fn open_at(
        endpoints: &mut Endpoints,
        (member, membership): &(TestMember, Membership),
    ) -> io::Result<Self> {
        let patience = endpoints.has_others().then_some(ANSWER_MAX);
        Self::open(endpoints.http(), member, membership, patience)
    }

    /// Fails when an answer takes too long.
    fn demand_answer(&self, asked: Instant) -> io::Result<()> {
        match self.patience {
            Some(patience) if asked.elapsed() > patience => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// Frames before the awaited one are skipped: before the negotiation nothing is pushed for the member.
    fn wait_for(&mut self, kind: &str) -> io::Result<Value> {
        let asked = Instant::now();
        loop {
            let Some(frame) = self.look()? else {
                self.demand_answer(asked)?;
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
        let asked = Instant::now();
        loop {
            match self.look() {
                Ok(Some(frame)) if frame["type"] == "ack" && frame["id"] == id => {
                    history.ack(&frame)?;
                    return Ok(Some(frame));
                }
                Ok(_) if self.demand_answer(asked).is_ok() => {}
                Ok(_) | Err(_) => return Ok(None),
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
    pub(super) endpoints: Endpoints,
    pub(super) history: MemberHistory,
    pub(super) random: SeededRandom,
}

impl SendingMember {
    /// Works until its only server is gone, or until it must end.
    pub(super) fn work(mut self) -> io::Result<()> {
        let members = Arc::clone(&self.members);
        let mut used: Vec<(String, String)> = Vec::new();
        loop {
            let opened =
                MemberConnection::open_at(&mut self.endpoints, &members.senders[self.index]);
            if let Ok(connection) = opened {
                self.send_over(connection, &mut used)?;
            }
            if !self.endpoints.move_on() {
                return Ok(());
            }
        }
    }

    fn send_over(
        &mut self,
        mut connection: MemberConnection,
        used: &mut Vec<(String, String)>,
    ) -> io::Result<()> {
        let to = self.members.recipient.0.pubkey();
        while !self.endpoints.is_over() {
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
                break;
            }
        }
        Ok(())
    }
}

/// Receives messages, and acknowledges most of them.
#[derive(Debug)]
pub(super) struct ReceivingMember {
    pub(super) members: Arc<CampaignMembers>,
    pub(super) endpoints: Endpoints,
    pub(super) history: MemberHistory,
    pub(super) random: SeededRandom,
    /// How many of a hundred pushes it acknowledges.
    pub(super) acknowledges: u64,
}

impl ReceivingMember {
    /// Works until its only server is gone, or until it must end.
    pub(super) fn work(mut self) -> io::Result<()> {
        let members = Arc::clone(&self.members);
        loop {
            let opened = MemberConnection::open_at(&mut self.endpoints, &members.recipient);
            if let Ok(connection) = opened {
                self.receive_over(connection)?;
            }
            if !self.endpoints.move_on() {
                return Ok(());
            }
        }
    }

    fn receive_over(&mut self, mut connection: MemberConnection) -> io::Result<()> {
        let mut heard = Instant::now();
        while !self.endpoints.is_over() {
            let frame = match connection.look() {
                Ok(Some(frame)) => frame,
                // Silence may be a node that is stopped.
                Ok(None) if connection.demand_answer(heard).is_ok() => continue,
                Ok(None) | Err(_) => return Ok(()),
            };
            heard = Instant::now();
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
