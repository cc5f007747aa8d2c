//! What campaigns share: clients with histories, the rules by which they are judged, trials in turn, results.
//!
//! A campaign is a program that lets clients work against real servers, makes those fail, and holds what the clients
//! were told against what is there afterwards. What fails, and how, is the business of each program.

pub mod client_pool;
pub mod clients;
pub mod endpoints;
pub mod findings;
pub mod leases;
pub mod plan;
pub mod report;
pub mod results;
pub mod runner;
pub mod setup;
pub mod trial;
pub mod verify;
