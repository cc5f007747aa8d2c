//! Log lines on stderr, as text or JSON.

use tracing_subscriber::EnvFilter;

use super::LogFormat;

/// `RUST_LOG` overrides the default. A line per request costs more than the request itself, so it is off by default.
pub(super) fn start(format: LogFormat, access: bool) {
    let fallback = if access { "info" } else { "info,access=off" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(fallback));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    // A second start in one process keeps the first log.
    let _ = match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.with_ansi(false).try_init(),
    };
}
