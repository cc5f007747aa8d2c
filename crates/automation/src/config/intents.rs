//! The parts of the configuration that refer to intents: `serves` of a plugin and `publish` of a webhook.
//!
//! Names have the limits of the Intent Protocol, so that any client can use them.

use std::cell::RefCell;

use consign_kernel::limits;

use super::fields::SectionReader;
use super::model::{IntentTemplate, ServedGoal};
use super::node::ConfigNode;
use super::problem::ConfigProblems;
use crate::plugin::request::HANDLE;

const NAMESPACE_USUAL: &str = "default";
/// The default header that identifies a delivery, as in the Intent Protocol.
const DELIVERY_HEADER_USUAL: &str = "Idempotency-Key";

/// The goals that a plugin serves.
pub(super) fn serves(
    list: &[ConfigNode],
    path: &str,
    report: &RefCell<ConfigProblems>,
) -> Vec<ServedGoal> {
    let mut found: Vec<ServedGoal> = Vec::new();
    for (node, index) in list.iter().zip(0..) {
        let mut fields = SectionReader::top(node, format!("{path}[{index}]"), report);
        let goal = goal(&mut fields);
        let namespace = namespace(&mut fields);
        let capability = fields.text("capability");
        if capability.as_deref().is_some_and(|label| !is_label(label)) {
            let at = fields.position_of("capability");
            let message = format!(
                "`{}` is not a valid capability",
                fields.path_of("capability")
            );
            fields.error(
                &at,
                message,
                "write up to 64 letters, digits, `_`, `.`, `:`, `-`",
            );
        }
        let command = fields.text("command").unwrap_or_else(|| HANDLE.to_owned());
        if ["init", "health"].contains(&command.as_str()) {
            let message = format!("`{command}` manages the plugin itself and cannot serve a goal");
            let at = fields.position_of("command");
            fields.error(&at, message, "name `handle` or another command");
        }
        let at = fields.at.clone();
        let same =
            |known: &ServedGoal| Some(&known.goal) == goal.as_ref() && known.namespace == namespace;
        if found.iter().any(same) {
            fields.error(
                &at,
                format!("`{path}` has the same goal twice"),
                "remove one of them",
            );
        }
        fields.finish();
        if let Some(goal) = goal {
            found.push(ServedGoal {
                at,
                goal,
                namespace,
                command,
                capability,
            });
        }
    }
    found
}

/// What a webhook publishes.
pub(super) fn publication(mut fields: SectionReader<'_>) -> Option<IntentTemplate> {
    let goal = goal(&mut fields);
    let namespace = namespace(&mut fields);
    let attempts = fields.count("max_attempts", 1);
    let max = limits::ATTEMPTS_MAX as usize;
    if attempts.is_some_and(|attempts| attempts > max) {
        let message = format!("`{}` is above {max}", fields.path_of("max_attempts"));
        fields.error(&fields.position_of("max_attempts"), message, "");
    }
    let attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok());
    let delivery_header = fields.text("delivery_header");
    fields.finish();
    Some(IntentTemplate {
        goal: goal?,
        namespace,
        attempts_max: attempts.unwrap_or(limits::ATTEMPTS_DEFAULT),
        delivery_header: delivery_header.unwrap_or_else(|| DELIVERY_HEADER_USUAL.to_owned()),
    })
}

fn goal(fields: &mut SectionReader<'_>) -> Option<String> {
    let goal = fields.needed_text("goal")?.trim().to_owned();
    if !is_goal(&goal) {
        let message = format!("`{}` is not a valid goal", fields.path_of("goal"));
        fields.error(
            &fields.position_of("goal"),
            message,
            "write 1 to 256 characters",
        );
        return None;
    }
    Some(goal)
}

fn namespace(fields: &mut SectionReader<'_>) -> String {
    let namespace = fields.text("namespace");
    let namespace = namespace.unwrap_or_else(|| NAMESPACE_USUAL.to_owned());
    if !is_namespace(&namespace) {
        let message = format!("`{}` is not a valid namespace", fields.path_of("namespace"));
        let fix =
            "write up to 64 letters, digits, `.`, `-`, `_`, not starting with `beam.` or `mesh.`";
        fields.error(&fields.position_of("namespace"), message, fix);
    }
    namespace
}

/// `text` must be trimmed.
pub(crate) fn is_goal(text: &str) -> bool {
    (1..=limits::GOAL_CHARS_MAX).contains(&text.chars().count())
}

pub(crate) fn is_namespace(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let reserved = text.starts_with("beam.") || text.starts_with("mesh.");
    (1..=limits::NAMESPACE_CHARS_MAX).contains(&text.len()) && text.bytes().all(plain) && !reserved
}

fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    (1..=limits::LABEL_CHARS_MAX).contains(&text.len()) && text.bytes().all(plain)
}
