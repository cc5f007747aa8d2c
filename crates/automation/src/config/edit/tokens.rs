//! Creates, changes and deletes tokens and their scope files.
//!
//! The value of a token is never written: `tokens.yaml` names the variable that holds it. Entries are changed in the text of
//! their file, so that the others keep their comments.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::entries::{FILE, entry, find_token, include, item, with_entry};
use super::{Edit, EditRefused, edit_by_hand, lines, read_sources, text_with_spans};
use crate::config::find::Environment;
use crate::config::interpolate;
use crate::config::model::{Config, TokenEntry};
use crate::config::node::ConfigNode;
use crate::config::registry::Scopes;
use crate::config::sources::{self, Drafts};

#[derive(Debug)]
pub struct NewToken<'a> {
    pub name: &'a str,
    pub scopes: Vec<String>,
    pub description: Option<&'a str>,
    pub now: Timestamp,
}

/// The public properties of a token, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenInfo {
    pub name: String,
    /// The variable that holds the value, if the file names one.
    pub variable: Option<String>,
    /// Whether the value is set.
    pub is_set: bool,
    pub scopes_file: Option<PathBuf>,
    pub scopes: Vec<String>,
    pub description: Option<String>,
    pub created_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeChange {
    /// Updates only the hash.
    Keep,
    Add(Vec<String>),
    Remove(Vec<String>),
    Set(Vec<String>),
}

/// All tokens in the order of the files.
pub fn list(config: &Config) -> Vec<TokenInfo> {
    config.tokens.iter().map(info).collect()
}

fn info(token: &TokenEntry) -> TokenInfo {
    let scopes = token.scopes_file.as_deref().map(scopes_of);
    let scopes = scopes.and_then(Result::ok).map(|(_, scopes)| scopes);
    let placeholder = text_with_spans(&token.at.file)
        .ok()
        .and_then(|(text, spans)| {
            let key = entry(&spans, &text, &token.name)?.field("key")?;
            let written = text.get(key.value.bytes.clone())?;
            interpolate::unfilled(written).next().map(str::to_owned)
        });
    TokenInfo {
        name: token.name.clone(),
        variable: placeholder,
        is_set: interpolate::unfilled(token.key.expose()).next().is_none(),
        scopes_file: token.scopes_file.clone(),
        scopes: scopes.unwrap_or_default(),
        description: token.description.clone(),
        created_at: token.created_at.clone(),
    }
}

/// Scopes that allow nothing, each with a suggestion.
pub fn unknown_scopes(scopes: &[String]) -> Vec<(String, Option<&'static str>)> {
    let scopes = Scopes::new(scopes.to_vec());
    let unknown = scopes.unknown();
    unknown
        .map(|(scope, near)| (scope.to_owned(), near))
        .collect()
}

/// Plans a new token; returns the variable that must hold its value.
pub fn create(
    path: &Path,
    environment: &Environment,
    token: &NewToken<'_>,
) -> Result<(Edit, String), EditRefused> {
    let name = token.name;
    check_scopes(&token.scopes)?;
    let variable = new_variable(path, environment, name)?;
    let dir = path.parent().unwrap_or(path);
    let relative = format!("scopes/{name}.json");
    let created_at = format!("{:.0}", token.now);
    let body = scope_file(&token.scopes, token.description, &created_at);
    let hash = sources::hash(&body);
    let entry = format!(
        "name: {name}\nkey: ${{{variable}}}\nscopes_file: {relative}\nscopes_hash: blake3:{hash}\ncreated_at: {created_at}\n{}",
        description_line(token.description)
    );
    let mut edit = Edit::default();
    let scopes_path = dir.join(relative);
    if scopes_path.exists() {
        let message = format!("{} exists already", scopes_path.display());
        return Err(EditRefused::new(
            message,
            "remove it, or choose another name",
        ));
    }
    edit.writes.insert(scopes_path, body);
    add_entry(path, environment, &entry, &mut edit)?;
    Ok((edit, variable))
}

/// Plans a new secret: a token without scopes, which signs webhooks and opens no API. Returns the variable that must hold its
/// value.
pub fn create_secret(
    path: &Path,
    environment: &Environment,
    name: &str,
    description: Option<&str>,
    now: Timestamp,
) -> Result<(Edit, String), EditRefused> {
    let variable = new_variable(path, environment, name)?;
    let entry = format!(
        "name: {name}\nkey: ${{{variable}}}\ncreated_at: {now:.0}\n{}",
        description_line(description)
    );
    let mut edit = Edit::default();
    add_entry(path, environment, &entry, &mut edit)?;
    Ok((edit, variable))
}

fn description_line(description: Option<&str>) -> String {
    let description = description.map(Value::from);
    let line = description.map(|text| format!("description: {text}\n"));
    line.unwrap_or_default()
}

/// The variable of a token with a new name.
fn new_variable(path: &Path, environment: &Environment, name: &str) -> Result<String, EditRefused> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(fits) {
        let fix = "use letters, digits, `-` and `_`";
        return Err(EditRefused::new(
            format!("`{name}` is not a valid token name"),
            fix,
        ));
    }
    let merged = read_sources(path, environment, &Drafts::new())?.merged;
    let known = merged.get("tokens").map(ConfigNode::json);
    let known = known.as_ref().and_then(Value::as_array);
    let mut known = known.into_iter().flatten();
    if known.any(|entry| entry["name"] == name) {
        let fix = "choose another name, or delete the existing token";
        return Err(EditRefused::new(
            format!("the token `{name}` exists already"),
            fix,
        ));
    }
    Ok(variable_of(name))
}

/// Adds an entry to `tokens.yaml`, and that file to the configuration.
fn add_entry(
    path: &Path,
    environment: &Environment,
    entry: &str,
    edit: &mut Edit,
) -> Result<(), EditRefused> {
    let dir = path.parent().unwrap_or(path);
    let file = dir.join(FILE);
    let text = if file.is_file() {
        let (text, spans) = text_with_spans(&file)?;
        with_entry(&text, &spans, "tokens", entry).ok_or_else(|| {
            edit_by_hand(&format!(
                "`tokens` in {} is not a block-style list",
                file.display()
            ))
        })?
    } else {
        format!("tokens:\n{}", item(entry, 2))
    };
    edit.writes.insert(file.clone(), text.into_bytes());
    include(path, environment, &file, edit)
}

/// Plans to delete a token and its scope file.
pub fn delete(path: &Path, environment: &Environment, name: &str) -> Result<Edit, EditRefused> {
    let found = find_token(path, environment, name)?;
    let item = &found.item.bytes;
    let unfit = || edit_by_hand(&format!("the token `{name}` is not on lines of its own"));
    let dash = lines::dash_of(&found.text, item.start).ok_or_else(unfit)?;
    let start = lines::start_of(&found.text, item.start);
    let end = lines::block_end(&found.text, item.start, dash);
    let text = format!("{}{}", &found.text[..start], &found.text[end..]);
    let mut edit = Edit::default();
    edit.writes.insert(found.file, text.into_bytes());
    edit.removes.extend(found.scopes_file);
    Ok(edit)
}

/// Plans other scopes for a token, or a new hash for its unchanged scope file.
pub fn change_scopes(
    path: &Path,
    environment: &Environment,
    name: &str,
    change: &ScopeChange,
) -> Result<Edit, EditRefused> {
    let found = find_token(path, environment, name)?;
    let Some(scopes_file) = found.scopes_file else {
        let message = format!("`{name}` is only a named secret and has no scope file");
        return Err(EditRefused::new(
            message,
            "create a token with `config token create`",
        ));
    };
    let (mut document, mut scopes) = scopes_of(&scopes_file)?;
    match change {
        ScopeChange::Keep => {}
        ScopeChange::Add(more) => {
            check_scopes(more)?;
            scopes.extend(more.iter().cloned());
        }
        ScopeChange::Remove(fewer) => {
            if let Some(absent) = fewer.iter().find(|scope| !scopes.contains(scope)) {
                let held = format!("it has {}", scopes.join(", "));
                return Err(EditRefused::new(
                    format!("`{name}` has no scope `{absent}`"),
                    held,
                ));
            }
            scopes.retain(|scope| !fewer.contains(scope));
        }
        ScopeChange::Set(others) => {
            check_scopes(others)?;
            scopes.clone_from(others);
        }
    }
    let mut kept = Vec::new();
    for scope in scopes {
        if !kept.contains(&scope) {
            kept.push(scope);
        }
    }
    let mut edit = Edit::default();
    let bytes = if *change == ScopeChange::Keep {
        sources::read(&scopes_file).map_err(|error| unreadable(&scopes_file, &error.to_string()))?
    } else {
        match document.as_object_mut() {
            Some(fields) => {
                fields.insert("scopes".to_owned(), json!(kept));
            }
            None => document = json!(kept),
        }
        let bytes = pretty(&document);
        edit.writes.insert(scopes_file, bytes.clone());
        bytes
    };
    let hash = format!("blake3:{}", sources::hash(&bytes));
    let unfit = || {
        edit_by_hand(&format!(
            "the `scopes_hash` of `{name}` is not in a line of its own"
        ))
    };
    let text = &found.text;
    let text = if let Some(field) = found.item.field("scopes_hash") {
        let old = field.value.bytes.clone();
        format!("{}{hash}{}", &text[..old.start], &text[old.end..])
    } else {
        let field = found.item.field("scopes_file").ok_or_else(unfit)?;
        let indent = field.start - lines::start_of(text, field.start);
        let at = lines::block_end(text, field.start, indent);
        let line = format!("{}scopes_hash: {hash}\n", " ".repeat(indent));
        format!("{}{line}{}", lines::appended(&text[..at], ""), &text[at..])
    };
    edit.writes.insert(found.file, text.into_bytes());
    Ok(edit)
}

fn check_scopes(scopes: &[String]) -> Result<(), EditRefused> {
    if scopes.is_empty() {
        let fix = "name at least one, such as `plugin:ro`";
        return Err(EditRefused::new("the list of scopes is empty", fix));
    }
    match unknown_scopes(scopes).first() {
        None => Ok(()),
        Some((scope, near)) => {
            let area = near.unwrap_or("plugin");
            let fix = format!("write `{area}:ro` or `{area}:rw`");
            Err(EditRefused::new(
                format!("the scope `{scope}` allows nothing"),
                fix,
            ))
        }
    }
}

/// The contents of a scope file, and the scopes in it.
fn scopes_of(file: &Path) -> Result<(Value, Vec<String>), EditRefused> {
    let bytes = sources::read(file).map_err(|error| unreadable(file, &error.to_string()))?;
    let document: Value =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(file, &error.to_string()))?;
    let listed = document.get("scopes").unwrap_or(&document);
    let scopes = serde_json::from_value(listed.clone());
    let scopes = scopes.map_err(|_| unreadable(file, "it contains no list of scopes"))?;
    Ok((document, scopes))
}

fn unreadable(file: &Path, reason: &str) -> EditRefused {
    let message = format!("the scope file {} cannot be read: {reason}", file.display());
    EditRefused::new(message, r#"write {"scopes": ["plugin:ro"]}"#)
}

fn scope_file(scopes: &[String], description: Option<&str>, created_at: &str) -> Vec<u8> {
    let mut metadata = json!({ "created_at": created_at });
    if let Some(description) = description {
        metadata["description"] = json!(description);
    }
    pretty(&json!({ "scopes": scopes, "metadata": metadata }))
}

fn pretty(document: &Value) -> Vec<u8> {
    format!("{document:#}\n").into_bytes()
}

/// The token `admin-cli` uses the variable `ADMIN_CLI_API_KEY`.
fn variable_of(name: &str) -> String {
    let upper = name.to_ascii_uppercase().replace('-', "_");
    let prefix = if upper.starts_with(|c: char| c.is_ascii_digit()) {
        "TOKEN_"
    } else {
        ""
    };
    format!("{prefix}{upper}_API_KEY")
}
