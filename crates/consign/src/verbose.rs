//! `--verbose`: the requests of a command on standard error.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Shows the requests of this process. A command that writes a log of its own keeps that one.
pub(crate) fn begin() {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_level(false)
        .without_time();
    let requests = Targets::new().with_target("consign_client", LevelFilter::DEBUG);
    // It fails only if there is a subscriber already.
    let _ = tracing_subscriber::registry()
        .with(requests)
        .with(lines)
        .try_init();
}
