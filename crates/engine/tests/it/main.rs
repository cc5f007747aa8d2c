//! The engine over the model store, in simulated time: wakes, loops, keys, receipts.

mod keys;
mod long_poll;
mod receipts;
mod schedule;
mod world;
