//! The load generator: it speaks the Intent Protocol, a little ATP, Beam and the interface of a mesh daemon, over real sockets and reports what it
//! measured.
//!
//! Invariants: an answer that is not a success never counts as one; with a fixed rate, latency counts from when a
//! request was due, so a stalled server cannot hide delayed requests; everything a run writes is in namespaces whose
//! names begin with [`NAMESPACE`]. It starts no server and reads no environment: the caller names the server. It does
//! not speak TLS, because it would measure the cipher.

mod client;
mod connection;
mod error;
mod idle_sockets;
mod load;
mod mesh;
mod metrics;
mod pace;
mod plan;
mod relay;
mod report;
mod request;
mod response;
mod restart;
mod run;
mod socket;
mod svg;
mod table;
mod tally;
mod usage;

pub use error::Error;
pub use idle_sockets::{IdleSocketsReport, idle_sockets};
pub use mesh::{
    MeshBenchTarget, MeshSendUntil, SendRun, drained, idle_bytes, is_ready, send_messages,
};
pub use plan::{
    BATCH_MAX, BenchPlan, BenchTarget, NAMESPACE, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN,
    RelayOrders, SenderOrders, TransactionOrder, Workload,
};
pub use report::BenchReport;
pub use restart::{RestartReport, RestartSample, restarts};
pub use run::run;
pub use svg::svg;
pub use table::{restart_table, table};
pub use usage::filesystem;
