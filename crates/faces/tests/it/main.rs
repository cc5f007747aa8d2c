//! The Intent Protocol over its router, on a real SQLite file, in simulated time.

mod world;
