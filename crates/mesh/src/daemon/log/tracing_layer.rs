//! Lines of the libraries below the daemon, such as the ledger: their `tracing` events go into the same log.

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::{DaemonLog, MeshLogLevel};

impl<S: Subscriber> Layer<S> for DaemonLog {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_enabled(level_of(*metadata.level()))
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let target = event.metadata().target();
        fields.others.insert("target".to_owned(), json!(target));
        let level = level_of(*event.metadata().level());
        self.write(level, &fields.message, &Value::Object(fields.others));
    }
}

fn level_of(level: Level) -> MeshLogLevel {
    match level {
        Level::ERROR => MeshLogLevel::Error,
        Level::WARN => MeshLogLevel::Warn,
        Level::INFO => MeshLogLevel::Info,
        _ => MeshLogLevel::Debug,
    }
}

#[derive(Default)]
struct EventFields {
    message: String,
    others: Map<String, Value>,
}

impl EventFields {
    fn put(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, Value::String(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.put(field, json!(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }
}
