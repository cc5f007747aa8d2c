//! The configuration tree of a command, and the environment of the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use consign_automation::config::edit::{Edit, EditRefused};
use consign_automation::config::{
    self, Config, ConfigProblem, ConfigSeal, Environment, FindError, LockError, SealChange,
};
use consign_automation::config::{SealCheck, Severity};
use consign_automation::program::{self, Program};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::{ductile, out, render};

const SYSTEM_DIR: &str = "/etc/ductile";

#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    /// The configuration: its file, or the directory of config.yaml
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// The directory of config.yaml
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,

    /// Show more details
    #[arg(short, long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A configuration that was found.
#[derive(Clone, Debug)]
pub(crate) struct ConfigTree {
    pub(crate) path: PathBuf,
    pub(crate) environment: Environment,
    verbose: bool,
}

impl TreeArgs {
    /// For a tree that a flag of another command names.
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            config: Some(path.to_owned()),
            config_dir: None,
            verbose: false,
            output: OutputArgs { json: false },
        }
    }

    /// For a tree that was just created.
    pub(crate) fn in_dir(dir: &Path, verbose: bool) -> Self {
        Self {
            config: None,
            config_dir: Some(dir.to_owned()),
            verbose,
            output: OutputArgs { json: false },
        }
    }

    /// Whether a flag names the configuration.
    pub(crate) fn is_named(&self) -> bool {
        self.config.is_some() || self.config_dir.is_some()
    }

    /// The flags that name the configuration, for a command in a hint.
    pub(crate) fn flags(&self) -> String {
        match (&self.config, &self.config_dir) {
            (Some(path), _) => format!(" --config {}", path.display()),
            (None, Some(dir)) => format!(" --config-dir {}", dir.display()),
            (None, None) => String::new(),
        }
    }

    /// The `PATH` of plugins.
    pub(crate) fn search_path() -> Option<OsString> {
        std::env::var_os("PATH")
    }

    pub(crate) fn find(&self) -> anyhow::Result<ConfigTree> {
        let environment = environment();
        let found = config::find(
            self.config.as_deref(),
            self.config_dir.as_deref(),
            &environment,
        );
        let path = found.map_err(|error| {
            let failure = Failure::failed(error.to_string());
            match error {
                FindError::Both | FindError::CurrentDir(_) => failure,
                FindError::Missing(_) => {
                    failure.hint("name it with --config, or create one with `config init DIR`")
                }
                FindError::Nowhere(_) => failure.hint(format!(
                    "{}name the configuration with --config, or create one with `config init DIR`",
                    if ductile::is_called() {
                        ""
                    } else {
                        "this command is about an automation; `consign intent` is about intents. To go on, "
                    }
                )),
            }
        })?;
        if self.verbose {
            out::note(&format!("configuration: {}", path.display()));
        }
        Ok(ConfigTree {
            path,
            environment,
            verbose: self.verbose,
        })
    }
}

impl ConfigTree {
    /// Loads the program, with warnings and notices. Blocks.
    pub(crate) fn load(&self, verify: SealCheck) -> Result<(Program, Vec<ConfigProblem>), Failure> {
        let loaded = program::load(&self.path, &self.environment, verify);
        let (errors, others) = loaded
            .problems
            .into_iter()
            .partition::<Vec<_>, _>(|problem| problem.severity == Severity::Error);
        match loaded.program {
            Some(program) => Ok((program, others)),
            None if loaded.integrity_failed => {
                let message = "the configuration differs from its seal";
                let hint = "review the changes and run `config lock`, then try again";
                Err(invalid(message, &errors).hint(hint))
            }
            None => Err(invalid("the configuration is refused", &errors)),
        }
    }

    /// Loads the program for commands that run nothing. They need no secrets, so variables may be unset; any other problem is an
    /// error.
    pub(crate) fn load_readonly(&self) -> Result<Program, Failure> {
        let loaded = self.load(SealCheck::AsConfigured).or_else(|refused| {
            let looked = self.with_stand_ins().load(SealCheck::AsConfigured);
            looked.map_err(|_| refused)
        });
        Ok(loaded?.0)
    }

    /// The same tree with a placeholder for every unset variable; see [`config::with_stand_ins`].
    pub(crate) fn with_stand_ins(&self) -> Self {
        Self {
            environment: config::with_stand_ins(&self.path, &self.environment),
            ..self.clone()
        }
    }

    /// Reads the configuration even if it has errors.
    pub(crate) fn peek(&self) -> anyhow::Result<Config> {
        let peeked = config::peek(&self.path, &self.environment);
        peeked.map_err(|problems| invalid("the configuration cannot be read", &problems).into())
    }

    /// Checks an edit and applies it, unless `dry_run` is set.
    pub(crate) fn apply_edit(&self, edit: &Edit, dry_run: bool) -> anyhow::Result<()> {
        let errors = program::consequences(&self.path, &self.environment, edit);
        if !errors.is_empty() {
            let message = "the configuration would no longer be valid; nothing was written";
            return Err(invalid(message, &errors).into());
        }
        for (path, written) in edit.paths() {
            let verb = match (written, dry_run) {
                (true, true) => "would write",
                (true, false) => "write",
                (false, true) => "would remove",
                (false, false) => "remove",
            };
            if dry_run || self.verbose {
                out::note(&format!("{verb} {}", path.display()));
            }
        }
        if !dry_run {
            edit.apply()?;
        }
        Ok(())
    }

    /// A seal is renewed only if it is valid, so that the command does not vouch for other changes. `expected` is the file whose
    /// change the command is about.
    pub(crate) fn require_sound_seal(&self, expected: Option<&Path>) -> anyhow::Result<()> {
        let dir = self.path.parent().unwrap_or(&self.path);
        if !matches!(ConfigSeal::read(dir), Ok(Some(_))) {
            return Ok(());
        }
        let plan = config::reseal(&self.path, &self.environment, Timestamp::now());
        let plan = plan.map_err(|error| unsealable(&error))?;
        let mut changes = plan.changes.iter();
        let drifted = changes
            .find(|(path, change)| *change != SealChange::Kept && expected != Some(path.as_path()));
        match drifted {
            None => Ok(()),
            Some((path, _)) => {
                let message = format!("{} differs from its seal", path.display());
                let hint = "review the changes and run `config lock`, then try again";
                Err(Failure::new(Exit::Config, message).hint(hint).into())
            }
        }
    }

    /// Seals files and plugins as they are.
    pub(crate) fn seal(&self) -> anyhow::Result<()> {
        let plan = program::lock(&self.path, &self.environment, Timestamp::now());
        Ok(plan.map_err(|error| unsealable(&error))?.apply()?)
    }

    pub(crate) fn reseal(&self) -> anyhow::Result<()> {
        let plan = config::reseal(&self.path, &self.environment, Timestamp::now());
        plan.map_err(|error| unsealable(&error))?.apply()?;
        if self.verbose {
            out::note("sealed again");
        }
        Ok(())
    }
}

fn environment() -> Environment {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        // Variables that are not UTF-8 can be neither substituted nor named.
        Some((name.into_string().ok()?, value.into_string().ok()?))
    });
    let processors = std::thread::available_parallelism();
    Environment {
        variables: variables.collect::<BTreeMap<_, _>>(),
        home: std::env::var_os("HOME")
            .filter(|home| !home.is_empty())
            .map(PathBuf::from),
        system_dir: PathBuf::from(SYSTEM_DIR),
        processors: processors.map_or(1, usize::from),
    }
}

/// A failure because of the configuration, with all problems.
pub(crate) fn invalid(message: &str, problems: &[ConfigProblem]) -> Failure {
    let lines: Vec<String> = problems
        .iter()
        .map(|one| format!("\n  {}", shown(one)))
        .collect();
    Failure::new(Exit::Config, format!("{message}:{}", lines.concat()))
        .hint("see `config check`")
        .context(json!({ "problems": problems.iter().map(as_json).collect::<Vec<_>>() }))
}

pub(crate) fn unsealable(error: &LockError) -> Failure {
    match error {
        LockError::Unreadable(problems) => invalid(&error.to_string(), problems),
        LockError::Io(_) => Failure::failed(error.to_string()),
    }
}

pub(crate) fn refused(refused: &EditRefused) -> Failure {
    let failure = Failure::failed(refused.message.clone());
    if refused.fix.is_empty() {
        failure
    } else {
        failure.hint(refused.fix.clone())
    }
}

pub(crate) fn shown(problem: &ConfigProblem) -> String {
    render::safe(&ductile::typed(&problem.to_string()))
}

pub(crate) fn as_json(problem: &ConfigProblem) -> Value {
    json!({
        "file": problem.file,
        "line": problem.line,
        "message": problem.message,
        "fix": ductile::typed(&problem.fix),
    })
}

pub(crate) fn text_of(path: &Path) -> String {
    render::safe(&path.display().to_string())
}
