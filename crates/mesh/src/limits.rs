//! Every limit and every fixed duration of the mesh, by name and unit.

// One WebSocket frame.
/// Of a client, and of a message that is pushed.
pub const FRAME_BYTES_MAX: usize = 65_536;
/// Of the broker: a list of everything that a mesh may have fits.
pub const BROKER_FRAME_BYTES_MAX: usize = 8 << 20;
pub const FRAME_DEPTH_MAX: usize = 64;
/// The longest body: with its encryption and base64 it still fits one frame, beside an id of any length. A frame with `meta`
/// or mentions may be too long nevertheless: [`crate::frame::fits`].
pub const INLINE_BYTES_MAX: usize = 48_000;
/// What the protocol names as the size of a file.
pub const BLOB_BYTES_MAX: u64 = 524_288_000;
/// Uploads and downloads of files at the same time, and those of one member.
pub const BLOB_TRANSFERS_MAX: usize = 16;
pub const BLOB_TRANSFERS_PER_MEMBER_MAX: usize = 4;
/// A transfer that is slower than this, after its first seconds, is ended.
pub const BLOB_BYTES_PER_SECOND_MIN: u64 = 16 << 10;
/// All files of a mesh.
pub const BLOB_BYTES_PER_MESH_DEFAULT: u64 = 10 << 30;
/// An upload leaves this much of the disk to the ledger and the log.
pub const BLOB_FREE_BYTES_MIN: u64 = 1 << 30;
pub const MENTIONS_MAX: usize = 16;
/// A close frame of a WebSocket has room for this much reason.
pub const CLOSE_REASON_BYTES_MAX: usize = 123;
pub const REQUEST_ID_BYTES_MAX: usize = 256;

// Identifiers.
pub const CLIENT_MESSAGE_ID_BYTES_MAX: usize = 128;
pub const OPAQUE_ID_BYTES_MAX: usize = 128;
pub const SLUG_CHARS_MAX: usize = 64;
pub const TOPIC_NAME_CHARS_MAX: usize = 64;
pub const GROUP_NAME_CHARS_MAX: usize = 64;
pub const QUEUE_NAME_CHARS_MAX: usize = 128;
pub const DISPLAY_NAME_CHARS_MAX: usize = 64;
/// Fewer hex digits are taken for a display name, not for the beginning of a key.
pub const KEY_PREFIX_DIGITS_MIN: usize = 16;

// Connections.
pub const CONNECTIONS_PER_MESH_MAX: usize = 100;
/// One member alone does not use up the places of its mesh.
pub const CONNECTIONS_PER_MEMBER_MAX: usize = 64;
/// Presences of a mesh whose connections are closed.
pub const PRESENCES_IN_GRACE_MAX: usize = 100;
pub const HELLO_SKEW_MS_MAX: u64 = 60_000;
pub const HELLO_TIMEOUT_MS: u64 = 5_000;
pub const NEGOTIATION_TIMEOUT_MS: u64 = 5_000;
pub const ATTESTATION_MS_MAX: u64 = 24 * 3_600_000;
pub const PING_INTERVAL_MS: u64 = 30_000;
pub const STALE_AFTER_MS: u64 = 75_000;
/// How long a closed connection still counts as online.
pub const PRESENCE_GRACE_MS: u64 = 90_000;

// Delivery.
pub const DELIVERY_LEASE_MS: u64 = 30_000;
pub const DELIVERY_SWEEP_MS: u64 = 15_000;
pub const UNDELIVERED_DAYS: u32 = 7;
pub const SENDS_PER_MINUTE_DEFAULT: u32 = 6_000;
pub const SEND_BURST_DEFAULT: u32 = 1_000;
/// Frames of a member other than messages.
pub const REQUESTS_PER_MINUTE_DEFAULT: u32 = 6_000;
pub const REQUEST_BURST_DEFAULT: u32 = 1_000;

// Retention of dedupe records.
pub const DEDUPE_DAYS_DEFAULT: u32 = 365;
pub const DEDUPE_DAYS_MIN: u32 = 3;
/// The longest retention of ids and of messages that can be set.
pub const RETENTION_DAYS_MAX: u32 = 36_500;
/// How long accepted messages are kept unless a mesh says otherwise.
pub const MESSAGE_DAYS_DEFAULT: u32 = 90;

// Invites.
pub const INVITE_USES_DEFAULT: u32 = 1;
pub const INVITE_USES_MAX: u32 = 1_000_000;
pub const INVITE_SECONDS_DEFAULT: u64 = 7 * 86_400;
pub const INVITE_SECONDS_MAX: u64 = 3_650 * 86_400;

// Reads of operators.
pub const MESSAGE_PAGE_DEFAULT: u32 = 50;
pub const MESSAGE_PAGE_MAX: u32 = 500;

// API keys.
pub const API_KEY_TOPICS_MAX: usize = 100;
pub const API_KEY_LABEL_CHARS_MAX: usize = 64;

// HTTP.
/// The largest body of a request that carries no message and no file.
pub const HTTP_BODY_BYTES_MAX: usize = 65_536;

// Outbox.
pub const DRAIN_BATCH_MAX: usize = 32;
pub const DRAIN_POLL_MS: u64 = 500;
pub const ACK_TIMEOUT_MS: u64 = 15_000;
pub const BACKOFF_MIN_MS: u64 = 500;
pub const BACKOFF_MAX_MS: u64 = 30_000;
/// An intent is not published later than this after its acceptance: an hour less than the server remembers its id.
pub const INTENT_AGE_HOURS_MAX: u32 = 23;

// Local interface of the daemon.
pub const IPC_BODY_BYTES_MAX: usize = 1 << 20;
pub const IPC_RESPONSE_BYTES_MAX: usize = 10 << 20;
pub const IPC_IN_FLIGHT_MAX: usize = 64;
pub const SSE_STREAMS_MAX: usize = 32;
pub const IPC_REQUESTS_PER_SECOND: u32 = 100;
pub const IPC_REQUEST_BURST: u32 = 1_000;
pub const INBOX_PAGE_DEFAULT: u32 = 100;
pub const INBOX_PAGE_MAX: u32 = 1_000;
pub const FILE_PAGE_DEFAULT: u32 = 50;
pub const FILE_PAGE_MAX: u32 = 200;
/// What a sender says about a file.
pub const FILE_MESSAGE_CHARACTERS_MAX: usize = 1_000;
pub const OUTBOX_PAGE_DEFAULT: u32 = 50;
pub const OUTBOX_PAGE_MAX: u32 = 500;
pub const LOCAL_TOKEN_BYTES: usize = 32;
pub const OLD_TOKEN_GRACE_MS: u64 = 60_000;
pub const CAPABILITY_TOKEN_MS: u64 = 5 * 60_000;
pub const SSE_KEEPALIVE_MS: u64 = 15_000;
pub const DAEMON_PROBE_MS: u64 = 100;

// Hooks.
pub const HOOK_POOL: usize = 8;
pub const HOOK_STDIN_BYTES_MAX: usize = 262_144;
pub const HOOK_OUTPUT_BYTES_MAX: usize = 65_536;
pub const HOOK_TIMEOUT_S: u64 = 30;
pub const HOOK_KILL_AFTER_MS: u64 = 5_000;

// Key rotation.
pub const ARCHIVED_KEYS_MAX: usize = 8;
pub const KEY_GRACE_DAYS_DEFAULT: u32 = 7;
pub const KEY_GRACE_DAYS_MAX: u32 = 30;

// Sockets of the broker.
/// Connections of a node that have not said hello.
pub const GREETINGS_MAX: usize = 256;
/// How long a connection may take for its hello.
pub const HELLO_WAIT_MS: u64 = 30_000;
/// Frames that wait for a client; one that reads too slowly is disconnected.
pub const SEND_QUEUE_FRAMES_MAX: usize = 2_048;
pub const SEND_QUEUE_BYTES_MAX: usize = 2 * BROKER_FRAME_BYTES_MAX;
/// Pushes that wait for a client; more stay in the ledger.
pub const PUSHES_AHEAD_MAX: usize = 32;
/// Messages that a connection has not acknowledged; more stay in the ledger.
pub const UNACKED_MAX: usize = 1_024;
/// Messages of a connection that are being accepted.
pub const SENDS_IN_FLIGHT_MAX: usize = 256;
/// Shared values of a mesh, and the length of one.
pub const STATE_KEYS_MAX: u32 = 1_000;
pub const STATE_VALUE_BYTES_MAX: usize = 4_096;
/// What a peer says about itself: its counters, and its profile.
pub const STATS_BYTES_MAX: usize = 4_096;
pub const PROFILE_BYTES_MAX: usize = 4_096;
pub const TOPICS_PER_MESH_MAX: usize = 1_000;
/// Queues that a topic fills.
pub const TOPIC_SUBSCRIPTIONS_MAX: usize = 16;
pub const TOPIC_HISTORY_DEFAULT: u32 = 50;
pub const TOPIC_HISTORY_MAX: u32 = 100;
