//! The simulation of Beam: the real directory, relay and message bus over the simulated machine.
//!
//! Senders, recipients and the operator are simulated, with sockets in memory. HTTP and the network are left out.

mod answer_checks;
mod describe;
mod recipients;
mod requests;
mod row_checks;
mod server;
mod simulation;

pub(crate) use simulation::run;
