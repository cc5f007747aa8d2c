//! What tests share: simulated time, a server process to talk to, planted defects.

pub mod clock;
pub mod plants;
pub mod process;
