//! Keeps the daemon connected to its broker.
//!
//! Invariant: a connection that ends is made again after a pause, unless its end says that the daemon must end as well.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

use super::handshake::{self, LineEnd};
use super::hooks::HookKind;
use super::inbound::is_own_end;
use super::line::BrokerLine;
use super::metrics::DaemonMetric;
use super::random;
use super::shared::{DaemonShared, LinkState, wall_ms};
use super::transport::{self, BrokerSocket};
use crate::close::DaemonExit;
use crate::daemon::DaemonEnd;
use crate::frame::{BrokerFrame, ClientAck, ClientFrame, MeshFrameError, PushFrame};
use crate::ipc::MeshEventKind;
use crate::limits::{HELLO_TIMEOUT_MS, PING_INTERVAL_MS, STALE_AFTER_MS};
use crate::reconnect::reconnect_delay_ms;

/// How long the messages that wait for the socket have at the end of the daemon.
const GOODBYE: Duration = Duration::from_secs(1);

/// Runs until the daemon ends.
pub(super) async fn keep_connected(shared: Arc<DaemonShared>, inbound: mpsc::Sender<PushFrame>) {
    let mut failures = 0;
    loop {
        let mut was_open = false;
        shared.line.send_replace(LinkState::Connecting);
        let ended = tokio::select! {
            ended = connect_once(&shared, &inbound, &mut was_open) => ended,
            _ = shared.until_end(), if !was_open => return,
        };
        shared.line.send_replace(LinkState::Closed);
        let (why, is_refused) = match ended {
            LineEnd::Lost(why) => (why, false),
            LineEnd::Refused(why) => (why, true),
            LineEnd::Ended(end) => {
                let why = end.message.clone().unwrap_or_default();
                shared.log.error("the daemon ends", &json!({"reason": why}));
                if was_open {
                    publish_disconnect(&shared, &why);
                }
                shared.end(end);
                return;
            }
        };
        if shared.is_ending() {
            return;
        }
        if was_open {
            failures = 0;
            publish_disconnect(&shared, &why);
        }
        let entropy = u64::from_le_bytes(random::bytes());
        let pause_ms = reconnect_delay_ms(&shared.config().reconnect, failures, entropy);
        let fields = json!({"reason": why, "pause_ms": pause_ms});
        if is_refused {
            shared.log.warn("broker_refuses", &fields);
        } else {
            shared.log.info("broker_not_connected", &fields);
        }
        shared.set_line_error(Some(why.clone()));
        shared
            .metrics
            .count(DaemonMetric::Reconnects, &[reconnect_reason(&why)]);
        failures += 1;
        tokio::select! {
            () = sleep(Duration::from_millis(pause_ms)) => {}
            _ = shared.until_end() => return,
        }
    }
}

fn reconnect_reason(why: &str) -> &'static str {
    if why.starts_with("closed") {
        "closed"
    } else if why.contains("silent") {
        "stale"
    } else {
        "error"
    }
}

fn publish_disconnect(shared: &DaemonShared, why: &str) {
    let event = json!({"mesh": shared.slug.as_str(), "code": null, "reason": why});
    shared
        .events
        .publish(MeshEventKind::DaemonDisconnect, event);
    publish_status(shared, "closed");
    let event = json!({"mesh": shared.slug.as_str(), "code": null, "reason": why});
    shared.fire(HookKind::Disconnect, event);
}

fn publish_status(shared: &DaemonShared, status: &str) {
    let event = json!({"mesh": shared.slug.as_str(), "status": status});
    shared.events.publish(MeshEventKind::BrokerStatus, event);
}

async fn connect_once(
    shared: &Arc<DaemonShared>,
    inbound: &mpsc::Sender<PushFrame>,
    was_open: &mut bool,
) -> LineEnd {
    let limit = Duration::from_millis(HELLO_TIMEOUT_MS);
    let connected = timeout(limit, transport::connect(&shared.broker_url)).await;
    let mut socket = match connected {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return LineEnd::lost(error),
        Err(_) => return LineEnd::lost("no connection in time"),
    };
    let (terms, early) = match handshake::shake_hands(shared, &mut socket).await {
        Ok(agreed) => agreed,
        Err(end) => return end,
    };
    let (line, outgoing) = BrokerLine::new(terms, wall_ms());
    let line = Arc::new(line);
    *was_open = true;
    shared.set_line_error(None);
    shared.line.send_replace(LinkState::Open(Arc::clone(&line)));
    shared.log.info("broker_connected", &json!({}));
    let event = json!({"mesh": shared.slug.as_str()});
    shared.events.publish(MeshEventKind::DaemonReconnect, event);
    publish_status(shared, "open");
    shared.fire(HookKind::Reconnect, json!({"mesh": shared.slug.as_str()}));
    shared.metrics.set(DaemonMetric::Connected, &[], 1);
    let end = serve(shared, &line, socket, outgoing, early, inbound).await;
    line.close();
    shared.metrics.set(DaemonMetric::Connected, &[], 0);
    end
}

/// Reads and writes until the connection ends.
async fn serve(
    shared: &Arc<DaemonShared>,
    line: &BrokerLine,
    socket: BrokerSocket,
    mut outgoing: mpsc::Receiver<Message>,
    early: Vec<PushFrame>,
    inbound: &mpsc::Sender<PushFrame>,
) -> LineEnd {
    let (mut sink, stream) = socket.split();
    let reader = Reader {
        shared,
        line,
        inbound,
        stream,
        stale_at: stale_at(),
    };
    let end = tokio::select! {
        end = reader.read(early) => end,
        end = write(shared, &mut sink, &mut outgoing) => end,
        () = line.until_hung_up() => LineEnd::lost("the daemon has a new key"),
    };
    if shared.is_ending() || matches!(&end, LineEnd::Lost(_)) {
        // The broker is told, so that it does not wait for its own time limit.
        let goodbye = sink.send(Message::Close(Some(CloseFrame {
            code: 1000.into(),
            reason: Utf8Bytes::from_static("disconnected"),
        })));
        let _ = timeout(GOODBYE, goodbye).await;
    }
    end
}

fn stale_at() -> Instant {
    Instant::now() + Duration::from_millis(STALE_AFTER_MS)
}

struct Reader<'a> {
    shared: &'a DaemonShared,
    line: &'a BrokerLine,
    inbound: &'a mpsc::Sender<PushFrame>,
    stream: SplitStream<BrokerSocket>,
    stale_at: Instant,
}

impl Reader<'_> {
    async fn read(mut self, early: Vec<PushFrame>) -> LineEnd {
        for push in early {
            if let Some(end) = self.pass_on(push).await {
                return end;
            }
        }
        loop {
            let received = tokio::select! {
                received = self.stream.next() => received,
                () = sleep_until(self.stale_at) => {
                    return LineEnd::lost("the broker was silent for too long");
                }
            };
            self.stale_at = stale_at();
            let end = match received {
                Some(Ok(Message::Text(text))) => self.receive(&text).await,
                Some(Ok(Message::Close(frame))) => Some(LineEnd::of_close(frame.as_ref())),
                Some(Ok(Message::Pong(payload))) => {
                    self.note_lag(&payload);
                    None
                }
                Some(Ok(_)) => None,
                Some(Err(error)) => Some(LineEnd::lost(error)),
                None => Some(LineEnd::lost("the connection ended")),
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn receive(&mut self, text: &str) -> Option<LineEnd> {
        let framed = match BrokerFrame::parse(text) {
            Ok(framed) => framed,
            Err(error) => {
                self.shared.count_invalid_inbound(&error);
                self.give_up(text).await;
                return None;
            }
        };
        if let BrokerFrame::Error(error) = &framed.frame
            && error.code == "revoked"
        {
            let message = "the broker has revoked this member";
            return Some(LineEnd::Ended(DaemonEnd::new(DaemonExit::Revoked, message)));
        }
        match self.line.receive(framed) {
            Some(push) => self.pass_on(push).await,
            None => None,
        }
    }

    /// Acknowledges a message that cannot be read, because the broker would send it again until its end, and count it among
    /// those that are not acknowledged.
    async fn give_up(&self, text: &str) {
        let Some(ack) = ClientAck::of_unread(text) else {
            return;
        };
        let fields = json!({
            "broker_message_id": ack.broker_message_id,
            "client_message_id": ack.client_message_id,
        });
        self.shared.log.error("unreadable_message_dropped", &fields);
        // Without an acknowledgement it is sent again.
        let _ = self.line.notify(ClientFrame::from(ack)).await;
    }

    async fn pass_on(&mut self, push: PushFrame) -> Option<LineEnd> {
        if is_own_end(self.shared, &push) {
            let message = "the broker reports that this member was revoked";
            return Some(LineEnd::Ended(DaemonEnd::new(DaemonExit::Revoked, message)));
        }
        if self.inbound.send(push).await.is_ok() {
            return None;
        }
        // Nothing is stored any more, so nothing may be received either.
        Some(if self.shared.is_ending() {
            LineEnd::lost("the daemon ends")
        } else {
            let message = "received messages are not stored any more; start the daemon again";
            LineEnd::Ended(DaemonEnd::general(message))
        })
    }

    /// A pong repeats the milliseconds at which its ping was sent.
    fn note_lag(&mut self, payload: &Bytes) {
        let sent = std::str::from_utf8(payload)
            .ok()
            .and_then(|text| text.parse::<i64>().ok());
        if let Some(sent) = sent {
            let lag = wall_ms().saturating_sub(sent).max(0);
            self.shared
                .lag_ms
                .store(lag.unsigned_abs(), Ordering::Relaxed);
        }
    }
}

/// Writes messages as they come, many at once if they wait, and pings in between.
async fn write(
    shared: &DaemonShared,
    sink: &mut SplitSink<BrokerSocket, Message>,
    outgoing: &mut mpsc::Receiver<Message>,
) -> LineEnd {
    let mut pings = interval(Duration::from_millis(PING_INTERVAL_MS));
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            message = outgoing.recv() => message,
            _ = pings.tick() => {
                let payload = wall_ms().to_string();
                Some(Message::Ping(payload.into()))
            }
            _ = shared.until_end() => {
                return LineEnd::lost("the daemon ends");
            }
        };
        let Some(message) = message else {
            return LineEnd::lost("the connection is not used any more");
        };
        if let Err(error) = sink.feed(message).await {
            return LineEnd::lost(error);
        }
        while let Ok(message) = outgoing.try_recv() {
            if let Err(error) = sink.feed(message).await {
                return LineEnd::lost(error);
            }
        }
        if let Err(error) = sink.flush().await {
            return LineEnd::lost(error);
        }
    }
}

impl DaemonShared {
    pub(super) fn count_invalid_inbound(&self, error: &MeshFrameError) {
        let fields = json!({"error": error.to_string()});
        self.log.warn("invalid_inbound", &fields);
        self.metrics.count(DaemonMetric::InvalidInbound, &[]);
    }
}
