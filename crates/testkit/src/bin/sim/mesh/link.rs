//! Connections of members to the broker: the handshake, and what a connection carries until it breaks.

use consign_kernel::ids::Micros;
use consign_mesh::broker::Broker;
use consign_mesh::daemon::simulation::{SimulatedLine, WrittenFrames};
use consign_testkit::mesh_members::{Membership, TestMember, negotiation};
use consign_web::websocket::{InMemoryClient, Options};
use serde_json::Value;
use tokio::sync::mpsc;

/// A connection of a member, from its hello on.
pub(crate) struct MemberLink {
    client: InMemoryClient,
    is_negotiated: bool,
}

impl MemberLink {
    /// Connects and says hello. `now` is the time of the member, which agrees with the broker's.
    pub(crate) fn connect(
        broker: &Broker,
        member: &TestMember,
        membership: &Membership,
        now: Micros,
    ) -> Self {
        let (client, sender, messages) = InMemoryClient::connect(Options::new());
        tokio::spawn(broker.clone().serve_socket(sender, messages));
        let now_ms = u64::try_from(now.0 / 1_000).unwrap_or(0);
        client.send_text(member.hello(membership, now_ms).to_string());
        Self {
            client,
            is_negotiated: false,
        }
    }

    pub(crate) const fn is_negotiated(&self) -> bool {
        self.is_negotiated
    }

    /// Whether the broker has ended the connection, as it does after a refused hello.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(crate) fn send(&self, frame: &Value) {
        self.client.send_text(frame.to_string());
    }

    /// The frames that have arrived after the handshake, which it carries out meanwhile.
    pub(crate) fn take(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(text) = self.client.take_text() {
            let frame: Value = serde_json::from_str(&text).unwrap_or_default();
            match frame["type"].as_str() {
                Some("hello_ack") => self.send(&negotiation()),
                Some("feature_negotiation_response") => self.is_negotiated = true,
                _ => frames.push(frame),
            }
        }
        frames
    }
}

/// The connection of the daemon: frames between its outbox and the broker.
pub(crate) struct OutboxLink {
    link: MemberLink,
    line: Option<(SimulatedLine, WrittenFrames)>,
}

impl OutboxLink {
    pub(crate) const fn new(link: MemberLink) -> Self {
        Self { link, line: None }
    }

    /// Carries everything that waits, in both directions. The outbox gets its line after the handshake.
    pub(crate) fn carry(&mut self, lines: &mpsc::UnboundedSender<SimulatedLine>) {
        let frames = self.link.take();
        if self.line.is_none() && self.link.is_negotiated() {
            let (line, written) = SimulatedLine::open();
            // Without a process that sends, the next one gets a connection of its own.
            let _ = lines.send(line.clone());
            self.line = Some((line, written));
        }
        let Some((line, written)) = &mut self.line else {
            return;
        };
        for frame in frames {
            line.receive(&frame.to_string());
        }
        while let Some(frame) = written.take() {
            self.link.client.send_text(frame);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// The connection breaks: what was not carried is lost.
    pub(crate) fn cut(self) {
        if let Some((line, _)) = self.line {
            line.close();
        }
    }
}
