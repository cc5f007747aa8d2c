//! `tokens` and `api.auth.tokens`: named secrets, and bearer tokens with their scope files.

use std::cell::RefCell;
use std::path::Path;

use serde::Deserialize;

use super::fields::SectionReader;
use super::find::{self, Environment};
use super::interpolate;
use super::model::{ConfigSecret, TokenEntry};
use super::node::ConfigNode;
use super::problem::{ConfigProblems, SourcePosition};
use super::registry::{Scopes, TokenRegistry};
use super::sources::{self, Drafts, SourceFile};

/// The entries of `tokens`, the registry and the scope files.
#[derive(Default)]
pub(super) struct TokenSet {
    pub entries: Vec<TokenEntry>,
    pub registry: TokenRegistry,
    pub scope_files: Vec<SourceFile>,
}

impl TokenSet {
    /// The secret with this name. A missing entry or value is a problem.
    pub(super) fn named(
        &self,
        name: &str,
        key: &str,
        at: &SourcePosition,
        report: &RefCell<ConfigProblems>,
    ) -> Option<ConfigSecret> {
        let Some(token) = self.entries.iter().find(|token| token.name == name) else {
            let message =
                format!("`{key}` names the secret `{name}`, which `tokens` does not have");
            let fix = format!("add an entry with `name: {name}` to tokens.yaml");
            report.borrow_mut().error(at, message, fix);
            return None;
        };
        is_filled(
            &token.key,
            &format!("the key of token `{name}`"),
            &token.at,
            report,
        )
        .then(|| token.key.clone())
    }
}

/// Reads `tokens` and the scope files that they name.
pub(super) fn entries(
    nodes: &[ConfigNode],
    dir: &Path,
    environment: &Environment,
    drafts: &Drafts,
    report: &RefCell<ConfigProblems>,
) -> TokenSet {
    let mut tokens = TokenSet::default();
    for (node, index) in nodes.iter().zip(0..) {
        let mut fields = SectionReader::top(node, format!("tokens[{index}]"), report);
        let name = fields.needed_text("name");
        let key = fields.needed_text("key");
        let scopes_file = fields.text("scopes_file");
        let scopes_hash = fields.text("scopes_hash");
        let created_at = fields.text("created_at");
        let description = fields.text("description");
        let at = fields.at.clone();
        fields.finish();
        let (Some(name), Some(key)) = (name, key.map(ConfigSecret::new)) else {
            continue;
        };
        if tokens.entries.iter().any(|known| known.name == name) {
            let message = format!("the token `{name}` is defined twice");
            report
                .borrow_mut()
                .error(&at, message, "give each its own name");
        }
        let scopes_file = scopes_file.map(|file| find::resolve(&file, dir, environment));
        if let Some(file) = &scopes_file {
            let scopes = scopes_in(
                file,
                drafts,
                scopes_hash.as_deref(),
                &mut tokens.scope_files,
                &at,
                report,
            );
            if is_filled(&key, &format!("the key of token `{name}`"), &at, report) {
                tokens.registry.add(&name, &key, scopes);
            }
        }
        tokens.entries.push(TokenEntry {
            at,
            name,
            key,
            scopes_file,
            description,
            created_at,
        });
    }
    tokens
}

/// Adds `api.auth.tokens` to the registry.
pub(super) fn api_tokens(
    nodes: &[ConfigNode],
    tokens: &mut TokenSet,
    report: &RefCell<ConfigProblems>,
) {
    for (node, index) in nodes.iter().zip(0..) {
        let path = format!("api.auth.tokens[{index}]");
        let mut fields = SectionReader::top(node, path.clone(), report);
        let literal = fields.text("token");
        let named = fields.text("secret_ref");
        let name = fields.text("name").unwrap_or_else(|| path.clone());
        let scopes = Scopes::new(fields.texts("scopes"));
        fields.ignore(&["description", "created_at"]);
        let at = fields.at.clone();
        report_unknown_scopes(&scopes, &at, report);
        let secret = match (literal, named) {
            (Some(literal), None) => {
                let secret = ConfigSecret::new(literal);
                is_filled(&secret, &format!("`{path}.token`"), &at, report).then_some(secret)
            }
            (None, Some(named)) => tokens.named(&named, &format!("{path}.secret_ref"), &at, report),
            _ => {
                let message = format!("`{path}` needs either `token` or `secret_ref`");
                fields.error(&at, message, "");
                None
            }
        };
        fields.finish();
        if let Some(secret) = secret {
            tokens.registry.add(&name, &secret, Some(scopes));
        }
    }
}

/// Whether a secret has its value; otherwise reports the variable.
fn is_filled(
    secret: &ConfigSecret,
    what: &str,
    at: &SourcePosition,
    report: &RefCell<ConfigProblems>,
) -> bool {
    let missing = interpolate::unfilled(secret.expose()).next();
    if let Some(name) = missing {
        let message = format!("{what} needs the variable `{name}`, which is not set");
        let fix = format!("set {name} in the environment of the service");
        report.borrow_mut().error(at, message, fix);
    }
    missing.is_none()
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ScopeFile {
    Bare(Vec<String>),
    Full { scopes: Vec<String> },
}

/// The scopes of a file, if it matches the hash of the token.
fn scopes_in(
    file: &Path,
    drafts: &Drafts,
    expected: Option<&str>,
    read: &mut Vec<SourceFile>,
    at: &SourcePosition,
    report: &RefCell<ConfigProblems>,
) -> Option<Scopes> {
    let mut problems = report.borrow_mut();
    let shown = file.display();
    let bytes = match sources::read_or_draft(file, drafts) {
        Ok(bytes) => bytes,
        Err(error) => {
            problems.error(
                at,
                format!("cannot read the scope file {shown}: {error}"),
                "",
            );
            return None;
        }
    };
    let hash = sources::hash(&bytes);
    let matches = expected.is_none_or(|expected| {
        let expected = expected.strip_prefix("blake3:").unwrap_or(expected);
        expected.eq_ignore_ascii_case(&hash)
    });
    if expected.is_none() {
        let fix = format!("add `scopes_hash: blake3:{hash}`");
        problems.warn(
            at,
            "the token has a `scopes_file` and no `scopes_hash`",
            fix,
        );
    }
    if !read.iter().any(|source| source.path == file) {
        let path = file.to_owned();
        read.push(SourceFile { path, hash });
    }
    if !matches {
        let message = format!("the scope file {shown} does not match the token's `scopes_hash`");
        let fix = "restore the file, or put the hash of the new one into the token";
        problems.error(at, message, fix);
        return None;
    }
    let scopes = match serde_json::from_slice(&bytes) {
        Ok(ScopeFile::Bare(scopes) | ScopeFile::Full { scopes }) => Scopes::new(scopes),
        Err(_) => {
            let message = format!("the scope file {shown} contains no scopes");
            let fix = r#"write {"scopes": ["plugin:ro"]}"#;
            problems.error(at, message, fix);
            return None;
        }
    };
    drop(problems);
    report_unknown_scopes(&scopes, at, report);
    Some(scopes)
}

fn report_unknown_scopes(scopes: &Scopes, at: &SourcePosition, report: &RefCell<ConfigProblems>) {
    for (scope, near) in scopes.unknown() {
        let message = format!("the scope `{scope}` allows nothing");
        let fix = match near {
            Some(area) => format!("write `{area}:ro` or `{area}:rw`"),
            None => String::new(),
        };
        report.borrow_mut().notice(at, message, fix);
    }
}
