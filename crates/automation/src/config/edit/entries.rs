//! Finds and adds entries of `tokens` in the text of their file.

use std::path::{Path, PathBuf};

use super::{Edit, EditRefused, edit_by_hand, lines, read_sources, text_with_spans};
use crate::config::find::{self, Environment};
use crate::config::node::{ConfigNode, NodeKind};
use crate::config::sources::Drafts;
use crate::config::yaml;

/// The file that new tokens are written to.
pub(super) const FILE: &str = "tokens.yaml";

pub(super) struct FoundToken {
    pub(super) file: PathBuf,
    pub(super) text: String,
    pub(super) item: yaml::ValueSpan,
    pub(super) scopes_file: Option<PathBuf>,
}

pub(super) fn find_token(
    path: &Path,
    environment: &Environment,
    name: &str,
) -> Result<FoundToken, EditRefused> {
    let merged = read_sources(path, environment, &Drafts::new())?.merged;
    let tokens: &[ConfigNode] = match merged.get("tokens").map(|tokens| &tokens.kind) {
        Some(NodeKind::List(items)) => items,
        _ => &[],
    };
    let text_of = |node: &ConfigNode, key: &str| {
        let value = node.get(key).and_then(ConfigNode::text);
        value.map(str::to_owned)
    };
    let token = tokens
        .iter()
        .find(|token| text_of(token, "name").as_deref() == Some(name));
    let Some(token) = token else {
        let message = format!("no token has the name `{name}`");
        return Err(EditRefused::new(message, "see `config token list`"));
    };
    let dir = path.parent().unwrap_or(path);
    let scopes_file = text_of(token, "scopes_file");
    let scopes_file = scopes_file.map(|file| find::resolve(&file, dir, environment));
    let file = token.at.file.to_path_buf();
    let (text, mut spans) = text_with_spans(&file)?;
    let item = take_entry(&mut spans, &text, name);
    let item =
        item.ok_or_else(|| edit_by_hand(&format!("`{name}` is not in {}", file.display())))?;
    Ok(FoundToken {
        file,
        text,
        item,
        scopes_file,
    })
}

fn is_named(item: &yaml::ValueSpan, text: &str, name: &str) -> bool {
    let written = item
        .field("name")
        .and_then(|field| text.get(field.value.bytes.clone()));
    written.is_some_and(|written| written.trim_matches(['"', '\'']) == name)
}

pub(super) fn entry<'s>(
    spans: &'s yaml::ValueSpan,
    text: &str,
    name: &str,
) -> Option<&'s yaml::ValueSpan> {
    let items = spans.field("tokens")?.value.items();
    items.iter().find(|item| is_named(item, text, name))
}

fn take_entry(spans: &mut yaml::ValueSpan, text: &str, name: &str) -> Option<yaml::ValueSpan> {
    let yaml::Shape::Map(fields) = &mut spans.shape else {
        return None;
    };
    let tokens = fields.iter_mut().find(|field| field.key == "tokens")?;
    let yaml::Shape::List(items) = &mut tokens.value.shape else {
        return None;
    };
    let index = items.iter().position(|item| is_named(item, text, name))?;
    Some(items.swap_remove(index))
}

/// The lines of a list item whose dash is at column `indent`.
pub(super) fn item(entry: &str, indent: usize) -> String {
    let spaces = " ".repeat(indent);
    let numbered = entry.lines().zip(0..);
    let lines = numbered.map(|(line, index)| match index {
        0 => format!("{spaces}- {line}\n"),
        _ => format!("{spaces}  {line}\n"),
    });
    lines.collect()
}

/// The text with one more entry at the start of the list with this name.
pub(super) fn with_entry(
    text: &str,
    spans: &yaml::ValueSpan,
    list: &str,
    entry: &str,
) -> Option<String> {
    let Some(found) = spans.field(list) else {
        return Some(lines::appended(
            text,
            &format!("{list}:\n{}", item(entry, 2)),
        ));
    };
    match &found.value.shape {
        yaml::Shape::List(items) => {
            let first = items.first()?.bytes.start;
            let dash = lines::dash_of(text, first)?;
            let at = lines::start_of(text, first);
            Some(format!(
                "{}{}{}",
                &text[..at],
                item(entry, dash),
                &text[at..]
            ))
        }
        yaml::Shape::Null => {
            let at = lines::block_end(text, found.start, 0);
            let head = lines::appended(&text[..at], &item(entry, 2));
            Some(format!("{head}{}", &text[at..]))
        }
        yaml::Shape::Scalar | yaml::Shape::Map(_) => None,
    }
}

/// Makes sure that the configuration includes `file`.
pub(super) fn include(
    path: &Path,
    environment: &Environment,
    file: &Path,
    edit: &mut Edit,
) -> Result<(), EditRefused> {
    let read = read_sources(path, environment, &Drafts::new())?.files;
    if read.iter().any(|source| source.path == *file) {
        return Ok(());
    }
    let (text, spans) = text_with_spans(path)?;
    let shown = path.display();
    let text = match spans.field("include") {
        None => lines::appended(&text, &format!("include:\n  - {FILE}\n")),
        Some(field) => {
            let first = field.value.items().first().map(|item| item.bytes.start);
            let place = first.and_then(|at| Some((at, lines::dash_of(&text, at)?)));
            let Some((first, dash)) = place else {
                let fix = format!("add `{FILE}` to `include` in {shown}, then try again");
                return Err(EditRefused::new(
                    format!("{shown} does not include {FILE}"),
                    fix,
                ));
            };
            // Before the others, so that existing files still override it.
            let at = lines::start_of(&text, first);
            let line = format!("{}- {FILE}\n", " ".repeat(dash));
            format!("{}{line}{}", &text[..at], &text[at..])
        }
    };
    edit.writes.insert(path.to_owned(), text.into_bytes());
    Ok(())
}
