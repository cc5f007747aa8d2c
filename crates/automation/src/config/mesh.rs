//! `mesh`: posts to topics and items of named queues that become events.

use std::cell::RefCell;

use super::fields::SectionReader;
use super::messages::EVENT_USUAL;
use super::model::{MeshFeed, MeshSource, ReceivedItems};
use super::problem::ConfigProblems;
use crate::mesh_name::{is_mesh_slug, is_queue_name, is_topic_name};

const NEEDED: &str = "write `topic` or `queue`, and not both";

pub(super) fn received(
    mut fields: SectionReader<'_>,
    report: &RefCell<ConfigProblems>,
) -> Vec<ReceivedItems> {
    let mut found: Vec<ReceivedItems> = Vec::new();
    for (node, index) in fields.list("receive").iter().zip(0..) {
        let path = fields.path_of(format!("receive[{index}]"));
        let mut fields = SectionReader::top(node, path.clone(), report);
        let source = source(&mut fields, &path);
        let event = fields.text("event");
        let at = fields.at.clone();
        if found
            .iter()
            .any(|known| Some(&known.source) == source.as_ref())
        {
            let message = format!("`{path}` has the same source as another entry");
            let fix = "remove one of them; several pipelines may have the same `on`";
            fields.error(&at, message, fix);
        }
        fields.finish();
        if let Some(source) = source {
            found.push(ReceivedItems {
                at,
                source,
                event: event.unwrap_or_else(|| EVENT_USUAL.to_owned()),
            });
        }
    }
    fields.finish();
    found
}

fn source(fields: &mut SectionReader<'_>, path: &str) -> Option<MeshSource> {
    let mesh = fields.needed_text("mesh");
    let mesh = mesh.and_then(|mesh| {
        let fix = "write the short name of the mesh, 1 to 64 of a-z, 0-9 and -";
        valid(fields, "mesh", mesh, is_mesh_slug, fix)
    });
    let (topic, queue) = (fields.text("topic"), fields.text("queue"));
    let feed = match (topic, queue) {
        (Some(topic), None) => {
            let topic = topic.strip_prefix('#').unwrap_or(&topic).to_owned();
            let fix =
                "write the name of the topic, 1 to 64 letters, digits, `-`, `_`, `.`, `/` or `:`";
            valid(fields, "topic", topic, is_topic_name, fix).map(MeshFeed::Topic)
        }
        (None, Some(queue)) => {
            let queue = queue.strip_prefix("queue:").unwrap_or(&queue).to_owned();
            let fix =
                "write the name of the queue, 1 to 128 letters, digits, `-`, `_`, `.`, `/` or `:`";
            valid(fields, "queue", queue, is_queue_name, fix).map(MeshFeed::Queue)
        }
        (None, None) => {
            let at = fields.at.clone();
            fields.error(&at, format!("`{path}` has no source"), NEEDED);
            None
        }
        (Some(_), Some(_)) => {
            let at = fields.position_of("queue");
            fields.error(&at, format!("`{path}` has two sources"), NEEDED);
            None
        }
    };
    Some(MeshSource {
        mesh: mesh?,
        feed: feed?,
    })
}

fn valid(
    fields: &SectionReader<'_>,
    key: &'static str,
    text: String,
    is_valid: fn(&str) -> bool,
    fix: &str,
) -> Option<String> {
    if is_valid(&text) {
        return Some(text);
    }
    let message = format!("`{}` is not a valid name", fields.path_of(key));
    fields.error(&fields.position_of(key), message, fix);
    None
}
