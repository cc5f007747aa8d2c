//! What a hook reads on its standard input, and what its output means.
//!
//! Invariant: redacted members are not in the text, whatever it is cut to, and a text that is too long stays one JSON object.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

/// The event for a hook: without the redacted paths, and at most `bytes_max` long.
///
/// A path is a list of keys with dots between them, with an optional `$.` before; `*` stands for every key or element.
/// An event that is too long loses its texts: the longest member is cut until it fits, and `_truncated` is true.
pub fn hook_input(event: &Map<String, Value>, redacted: &[String], bytes_max: usize) -> String {
    let mut value = Value::Object(event.clone());
    for path in redacted {
        let keys: Vec<&str> = path.strip_prefix("$.").unwrap_or(path).split('.').collect();
        redact(&mut value, &keys);
    }
    let text = value.to_string();
    if text.len() <= bytes_max {
        return text;
    }
    truncated(value, bytes_max)
}

fn redact(value: &mut Value, path: &[&str]) {
    let [key, rest @ ..] = path else {
        return;
    };
    match value {
        Value::Object(members) if rest.is_empty() => {
            members.retain(|name, _| *key != "*" && name != key);
        }
        Value::Object(members) => {
            let found = members
                .iter_mut()
                .filter(|(name, _)| *key == "*" || name == key);
            found.for_each(|(_, member)| redact(member, rest));
        }
        Value::Array(items) => {
            let number: Option<usize> = key.parse().ok();
            for (at, item) in items.iter_mut().enumerate() {
                if *key != "*" && number != Some(at) {
                    continue;
                }
                if rest.is_empty() {
                    *item = Value::Null;
                } else {
                    redact(item, rest);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Cuts the longest member again and again; what is no text is removed.
fn truncated(mut value: Value, bytes_max: usize) -> String {
    value["_truncated"] = json!(true);
    loop {
        let text = value.to_string();
        let Some(excess) = text
            .len()
            .checked_sub(bytes_max)
            .filter(|excess| *excess > 0)
        else {
            return text;
        };
        let Some(members) = value.as_object_mut() else {
            return text;
        };
        let longest = members
            .iter()
            .filter(|(key, _)| *key != "_truncated")
            .max_by_key(|(_, member)| member.to_string().len());
        let Some(key) = longest.map(|(key, _)| key.clone()) else {
            return text;
        };
        match members.get_mut(&key) {
            Some(Value::String(member)) if member.len() > 16 => {
                // An escaped character is up to six bytes of the text, so at least a sixth is cut.
                let keep = member.len().saturating_sub((excess / 6).max(1));
                member.truncate(member.floor_char_boundary(keep));
            }
            _ => {
                members.remove(&key);
            }
        }
    }
}

/// What a hook printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutput {
    /// Nothing to do.
    Empty,
    /// A reply to the sender of the event; honoured if the settings allow it.
    Reply(String),
    /// An object without a reply. `pre-send` replaces the message by its members.
    Object(String),
    /// Not a JSON object: logged.
    Invalid,
}

impl HookOutput {
    pub fn parse(output: &[u8]) -> Self {
        let output = output.trim_ascii();
        if output.is_empty() {
            return Self::Empty;
        }
        match serde_json::from_slice::<Map<String, Value>>(output) {
            Ok(members) => match members.get("reply").and_then(Value::as_str) {
                Some(reply) => Self::Reply(reply.to_owned()),
                None => Self::Object(Value::Object(members).to_string()),
            },
            Err(_) => Self::Invalid,
        }
    }
}
