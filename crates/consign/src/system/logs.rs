//! The log of the service: lines on standard output, as JSON unless the configuration selects text.
//!
//! Invariant: every JSON line has `timestamp`, `level`, `component` and `message`; `plugin` and `job_id` are present where they
//! apply.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use consign_automation::config::model::{LogLevel, ServiceConfig};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A handle to change the format and level of the running log.
pub(super) struct LogHandle {
    is_json: Arc<AtomicBool>,
    /// `None` if `RUST_LOG` sets the filter.
    filter: Option<Box<dyn Fn(EnvFilter) + Send + Sync>>,
}

/// `RUST_LOG` overrides the configuration.
pub(super) fn start(service: &ServiceConfig) -> LogHandle {
    let given = EnvFilter::try_from_default_env().ok();
    let is_given = given.is_some();
    let is_json = Arc::new(AtomicBool::new(service.log_json));
    let lines = tracing_subscriber::fmt()
        .with_writer(std::io::stdout)
        .with_ansi(false)
        .event_format(LineFormat {
            is_json: Arc::clone(&is_json),
            text: tracing_subscriber::fmt::format().with_target(false),
        })
        .with_env_filter(given.unwrap_or_else(|| filter(service)))
        .with_filter_reloading();
    let handle = lines.reload_handle();
    // A second start in one process keeps the log of the first.
    let _ = lines.try_init();
    let set = move |filter| {
        if let Err(error) = handle.reload(filter) {
            tracing::warn!(component = "service", %error, "the level of the log could not be set");
        }
    };
    let filter: Box<dyn Fn(EnvFilter) + Send + Sync> = Box::new(set);
    LogHandle {
        is_json,
        filter: (!is_given).then_some(filter),
    }
}

impl LogHandle {
    /// Applies the format and level of this configuration.
    pub(super) fn apply(&self, service: &ServiceConfig) {
        self.is_json.store(service.log_json, Ordering::Relaxed);
        if let Some(set) = &self.filter {
            set(filter(service));
        }
    }
}

fn filter(service: &ServiceConfig) -> EnvFilter {
    EnvFilter::new(match service.log_level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    })
}

/// Formats each event as one line, in the current format.
struct LineFormat {
    is_json: Arc<AtomicBool>,
    text: Format,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_json.load(Ordering::Relaxed) {
            json_line(writer, event)
        } else {
            self.text.format_event(context, writer, event)
        }
    }
}

fn json_line(mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
    let metadata = event.metadata();
    let mut fields = JsonFields(Map::new());
    event.record(&mut fields);
    let mut line = fields.0;
    // Fields of the event cannot override these.
    let now = format!("{:.6}", Timestamp::now());
    line.insert("timestamp".to_owned(), now.into());
    line.insert("level".to_owned(), metadata.level().to_string().into());
    line.entry("component")
        .or_insert_with(|| component(metadata.target()).into());
    line.entry("message").or_insert_with(|| "".into());
    writeln!(writer, "{}", Value::Object(line))
}

/// The component of an event that does not name one.
fn component(target: &str) -> &str {
    let last = target.rsplit("::").next().unwrap_or(target);
    last.strip_prefix("consign_").unwrap_or(last)
}

struct JsonFields(Map<String, Value>);

impl JsonFields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::component;

    #[test]
    fn a_line_without_a_component_is_of_the_module_that_wrote_it_du_120() {
        assert_eq!(component("consign_automation::runtime::finish"), "finish");
        assert_eq!(component("consign_store"), "store");
    }
}
