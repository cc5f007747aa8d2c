//! Runs commands: draws entropy, calls the store, wakes waiters, keeps keys, signs receipts, drives the loops.
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
mod nodes;
mod off_duty;
mod places;
mod pulse;
mod receipts;
mod seeds;
mod site;
mod timekeeper;
mod torn;
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
pub use nodes::{Heartbeat, Identity, NodeInfo, NodeState, OffDuty};
pub use places::Place;
pub use pulse::LedgerHealth;
pub use receipts::Standing;
pub use site::Differing;
pub use timekeeper::{Swept, Timekeeper};
