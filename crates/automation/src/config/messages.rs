//! `beam`: the messages of agents that become events.

use std::cell::RefCell;

use consign_kernel::limits;

use super::fields::SectionReader;
use super::intents::is_goal;
use super::model::ReceivedMessages;
use super::problem::ConfigProblems;
use crate::beam_name::is_beam_id;

/// The messages of an agent are claimed in the namespace `beam.AGENT.ORG`, which is ten characters shorter than its Beam-ID.
const AGENT_CHARS_MAX: usize = limits::NAMESPACE_CHARS_MAX + 10;
/// The type of the event, unless it is configured.
pub(super) const EVENT_USUAL: &str = "message.received";

pub(super) fn received(
    mut fields: SectionReader<'_>,
    report: &RefCell<ConfigProblems>,
) -> Vec<ReceivedMessages> {
    let mut found: Vec<ReceivedMessages> = Vec::new();
    for (node, index) in fields.list("receive").iter().zip(0..) {
        let path = fields.path_of(format!("receive[{index}]"));
        let mut fields = SectionReader::top(node, path.clone(), report);
        let agent = agent(&mut fields);
        let intent = intent(&mut fields);
        let event = fields.text("event");
        let at = fields.at.clone();
        let same = |known: &ReceivedMessages| {
            Some(&known.agent) == agent.as_ref() && Some(&known.intent) == intent.as_ref()
        };
        if found.iter().any(same) {
            let message = format!("`{path}` has the same `agent` and `intent` as another entry");
            let fix = "remove one of them; several pipelines may have the same `on`";
            fields.error(&at, message, fix);
        }
        fields.finish();
        if let (Some(agent), Some(intent)) = (agent, intent) {
            found.push(ReceivedMessages {
                at,
                agent,
                intent,
                event: event.unwrap_or_else(|| EVENT_USUAL.to_owned()),
            });
        }
    }
    fields.finish();
    found
}

fn agent(fields: &mut SectionReader<'_>) -> Option<String> {
    let agent = fields.needed_text("agent")?;
    if !is_beam_id(&agent) {
        let message = format!("`{}` is not a Beam-ID", fields.path_of("agent"));
        let at = fields.position_of("agent");
        fields.error(&at, message, "write agent@org.beam.directory");
        return None;
    }
    if agent.len() > AGENT_CHARS_MAX {
        let path = fields.path_of("agent");
        let message = format!("`{path}` is longer than {AGENT_CHARS_MAX} characters");
        let at = fields.position_of("agent");
        fields.error(
            &at,
            message,
            "receive the messages of an agent with a shorter name",
        );
        return None;
    }
    Some(agent)
}

fn intent(fields: &mut SectionReader<'_>) -> Option<String> {
    let intent = fields.needed_text("intent")?.trim().to_owned();
    if !is_goal(&intent) {
        let message = format!("`{}` is not a valid intent", fields.path_of("intent"));
        let fix = format!("write 1 to {} characters", limits::GOAL_CHARS_MAX);
        fields.error(&fields.position_of("intent"), message, fix);
        return None;
    }
    Some(intent)
}
