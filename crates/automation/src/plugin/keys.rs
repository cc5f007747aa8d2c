//! Unknown keys of a manifest.
//!
//! They are reported but not refused: a manifest for a later version must still load.

use serde_json::{Map, Value};

const TOP: &[&str] = &[
    "manifest_spec",
    "manifest_version",
    "name",
    "version",
    "protocol",
    "entrypoint",
    "description",
    "concurrency_safe",
    "commands",
    "config_keys",
    "fact_outputs",
    "stopwatch",
];
const COMMAND: &[&str] = &[
    "name",
    "type",
    "description",
    "input_schema",
    "output_schema",
    "values",
    "idempotent",
    "retry_safe",
];
const FACT_OUTPUT: &[&str] = &["when", "from", "fact_type", "compatibility_view"];

pub(super) fn unknown(manifest: &Value) -> Vec<String> {
    let Some(manifest) = manifest.as_object() else {
        return Vec::new();
    };
    let mut found = unknown_in(manifest, TOP, "");
    match manifest.get("commands") {
        Some(Value::Object(commands)) => {
            for (name, command) in commands {
                let command = command.as_object().into_iter();
                let prefix = format!("commands.{name}.");
                found.extend(command.flat_map(|keys| unknown_in(keys, COMMAND, &prefix)));
            }
        }
        list => found.extend(unknown_in_list(list, COMMAND, "commands")),
    }
    let facts = manifest.get("fact_outputs");
    found.extend(unknown_in_list(facts, FACT_OUTPUT, "fact_outputs"));
    found
}

fn unknown_in_list(list: Option<&Value>, known: &[&str], name: &str) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.enumerate()
        .filter_map(|(index, item)| Some((index, item.as_object()?)))
        .flat_map(|(index, keys)| unknown_in(keys, known, &format!("{name}[{index}].")))
        .collect()
}

fn unknown_in(keys: &Map<String, Value>, known: &[&str], prefix: &str) -> Vec<String> {
    keys.keys()
        .filter(|key| !known.contains(&key.as_str()))
        .map(|key| format!("{prefix}{key}"))
        .collect()
}
