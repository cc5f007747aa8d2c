//! What operators read: traces of single intents, searches, and figures.
//!
//! Invariant: no read is unbounded. Searches and figures examine the newest [`scan::SCAN_ROWS_MAX`] intents of their window at
//! most, and say so if there are more.

pub mod agents;
pub mod alerts;
pub mod errors;
pub mod figures;
pub mod scan;
pub mod search;
pub mod trace;
