//! Executes commands: provides entropy, calls the store, wakes waiting claims, manages keys, signs receipts, runs the
//! loops.
//!
//! Invariant: the engine decides nothing about intents (the kernel does) and knows no wire format (faces do).
//! Everything a face does to the ledger goes through [`Engine`].

mod clock;
mod engine;
mod error;
mod followers;
mod housekeeping;
mod import;
mod keys;
mod ledger_health;
mod nodes;
mod planted_torn_batch;
mod receipts;
mod seeds;
mod shared_secrets;
mod skipped_steps;
mod slots;
mod timekeeper;
mod wakes;

pub use clock::{EngineClock, SystemTimes, TimeSource, WallClock};
pub use consign_store::Error as StoreError;
pub use consign_store::failpoint;
pub use consign_store::{
    Clock, Count, EventFilter, EventPage, IntentFilter, IntentPage, JobCount, Outline, OutlinePage,
    SharedStore, Stats,
};
pub use engine::{Caller, Engine, Operator, Options};
pub use error::Error;
pub use housekeeping::CleanupReport;
pub use import::{ImportOptions, ImportReport, import_intent_bus};
pub use keys::{KeyInfo, NewKey, SealKey, key_id};
pub use ledger_health::LedgerHealth;
pub use nodes::{Heartbeat, NodeIdentity, NodeInfo, NodeState, PauseReason};
pub use receipts::ReceiptStatus;
pub use shared_secrets::MismatchedSecret;
pub use slots::{Slot, Slots};
pub use timekeeper::{SweepReport, Timekeeper};
