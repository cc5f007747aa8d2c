//! The rows of Beam's files, as stored. A column that a file does not have reads as null.

use super::cells::ForeignCells;

/// A row of `agents`. Times are ISO 8601.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignAgent {
    pub beam_id: String,
    pub display_name: String,
    /// A JSON array.
    pub capabilities: Option<String>,
    pub public_key: String,
    pub api_key_hash: Option<String>,
    pub email: Option<String>,
    pub email_verified: bool,
    pub description: Option<String>,
    pub logo_url: Option<String>,
    pub website: Option<String>,
    pub verified: bool,
    pub verification_tier: Option<String>,
    pub flagged: bool,
    pub visibility: Option<String>,
    pub http_endpoint: Option<String>,
    pub dh_public_key: Option<String>,
    pub created_at: String,
    pub last_seen: String,
}

/// A row of `agent_keys`. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignAgentKey {
    pub id: i64,
    pub public_key: String,
    pub created_at: i64,
    pub revoked_at: Option<i64>,
}

/// A row of `intent_acls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignAclRule {
    pub id: i64,
    pub target_beam_id: String,
    pub intent_type: String,
    pub allowed_from: String,
    pub created_at: String,
}

/// A row of `delegations`. The end is ISO 8601 or milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignDelegation {
    pub id: i64,
    pub grantor_beam_id: String,
    pub grantee_beam_id: String,
    /// A name, or a JSON array of names.
    pub scope: String,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub revoked: bool,
}

/// A row of `federation_peers`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignPeer {
    pub id: i64,
    pub directory_url: String,
    pub public_key: String,
    pub trust_level: Option<f64>,
    pub status: Option<String>,
    pub created_at: String,
    pub last_seen: Option<String>,
    pub synced_at: Option<String>,
}

/// A row of `intent_log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignBeamIntent {
    pub id: i64,
    /// Files of early versions have none.
    pub nonce: Option<String>,
    pub from_beam_id: String,
    pub to_beam_id: String,
    pub intent_type: String,
    pub requested_at: String,
    pub completed_at: Option<String>,
    pub latency_ms: Option<i64>,
    pub status: String,
    pub error_code: Option<String>,
    /// A result frame.
    pub result_json: Option<String>,
}

/// A row of `intent_trace_events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTraceEvent {
    pub stage: String,
    pub status: String,
    pub timestamp: String,
    pub details: Option<String>,
}

/// A row of `beam_messages`. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignMessage {
    pub id: String,
    /// Files of early versions have none.
    pub nonce: Option<String>,
    pub sender: String,
    pub recipient: String,
    pub intent: String,
    pub payload: String,
    pub status: String,
    pub priority: Option<i64>,
    pub retry_count: Option<i64>,
    pub max_retries: Option<i64>,
    pub next_retry_at: Option<f64>,
    pub created_at: f64,
    pub delivered_at: Option<f64>,
    pub acked_at: Option<f64>,
    pub failed_at: Option<f64>,
    pub error: Option<String>,
    pub response: Option<String>,
    pub trace_id: Option<String>,
    pub metadata: Option<String>,
}

/// A table of one of Beam's files, and how its rows are read.
pub(super) trait ForeignTable: Sized {
    const NAME: &'static str;
    const COLUMNS: &'static [&'static str];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String>;
}

impl ForeignTable for ForeignAgent {
    const NAME: &'static str = "agents";
    const COLUMNS: &'static [&'static str] = &[
        "beam_id",
        "display_name",
        "capabilities",
        "public_key",
        "api_key_hash",
        "email",
        "email_verified",
        "description",
        "logo_url",
        "website",
        "verified",
        "verification_tier",
        "flagged",
        "visibility",
        "http_endpoint",
        "dh_public_key",
        "created_at",
        "last_seen",
    ];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            beam_id: cells.text("beam_id")?,
            display_name: cells.text("display_name")?,
            capabilities: cells.text_or_null("capabilities")?,
            public_key: cells.text("public_key")?,
            api_key_hash: cells.text_or_null("api_key_hash")?,
            email: cells.text_or_null("email")?,
            email_verified: flag(cells, "email_verified")?,
            description: cells.text_or_null("description")?,
            logo_url: cells.text_or_null("logo_url")?,
            website: cells.text_or_null("website")?,
            verified: flag(cells, "verified")?,
            verification_tier: cells.text_or_null("verification_tier")?,
            flagged: flag(cells, "flagged")?,
            visibility: cells.text_or_null("visibility")?,
            http_endpoint: cells.text_or_null("http_endpoint")?,
            dh_public_key: cells.text_or_null("dh_public_key")?,
            created_at: cells.text("created_at")?,
            last_seen: cells.text("last_seen")?,
        })
    }
}

impl ForeignTable for ForeignAgentKey {
    const NAME: &'static str = "agent_keys";
    const COLUMNS: &'static [&'static str] =
        &["id", "beam_id", "public_key", "created_at", "revoked_at"];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            id: cells.integer("id")?,
            public_key: cells.text("public_key")?,
            created_at: cells.integer("created_at")?,
            revoked_at: cells.integer_or_null("revoked_at")?,
        })
    }
}

impl ForeignTable for ForeignAclRule {
    const NAME: &'static str = "intent_acls";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "target_beam_id",
        "intent_type",
        "allowed_from",
        "created_at",
    ];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            id: cells.integer("id")?,
            target_beam_id: cells.text("target_beam_id")?,
            intent_type: cells.text("intent_type")?,
            allowed_from: cells.text("allowed_from")?,
            created_at: cells.text("created_at")?,
        })
    }
}

impl ForeignTable for ForeignDelegation {
    const NAME: &'static str = "delegations";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "grantor_beam_id",
        "grantee_beam_id",
        "scope",
        "created_at",
        "expires_at",
        "revoked",
    ];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            id: cells.integer("id")?,
            grantor_beam_id: cells.text("grantor_beam_id")?,
            grantee_beam_id: cells.text("grantee_beam_id")?,
            scope: cells.text("scope")?,
            created_at: cells.text("created_at")?,
            expires_at: cells.text_or_null("expires_at")?,
            revoked: flag(cells, "revoked")?,
        })
    }
}

impl ForeignTable for ForeignPeer {
    const NAME: &'static str = "federation_peers";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "directory_url",
        "public_key",
        "trust_level",
        "status",
        "created_at",
        "last_seen",
        "synced_at",
    ];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            id: cells.integer("id")?,
            directory_url: cells.text("directory_url")?,
            public_key: cells.text("public_key")?,
            trust_level: cells.real_or_null("trust_level")?,
            status: cells.text_or_null("status")?,
            created_at: cells.text("created_at")?,
            last_seen: cells.text_or_null("last_seen")?,
            synced_at: cells.text_or_null("synced_at")?,
        })
    }
}

impl ForeignTable for ForeignBeamIntent {
    const NAME: &'static str = "intent_log";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "nonce",
        "from_beam_id",
        "to_beam_id",
        "intent_type",
        "requested_at",
        "completed_at",
        "round_trip_latency_ms",
        "status",
        "error_code",
        "result_json",
    ];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            id: cells.integer("id")?,
            nonce: cells.text_or_null("nonce")?,
            from_beam_id: cells.text("from_beam_id")?,
            to_beam_id: cells.text("to_beam_id")?,
            intent_type: cells.text("intent_type")?,
            requested_at: cells.text("requested_at")?,
            completed_at: cells.text_or_null("completed_at")?,
            latency_ms: cells.integer_or_null("round_trip_latency_ms")?,
            status: cells.text("status")?,
            error_code: cells.text_or_null("error_code")?,
            result_json: cells.text_or_null("result_json")?,
        })
    }
}

impl ForeignTable for ForeignTraceEvent {
    const NAME: &'static str = "intent_trace_events";
    const COLUMNS: &'static [&'static str] =
        &["id", "nonce", "stage", "status", "timestamp", "details"];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            stage: cells.text("stage")?,
            status: cells.text("status")?,
            timestamp: cells.text("timestamp")?,
            details: cells.text_or_null("details")?,
        })
    }
}

impl ForeignTable for ForeignMessage {
    const NAME: &'static str = "beam_messages";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "nonce",
        "sender",
        "recipient",
        "intent",
        "payload",
        "status",
        "priority",
        "retry_count",
        "max_retries",
        "next_retry_at",
        "created_at",
        "delivered_at",
        "acked_at",
        "failed_at",
        "error",
        "response",
        "trace_id",
        "metadata",
    ];

    fn read(cells: &ForeignCells<'_>) -> Result<Self, String> {
        Ok(Self {
            id: cells.text("id")?,
            nonce: cells.text_or_null("nonce")?,
            sender: cells.text("sender")?,
            recipient: cells.text("recipient")?,
            intent: cells.text("intent")?,
            payload: cells.text("payload")?,
            status: cells.text("status")?,
            priority: cells.integer_or_null("priority")?,
            retry_count: cells.integer_or_null("retry_count")?,
            max_retries: cells.integer_or_null("max_retries")?,
            next_retry_at: cells.real_or_null("next_retry_at")?,
            created_at: cells.real("created_at")?,
            delivered_at: cells.real_or_null("delivered_at")?,
            acked_at: cells.real_or_null("acked_at")?,
            failed_at: cells.real_or_null("failed_at")?,
            error: cells.text_or_null("error")?,
            response: cells.text_or_null("response")?,
            trace_id: cells.text_or_null("trace_id")?,
            metadata: cells.text_or_null("metadata")?,
        })
    }
}

/// Null counts as false.
fn flag(cells: &ForeignCells<'_>, column: &str) -> Result<bool, String> {
    Ok(cells.integer_or_null(column)?.unwrap_or(0) != 0)
}
