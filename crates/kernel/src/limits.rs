//! Every limit by name and unit. Reaching one is a clear error, never a crash or a silent drop.

use crate::ids::{DAY_US, HOUR_US, SECOND_US};

// One intent.
pub const GOAL_CHARS_MAX: usize = 256;
pub const NAMESPACE_CHARS_MAX: usize = 64;
pub const LABEL_CHARS_MAX: usize = 64;
pub const PAYLOAD_BYTES_MAX: usize = 7_168;
pub const RESULT_BYTES_MAX: usize = 7_168;
/// Of the error of an attempt, its beginning and its end are kept; see [`crate::error_text`].
pub const ERROR_BYTES_MAX: usize = 8_192;
pub const TRACEPARENT_BYTES_MAX: usize = 64;
pub const JSON_DEPTH_MAX: usize = 128;
pub const PRIORITY_MAX: i64 = 1_000;
pub const PRIORITY_DEFAULT: i32 = 100;
pub const ATTEMPTS_MAX: u32 = 20;
pub const ATTEMPTS_DEFAULT: u32 = 3;
pub const BACKOFF_BASE_MIN_S: f64 = 1.0;
pub const BACKOFF_BASE_MAX_S: f64 = 3_600.0;
pub const BACKOFF_BASE_DEFAULT_S: f64 = 5.0;
pub const INTENT_TTL_US: i64 = DAY_US;

// Leases.
pub const LEASE_DEFAULT_S: i64 = 60;
pub const LEASE_MIN_S: i64 = 10;
pub const LEASE_MAX_S: i64 = 3_600;

// Requests.
pub const BODY_BYTES_MAX: usize = 8_192;
/// The report of a failure may contain more than is kept of it.
pub const FAILURE_BODY_BYTES_MAX: usize = 64 << 10;
pub const BATCH_BODY_BYTES_MAX: usize = 1 << 20;
pub const BATCH_ITEMS_MAX: usize = 100;
pub const CLAIM_BATCH_MAX: u32 = 100;
pub const CLAIM_WAIT_MAX_S: f64 = 30.0;
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
pub const NONCE_BYTES_MAX: usize = 255;
pub const WORKER_ID_CHARS_MAX: usize = 64;
pub const CAPABILITIES_CHARS_MAX: usize = 256;
pub const CAPABILITIES_MAX: usize = 32;
pub const PAGE_ITEMS_MAX: u32 = 100;
pub const FILTER_BYTES_MAX: usize = 2_048;
pub const FILTER_TERMS_MAX: usize = 32;
/// How many rows one page of a search examines, and if it reads their payloads.
pub const SEARCH_ROWS_MAX: u32 = 5_000;
pub const SEARCH_PAYLOADS_MAX: u32 = 1_000;
/// How many rows one count examines.
pub const COUNT_ROWS_MAX: u32 = 50_000;

// Keys and their allowance.
pub const OWNER_CHARS_MAX: usize = 100;
pub const RATE_REQUESTS_MAX: u32 = 60;
pub const RATE_WINDOW_US: i64 = 60 * SECOND_US;
pub const OPEN_INTENTS_MAX: u64 = 2_000;

// Key-value entries.
pub const KV_KEY_BYTES_MAX: usize = 512;
pub const KV_TTL_DEFAULT_S: i64 = 600;
pub const KV_TTL_MAX_S: i64 = 86_400;

// Memory of what happened.
pub const IDEMPOTENCY_US: i64 = DAY_US;
/// A timestamp holds for 300 s on either side, both ends included; a minute more outlives it for certain.
pub const NONCE_US: i64 = 660 * SECOND_US;
pub const RATE_MEMORY_US: i64 = HOUR_US;
pub const RETENTION_US: i64 = 7 * DAY_US;
/// How long a permission without consent is kept after its end.
pub const UNCONSENTED_RETENTION_US: i64 = HOUR_US;
pub const FACT_RETENTION_US: i64 = 30 * DAY_US;
/// The lifetime of a record whose retention is a setting: longer than any setting. A record is removed as much earlier as the
/// setting of that moment demands, so a change also applies to records that exist. Migrations contain this number.
pub const RECORD_LIFE_US: i64 = 36_500 * DAY_US;
pub const DEAD_LIST_MAX: u32 = 100;

// Work per commit.
pub const SWEEP_ROWS_MAX: u32 = 512;
pub const STEPS_MAX: usize = 4_096;
