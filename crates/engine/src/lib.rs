//! Executes commands: provides entropy, calls the store, wakes waiting claims, manages keys, signs receipts, runs the
//! loops. `records`, `unit_of_work`, `lease`, `worker` and `publication` are the parts that faces are built from.
//!
//! Invariant: the engine decides nothing about intents (the kernel does) and knows no wire format (faces do).
//! Everything a face does to the ledger goes through [`Engine`].

mod answers;
mod audit;
mod bulk;
mod clock;
mod engine;
mod error;
mod exposed_queues;
mod face_figures;
mod followers;
mod grants;
mod housekeeping;
mod import;
mod keys;
mod lease;
mod ledger_health;
mod mesh_upkeep;
mod nodes;
mod planted_torn_batch;
mod publication;
mod receipts;
mod records;
mod search;
mod seeds;
mod shared_secrets;
mod skipped_steps;
mod slots;
mod step_meter;
mod timekeeper;
mod unit_of_work;
mod users;
mod wakes;
mod worker;

pub use answers::{Settled, TypedAnswer};
pub use audit::{AuditEntry, AuditFilter, AuditPage};
pub use bulk::{BulkJob, BulkRefusal, BulkRunner, BulkState, PIECE_ROWS, REFUSALS_KEPT};
pub use clock::{EngineClock, SystemTimes, TimeSource, WallClock};
pub use consign_store::Error as StoreError;
pub use consign_store::failpoint;
pub use consign_store::sqlite::{
    BeamFile, ForeignAclRule, ForeignAgent, ForeignAgentKey, ForeignBeamIntent, ForeignDelegation,
    ForeignMessage, ForeignPage, ForeignPeer, ForeignTraceEvent, UnreadableRow,
};
pub use consign_store::{
    Clock, Count, EndingCount, EventFilter, EventPage, IntentFilter, IntentPage, JobCount,
    LostMessagePage, MessageCount, MessageFilter, MessageTally, MessagesOf, Outline, OutlinePage,
    RowStepKind, Search, SearchPage, SearchPlace, SeqPage, SharedStore, Stats, StepCounts,
    WaitKind,
};
pub use engine::{Caller, Engine, Operator, Options};
pub use error::Error;
pub use exposed_queues::{ExposedItem, ExposedQueue, ExposedQueues, InvalidQueueName};
pub use face_figures::FaceFigures;
pub use grants::GrantInfo;
pub use housekeeping::CleanupReport;
pub use import::{ImportOptions, ImportReport, import_intent_bus};
pub use keys::{Authenticated, KeyEnd, KeyInfo, KeySettings, NewKey, SealKey, key_id};
pub use lease::{KEPT_LEASE_US, KeptLease, Lease, Leases};
pub use ledger_health::LedgerHealth;
pub use mesh_upkeep::PruneReport;
pub use nodes::{Heartbeat, NodeIdentity, NodeInfo, NodeState, PauseReason};
pub use publication::{MAIN_KEY_ID, Publication, PublicationKey};
pub use receipts::ReceiptStatus;
pub use records::{TRIES_MAX, Versioned, new_put};
pub use search::{MatchCount, OperatorAction};
pub use shared_secrets::MismatchedSecret;
pub use slots::{Slot, Slots};
pub use step_meter::{LABELS_MAX, OTHER, StepCounter, StepFigures, WaitHistogram};
pub use timekeeper::{SweepReport, Timekeeper};
pub use unit_of_work::{Committed, Handle, UnitOfWork};
pub use users::{AdminRole, PASSWORD_CHARS_MIN, UserInfo, is_user_name, new_password};
pub use worker::{Limits, Reservation, Worker, WorkerSlot};
