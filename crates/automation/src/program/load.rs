//! Loads a program from a configuration and the installed plugins, or reports all problems.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::fingerprint;
use super::names::{self, KnownNames};
use super::{Plugin, Program};
use crate::config::edit::Edit;
use crate::config::model::{self, CircuitBreaker, RetryPolicy, Timeouts};
use crate::config::{
    self, CheckedConfig, Config, ConfigProblem, ConfigProblems, Drafts, Environment, LockError,
    SealCheck, SealPlan, Severity, SourcePosition,
};
use crate::plugin::confine::{Confinement, GuardedPaths};
use crate::plugin::discovery::{self, Discovery, Note, Weight};
use crate::plugin::environment::{self, PluginVariables};
use crate::plugin::registry::{self, Declaration, PluginRegistry};
use crate::plugin::trust::Symlinks;
use crate::schedule::ScheduleEntry;

/// The directory of keys beside the ledger.
const KEYS: &str = "keys";

/// The program, unless a problem is an error, and all problems.
#[derive(Debug)]
pub struct LoadedProgram {
    pub program: Option<Program>,
    pub problems: Vec<ConfigProblem>,
    /// An error came from a seal; such a start ends with its own exit code.
    pub integrity_failed: bool,
}

/// Loads everything below `path`, as returned by [`config::find()`]. Blocks while it walks the plugin roots.
pub fn load(path: &Path, surroundings: &Environment, verify: SealCheck) -> LoadedProgram {
    load_with(path, surroundings, verify, &Drafts::new())
}

/// The errors that an edit would introduce, without those that exist already.
pub fn consequences(path: &Path, surroundings: &Environment, edit: &Edit) -> Vec<ConfigProblem> {
    let errors = |drafts: &Drafts| {
        let loaded = load_with(path, surroundings, SealCheck::No, drafts);
        let errors = loaded.problems.into_iter();
        errors.filter(|problem| problem.severity == Severity::Error)
    };
    // An edit moves lines, so problems are compared without them.
    let known: Vec<ConfigProblem> = errors(&Drafts::new()).collect();
    let is_new = |problem: &ConfigProblem| {
        let same =
            |other: &ConfigProblem| other.file == problem.file && other.message == problem.message;
        !known.iter().any(same)
    };
    errors(edit.drafts()).filter(is_new).collect()
}

fn load_with(
    path: &Path,
    surroundings: &Environment,
    verify: SealCheck,
    drafts: &Drafts,
) -> LoadedProgram {
    let CheckedConfig {
        config,
        mut problems,
        mut integrity_failed,
        strictness,
    } = config::check(path, surroundings, verify, drafts);
    let Some(config) = config else {
        return LoadedProgram {
            program: None,
            problems: problems.into_vec(),
            integrity_failed,
        };
    };
    let mut found = ConfigProblems::default();
    let LoadedPlugins {
        registry,
        names,
        left_out,
    } = plugins(&config, &mut found);
    names::check_schedules(&config, &names, &mut found);
    names::check_served_goals(&config, &names, &mut found);
    names::check_webhooks(&config, &names, &mut found);
    check_sandboxes(&config, &mut found);
    let router = names::router(&config, &names, &mut found);
    if let Some(router) = &router {
        names::check_received(&config, router, &mut found);
    }
    if strictness.validation {
        found.promote_warnings();
    }
    problems.extend(found);
    if verify != SealCheck::No {
        let drift = fingerprint::verify(&config, &registry, strictness.drift);
        integrity_failed |= drift.has_errors();
        problems.extend(drift);
    }
    let router = router.filter(|_| !problems.has_errors());
    LoadedProgram {
        program: router.map(|router| Program {
            plugins: runnable(&config, &registry),
            left_out,
            environment: plugin_environment(&config, surroundings),
            router,
            config,
        }),
        problems: problems.into_vec(),
        integrity_failed,
    }
}

/// Plans what sealing the configuration at `path` and the programs of its plugins would change; [`SealPlan::apply`] does it.
pub fn lock(
    path: &Path,
    surroundings: &Environment,
    now: Timestamp,
) -> Result<SealPlan, LockError> {
    let checked = config::check(path, surroundings, SealCheck::No, &Drafts::new());
    let fingerprints = match &checked.config {
        // Problems of plugins are reported by a load; here only runnable ones count.
        Some(config) => {
            let registry = plugins(config, &mut ConfigProblems::default()).registry;
            fingerprint::take(config, &registry)?
        }
        None => Vec::new(),
    };
    config::lock(path, surroundings, &fingerprints, now)
}

/// The paths of the service that no sandbox opens, as far as the configuration defines them.
pub(super) fn guarded(config: &Config) -> GuardedPaths {
    let beside = |ending: &str| {
        let mut path = config.state_path.clone().into_os_string();
        path.push(ending);
        PathBuf::from(path)
    };
    let state = ["", "-wal", "-shm", "-journal", ".lock"].map(beside);
    let files = config.files.iter().map(|file| file.path.clone());
    let keys = config.state_path.parent().map(|dir| dir.join(KEYS));
    GuardedPaths {
        kept: config.plugin_roots.clone(),
        ..GuardedPaths::default()
    }
    .and_hidden(state)
    .and_hidden(keys)
    .and_hidden([config.path.clone()])
    .and_hidden(files)
}

fn check_sandboxes(config: &Config, problems: &mut ConfigProblems) {
    let guarded = guarded(config);
    for (name, plugin) in &config.plugins {
        let Some(sandbox) = &plugin.confinement.sandbox else {
            continue;
        };
        let read = sandbox.read.iter();
        let read = read.map(|path| ("read", path, guarded.refuses_to_read(path)));
        let write = sandbox.write.iter();
        let write = write.map(|path| ("write", path, guarded.refuses_to_write(path)));
        for (key, path, opened) in read.chain(write) {
            let Some(opened) = opened else { continue };
            let (path, opened) = (path.display(), opened.display());
            let message = format!(
                "`plugins.{name}.sandbox.{key}` has {path}, which would open {opened}, which belongs to the service, to the plugin"
            );
            let fix = "name a narrower path, or move the files that the plugin needs";
            problems.error(&plugin.at, message, fix);
        }
    }
}

struct LoadedPlugins {
    /// The plugins that were found.
    registry: PluginRegistry,
    /// What each name refers to.
    names: KnownNames,
    left_out: BTreeMap<String, String>,
}

fn plugins(config: &Config, problems: &mut ConfigProblems) -> LoadedPlugins {
    let discovery = discover(config, problems);
    let names = KnownNames::new(config, &discovery);
    let silent = disabled_directories(config, &discovery);
    let mut declarations = declarations(config);
    for (name, message, fix) in names::undiscoverable(config, &discovery) {
        problems.error(&config.plugins[&name].at, message, fix);
        declarations.remove(&name);
    }
    let mut left_out = BTreeMap::new();
    let registry = match registry::register(discovery, &declarations) {
        Ok((registry, notes)) => {
            for note in notes {
                report_note(&note, config, &silent, problems);
                left_out.extend(skipped_plugin(&note, config, &silent));
            }
            registry
        }
        Err(error) => {
            problems.error(
                &top_level_position(config, "plugins"),
                error.to_string(),
                "",
            );
            PluginRegistry::default()
        }
    };
    LoadedPlugins {
        registry,
        names,
        left_out,
    }
}

/// A plugin that jobs may wait for, and why it is missing.
fn skipped_plugin(
    note: &Note,
    config: &Config,
    silent: &BTreeSet<PathBuf>,
) -> Option<(String, String)> {
    let name = note.plugin.clone()?;
    let configured = config.plugins.get(&name);
    let is_disabled = configured.is_some_and(|configured| !configured.enabled);
    let is_missed = note.weight == Weight::Skipped && !is_disabled && !silent.contains(&note.path);
    is_missed.then(|| (name, note.to_string()))
}

fn discover(config: &Config, problems: &mut ConfigProblems) -> Discovery {
    let at = top_level_position(config, "plugin_roots");
    let symlinks = if config.service.allow_symlinks {
        Symlinks::Follow
    } else {
        Symlinks::Refuse
    };
    let mut roots = Vec::new();
    // Checked one by one, so that a bad root does not hide the next one.
    for root in &config.plugin_roots {
        match fs::read_dir(root) {
            Ok(_) => roots.push(root.clone()),
            Err(error) => {
                let message = format!("plugin root {} cannot be read: {error}", root.display());
                problems.error(&at, message, "create it or correct `plugin_roots`");
            }
        }
    }
    discovery::discover(&roots, symlinks).unwrap_or_else(|error| {
        problems.error(&at, error.to_string(), "");
        Discovery::default()
    })
}

fn declarations(config: &Config) -> BTreeMap<String, Declaration> {
    let plugins = config.plugins.iter();
    let declarations = plugins.map(|(name, plugin)| {
        let declaration = Declaration {
            is_disabled: !plugin.enabled,
            uses: plugin.uses.clone(),
            config: plugin.config.clone(),
        };
        (name.clone(), declaration)
    });
    declarations.collect()
}

/// The directories of plugins that are not enabled: their problems are not worth a warning.
fn disabled_directories(config: &Config, discovery: &Discovery) -> BTreeSet<PathBuf> {
    let enabled = |name: &String| config.plugins.get(name).is_some_and(|one| one.enabled);
    let idle = discovery.plugins.iter().filter(|(name, _)| !enabled(name));
    idle.map(|(_, found)| found.directory.clone()).collect()
}

fn report_note(
    note: &Note,
    config: &Config,
    silent: &BTreeSet<PathBuf>,
    problems: &mut ConfigProblems,
) {
    let severity = match note.weight {
        Weight::Detail => Severity::Notice,
        Weight::Skipped if silent.contains(&note.path) => Severity::Notice,
        // The other plugins still run, so the service starts.
        Weight::Warning | Weight::Skipped => Severity::Warning,
    };
    let configured = note.path.to_str().and_then(|path| {
        let name = path.strip_prefix("plugins.")?;
        config.plugins.get(name)
    });
    match configured {
        Some(plugin) => problems.push(severity, &plugin.at.file, plugin.at.line, &note.text, ""),
        None => problems.push(severity, &note.path, 0, &note.text, ""),
    }
}

fn runnable(config: &Config, registry: &PluginRegistry) -> BTreeMap<String, Plugin> {
    let wanted = registry.iter().filter(|plugin| {
        let configured = config.plugins.get(&plugin.name);
        configured.is_none_or(|configured| configured.enabled)
    });
    let plugins = wanted.map(|plugin| {
        let configured = config.plugins.get(&plugin.name);
        (
            plugin.name.clone(),
            build_plugin(plugin, configured, config),
        )
    });
    plugins.collect()
}

fn build_plugin(
    plugin: &registry::RegisteredPlugin,
    configured: Option<&model::PluginConfig>,
    config: &Config,
) -> Plugin {
    let usual = if plugin.manifest.concurrency_safe {
        config.service.max_workers
    } else {
        1
    };
    let schedules = configured.map_or(&[][..], |configured| &configured.schedules);
    // Invalid entries are errors, so no program would exist.
    let schedules = schedules
        .iter()
        .filter_map(|node| ScheduleEntry::from_json(&node.json()).ok());
    let breaker = configured.map_or_else(CircuitBreaker::default, |one| one.circuit_breaker);
    Plugin {
        name: plugin.name.clone(),
        base: plugin.base.clone(),
        manifest: plugin.manifest.clone(),
        directory: plugin.directory.clone(),
        entrypoint: plugin.entrypoint.clone(),
        config: configured.map_or_else(Default::default, |one| one.config.clone()),
        schedules: schedules.collect(),
        parallelism: configured.and_then(|one| one.parallelism).unwrap_or(usual),
        max_outstanding_polls: configured.map_or(1, |one| one.max_outstanding_polls),
        timeouts: configured.map_or_else(Timeouts::default, |one| one.timeouts.clone()),
        retry: configured.map_or_else(RetryPolicy::default, |one| one.retry),
        breaker: breaker.into(),
        notify_on_complete: configured.is_some_and(|one| one.notify_on_complete),
        serves: configured.map_or_else(Vec::new, |one| one.serves.clone()),
        confinement: configured.map_or_else(Confinement::default, |one| one.confinement.clone()),
    }
}

fn plugin_environment(config: &Config, surroundings: &Environment) -> PluginVariables {
    let variables = surroundings.variables.iter();
    let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    environment::for_plugins(&variables.collect(), &config.service.plugin_env_passthrough)
}

/// The position of a top-level key, or of the file if the key is missing.
pub(super) fn top_level_position(config: &Config, key: &str) -> SourcePosition {
    let found = config.merged.get(key).unwrap_or(&config.merged);
    found.at.clone()
}
