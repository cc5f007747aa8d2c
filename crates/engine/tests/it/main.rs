//! The engine over the model store, in simulated time: wakes, loops, keys, receipts.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod cut_off;
mod keys;
mod long_poll;
mod nodes;
mod receipts;
mod schedule;
mod world;
