//! What tests share: simulated time, a server process to talk to, histories of its clients, a disk that
//! fails on request, planted defects.

pub mod clock;
pub mod history;
pub mod plants;
pub mod process;
pub mod shim;
