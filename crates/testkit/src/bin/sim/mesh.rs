//! The simulation of the mesh: the real broker on one simulated machine, the outbox of a real daemon on another one, and
//! connections between them that break.
//!
//! A recipient and a second sender are simulated. HTTP, sockets, encryption and the network are left out.

mod link;
mod message_checks;
mod server;
mod simulation;
mod stranger;

pub(crate) use simulation::run;
