//! What campaigns share: clients with histories, the rules by which they are judged, stretches in turn, results.
//!
//! A campaign is a program that lets clients work against real servers, makes those fail, and holds what the clients
//! were told against what is there afterwards. What fails, and how, is the business of each program.

pub mod clients;
pub mod course;
pub mod crowd;
pub mod findings;
pub mod ground;
pub mod leases;
pub mod plan;
pub mod reach;
pub mod report;
pub mod results;
pub mod turns;
pub mod verify;
