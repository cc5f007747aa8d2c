//! Adds and removes routes in the text of the file that has the others.

use std::path::Path;

use super::entries::with_entry;
use super::{Edit, EditRefused, edit_by_hand, lines, read_sources, text_with_spans};
use crate::config::find::Environment;
use crate::config::node::{ConfigNode, NodeKind};
use crate::config::sources::Drafts;

const LIST: &str = "routes";

/// Routes events of one type from one plugin to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRoute {
    pub from: String,
    pub event_type: String,
    pub to: String,
}

impl EventRoute {
    fn members(&self) -> [(&str, &str); 3] {
        [
            ("from", &self.from),
            ("event_type", &self.event_type),
            ("to", &self.to),
        ]
    }

    fn is(&self, node: &ConfigNode) -> bool {
        let same = |(key, value)| node.get(key).and_then(ConfigNode::text) == Some(value);
        self.members().into_iter().all(same)
    }
}

pub fn add_route(
    path: &Path,
    environment: &Environment,
    route: &EventRoute,
) -> Result<Edit, EditRefused> {
    let merged = read_sources(path, environment, &Drafts::new())?.merged;
    let routes = routes(&merged);
    if routes.iter().any(|known| route.is(known)) {
        return Err(EditRefused::new("this route exists already", ""));
    }
    let file = routes.first().map_or(path, |first| &first.at.file);
    let (text, spans) = text_with_spans(file)?;
    // A JSON string is valid YAML.
    let lines = route.members();
    let lines = lines.map(|(key, value)| format!("{key}: {}\n", serde_json::Value::from(value)));
    let changed = with_entry(&text, &spans, LIST, &lines.concat());
    let unfit = || {
        edit_by_hand(&format!(
            "`{LIST}` in {} is not a block-style list",
            file.display()
        ))
    };
    let mut edit = Edit::default();
    edit.writes
        .insert(file.to_owned(), changed.ok_or_else(unfit)?.into_bytes());
    Ok(edit)
}

pub fn remove_route(
    path: &Path,
    environment: &Environment,
    route: &EventRoute,
) -> Result<Edit, EditRefused> {
    let merged = read_sources(path, environment, &Drafts::new())?.merged;
    let routes = routes(&merged);
    let found = routes.iter().find(|known| route.is(known));
    let found =
        found.ok_or_else(|| EditRefused::new("no such route exists", "see `config route list`"))?;
    let file = &found.at.file;
    // The index of the route among those of its file.
    let mut of_file = routes.iter().filter(|known| known.at.file == *file);
    let index = of_file.position(|known| route.is(known));
    let (text, spans) = text_with_spans(file)?;
    let unfit = || edit_by_hand("the route is not on lines of its own");
    let items = spans.field(LIST).map(|field| field.value.items());
    let item = index
        .and_then(|index| items?.get(index))
        .ok_or_else(unfit)?;
    let dash = lines::dash_of(&text, item.bytes.start).ok_or_else(unfit)?;
    let start = lines::start_of(&text, item.bytes.start);
    let end = lines::block_end(&text, item.bytes.start, dash);
    let changed = format!("{}{}", &text[..start], &text[end..]);
    let mut edit = Edit::default();
    edit.writes.insert(file.to_path_buf(), changed.into_bytes());
    Ok(edit)
}

fn routes(merged: &ConfigNode) -> &[ConfigNode] {
    match merged.get(LIST).map(|list| &list.kind) {
        Some(NodeKind::List(items)) => items,
        _ => &[],
    }
}
