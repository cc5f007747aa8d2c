//! The event stream `/v1/events`: server-sent events with a number, a kind and JSON data.

use crate::role::words;

words! {
    /// What an event is about.
    MeshEventKind {
        Message => "message",
        PeerJoin => "peer_join",
        PeerLeave => "peer_leave",
        FileShared => "file_shared",
        DaemonDisconnect => "daemon_disconnect",
        DaemonReconnect => "daemon_reconnect",
        HookExecuted => "hook_executed",
        FeatureNegotiationFailed => "feature_negotiation_failed",
        OutboxPressureHigh => "outbox_pressure_high",
        InboxPressureHigh => "inbox_pressure_high",
        /// A row will not be sent: of high severity, so that an operator is informed at once.
        OutboxDead => "outbox_dead",
        BrokerStatus => "broker_status",
        System => "system",
    }
}

/// The text of one event. `data` is compact JSON; a line break in it would end the line, so it is split as the format demands.
pub fn sse_event(id: u64, kind: MeshEventKind, data: &str) -> String {
    let mut text = format!("id: {id}\nevent: {kind}\n");
    for line in data.split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text
}

/// A comment: `connected` at the start, `keepalive` after 15 seconds without an event.
pub fn sse_comment(word: &str) -> String {
    format!(": {word}\n\n")
}
