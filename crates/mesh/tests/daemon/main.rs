//! The daemon with real files and sockets.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod access;
mod bad_neighbours;
mod broker_double;
mod files;
mod keys;
mod local_http;
mod member_names;
mod name;
mod negotiation;
mod outbox_rows;
mod publishing;
mod rebuilding;
mod receiving;
mod sending;
mod shared_files;
mod surroundings;
mod world;
