//! The paths of the local interface, for the daemon that serves them and for the commands that call them.

// The frozen core.
pub const SEND: &str = "/v1/send";
pub const TOPIC_POST: &str = "/v1/topic/post";
pub const TOPIC_SUBSCRIBE: &str = "/v1/topic/subscribe";
pub const TOPIC_UNSUBSCRIBE: &str = "/v1/topic/unsubscribe";
pub const TOPIC_LIST: &str = "/v1/topic/list";
pub const INBOX: &str = "/v1/inbox";
pub const PEERS: &str = "/v1/peers";
pub const PROFILE: &str = "/v1/profile";
pub const FILE_SHARE: &str = "/v1/file/share";
pub const FILE_GET: &str = "/v1/file/get";
pub const FILE_LIST: &str = "/v1/file/list";
pub const EVENTS: &str = "/v1/events";
pub const HEALTH: &str = "/v1/health";
pub const METRICS: &str = "/v1/metrics";
pub const VERSION: &str = "/v1/version";
pub const COMPAT: &str = "/v1/compat";
pub const HEARTBEAT: &str = "/v1/heartbeat";

/// Publishes an intent at its server, through the outbox.
pub const INTENTS: &str = "/v1/intents";

/// Only with the capability `state`.
pub const STATE: &str = "/v1/state";

// For the operator of the daemon.
pub const OUTBOX: &str = "/v1/outbox";
pub const OUTBOX_REQUEUE: &str = "/v1/outbox/requeue";
pub const OUTBOX_DROP: &str = "/v1/outbox/drop";
pub const OUTBOX_PRUNE: &str = "/v1/outbox/prune";
/// Writes a new token file; the answer has `rotated_at` and not the token.
pub const TOKEN_ROTATE: &str = "/v1/token/rotate";
/// The answer has `old_pubkey`, `new_pubkey` and `key_id`.
pub const KEYPAIR_ROTATE: &str = "/v1/keypair/rotate";
/// The answer has `removed`, a number of archived keys.
pub const ARCHIVE_CLEANUP: &str = "/v1/archive/cleanup";
/// Reads `config.toml` and `hooks.toml` again; the connection to the broker stays.
pub const RELOAD: &str = "/v1/reload";
/// Ends the daemon; over the socket alone.
pub const SHUTDOWN: &str = "/v1/shutdown";

/// Every path, for counters whose labels must have a bound.
pub const ALL: &[&str] = &[
    SEND,
    TOPIC_POST,
    TOPIC_SUBSCRIBE,
    TOPIC_UNSUBSCRIBE,
    TOPIC_LIST,
    INBOX,
    PEERS,
    PROFILE,
    FILE_SHARE,
    FILE_GET,
    FILE_LIST,
    EVENTS,
    HEALTH,
    METRICS,
    VERSION,
    COMPAT,
    HEARTBEAT,
    INTENTS,
    STATE,
    OUTBOX,
    OUTBOX_REQUEUE,
    OUTBOX_DROP,
    OUTBOX_PRUNE,
    TOKEN_ROTATE,
    KEYPAIR_ROTATE,
    ARCHIVE_CLEANUP,
    RELOAD,
    SHUTDOWN,
];
