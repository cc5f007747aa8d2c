//! The `manifest.yaml` of a plugin.
//!
//! A [`PluginManifest`] exists only if every rule holds, so no caller checks again. [`super::trust`] decides whether the entrypoint is
//! trusted.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::command::{PluginCommand, RawCommands};
use super::keys;

/// A longer file is refused.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;

const SPEC: &str = "ductile.plugin";
const VERSION: i64 = 1;
/// The version of the messages between the runtime and a plugin.
pub const PROTOCOL: i64 = 2;
const STOPWATCH_SUBS: i64 = 32;
const STOPWATCH_SUBS_MAX: i64 = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct PluginManifest {
    pub name: String,
    pub version: Option<String>,
    pub description: Option<String>,
    /// Relative to the directory of the plugin, and without `..`.
    pub entrypoint: String,
    /// False: one process at a time, unless the operator configures more.
    pub concurrency_safe: bool,
    /// At least one, in the order of the file.
    pub commands: Vec<PluginCommand>,
    pub config_required: Vec<String>,
    pub config_optional: Vec<String>,
    pub fact_outputs: Vec<FactOutput>,
    pub stopwatch_subs_max: u16,
}

impl PluginManifest {
    pub fn command(&self, name: &str) -> Option<&PluginCommand> {
        self.commands.iter().find(|command| command.name == name)
    }
}

/// After a success of `command`, its `state_updates` are stored as a fact of this type and replace the whole state of the plugin.
/// This is the only view; its name `mirror_object` is optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactOutput {
    pub command: String,
    pub fact_type: String,
}

pub(super) const FREE_NAME: &str =
    "a name that does not start with `core.` and has no control characters";

/// Why a manifest is refused. The caller adds the file name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("cannot be read: {0}")]
    Read(String),
    #[error("is not a valid manifest: {0}")]
    Yaml(String),
    #[error("`{key}` is missing; write {fix}")]
    Missing {
        key: &'static str,
        fix: &'static str,
    },
    #[error("`{key}` is `{found}`; write {fix}")]
    Unfit {
        key: String,
        found: String,
        fix: &'static str,
    },
}

impl Error {
    pub(super) fn unfit(key: impl Into<String>, found: &str, fix: &'static str) -> Self {
        Self::Unfit {
            key: key.into(),
            found: found.to_owned(),
            fix,
        }
    }
}

/// The manifest and its unknown keys.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedManifest {
    pub manifest: PluginManifest,
    pub unknown_keys: Vec<String>,
}

pub fn parse(text: &str) -> Result<ParsedManifest, Error> {
    let raw: Option<RawManifest> = from_yaml(text)?;
    let manifest = checked(raw.unwrap_or_default())?;
    // Parsed again without types: a typed parser drops unknown keys, and one that collects them takes a version such as 1.10 for
    // a number.
    let unknown_keys = keys::unknown(&from_yaml(text)?);
    Ok(ParsedManifest {
        manifest,
        unknown_keys,
    })
}

/// Limits far above any real manifest.
fn from_yaml<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 50_000,
            max_nodes: 20_000,
            max_depth: 32,
            max_documents: 1,
            max_aliases: 200,
            max_anchors: 200,
            max_merge_keys: 100,
            max_recorded_anchor_events: 50_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Error::Yaml(error.to_string()))
}

#[derive(Default, Deserialize)]
struct RawManifest {
    manifest_spec: Option<String>,
    manifest_version: Option<i64>,
    name: Option<String>,
    version: Option<String>,
    protocol: Option<i64>,
    entrypoint: Option<String>,
    description: Option<String>,
    concurrency_safe: Option<bool>,
    commands: Option<RawCommands>,
    config_keys: Option<RawConfigKeys>,
    fact_outputs: Option<Vec<RawFactOutput>>,
    stopwatch: Option<RawStopwatch>,
}

#[derive(Default, Deserialize)]
struct RawConfigKeys {
    required: Option<Vec<String>>,
    optional: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawStopwatch {
    max_subs: Option<i64>,
}

#[derive(Deserialize)]
struct RawFactOutput {
    when: Option<RawWhen>,
    from: Option<String>,
    fact_type: Option<String>,
    compatibility_view: Option<String>,
}

#[derive(Deserialize)]
struct RawWhen {
    command: Option<String>,
}

fn checked(raw: RawManifest) -> Result<PluginManifest, Error> {
    let spec = raw.manifest_spec.ok_or(Error::Missing {
        key: "manifest_spec",
        fix: "`manifest_spec: ductile.plugin`",
    })?;
    if spec != SPEC {
        return Err(Error::unfit("manifest_spec", &spec, "`ductile.plugin`"));
    }
    let version = raw.manifest_version.ok_or(Error::Missing {
        key: "manifest_version",
        fix: "`manifest_version: 1`",
    })?;
    if version != VERSION {
        let fix = "1, the only supported version";
        return Err(Error::unfit("manifest_version", &version.to_string(), fix));
    }
    let protocol = raw.protocol.ok_or(Error::Missing {
        key: "protocol",
        fix: "`protocol: 2`",
    })?;
    if protocol != PROTOCOL {
        let fix = "2, the only supported protocol";
        return Err(Error::unfit("protocol", &protocol.to_string(), fix));
    }
    let name = filled(raw.name).ok_or(Error::Missing {
        key: "name",
        fix: "the name that configurations use",
    })?;
    if !is_free(&name) {
        return Err(Error::unfit("name", &name, FREE_NAME));
    }
    let entrypoint = filled(raw.entrypoint).ok_or(Error::Missing {
        key: "entrypoint",
        fix: "the program's path inside the plugin's directory, such as `run.py`",
    })?;
    let commands = raw.commands.unwrap_or_default().checked()?;
    let fact_outputs = raw
        .fact_outputs
        .unwrap_or_default()
        .into_iter()
        .enumerate()
        .map(|(index, raw)| fact_output(index, raw, &commands))
        .collect::<Result<_, _>>()?;
    let config_keys = raw.config_keys.unwrap_or_default();
    Ok(PluginManifest {
        name,
        version: filled(raw.version),
        description: filled(raw.description),
        entrypoint,
        concurrency_safe: raw.concurrency_safe.unwrap_or(true),
        commands,
        config_required: config_keys.required.unwrap_or_default(),
        config_optional: config_keys.optional.unwrap_or_default(),
        fact_outputs,
        stopwatch_subs_max: stopwatch(raw.stopwatch.as_ref())?,
    })
}

/// The core's own steps are jobs with `core.` names, and a control character separates the parts of a series name.
pub(super) fn is_free(name: &str) -> bool {
    !name.starts_with("core.") && !name.contains(char::is_control)
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

fn stopwatch(raw: Option<&RawStopwatch>) -> Result<u16, Error> {
    // 0 means the default.
    let given = raw.and_then(|raw| raw.max_subs).filter(|given| *given != 0);
    let found = given.unwrap_or(STOPWATCH_SUBS);
    u16::try_from(found)
        .ok()
        .filter(|_| (1..=STOPWATCH_SUBS_MAX).contains(&found))
        .ok_or_else(|| {
            Error::unfit(
                "stopwatch.max_subs",
                &found.to_string(),
                "a number from 1 to 256",
            )
        })
}

fn fact_output(
    index: usize,
    raw: RawFactOutput,
    commands: &[PluginCommand],
) -> Result<FactOutput, Error> {
    let key = |rest: &str| format!("fact_outputs[{index}].{rest}");
    let declared: BTreeSet<&str> = commands.iter().map(|one| one.name.as_str()).collect();
    let command = raw.when.and_then(|when| when.command).unwrap_or_default();
    if !declared.contains(command.as_str()) {
        let fix = "a command that this manifest declares";
        return Err(Error::unfit(key("when.command"), &command, fix));
    }
    let from = raw.from.unwrap_or_default();
    if from != "state_updates" {
        return Err(Error::unfit(key("from"), &from, "`state_updates`"));
    }
    let Some(fact_type) = filled(raw.fact_type) else {
        return Err(Error::unfit(key("fact_type"), "", "the type of the fact"));
    };
    if let Some(other) = filled(raw.compatibility_view).filter(|view| view != "mirror_object") {
        let fix = "`mirror_object`, or leave it out";
        return Err(Error::unfit(key("compatibility_view"), &other, fix));
    }
    Ok(FactOutput { command, fact_type })
}
