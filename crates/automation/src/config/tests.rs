//! Whole configurations in temporary directories, loaded as the service loads them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

mod integrity;
mod loading;
mod tokens;
mod validation;

/// A directory with a configuration, and its environment.
struct World {
    dir: tempfile::TempDir,
    environment: Environment,
}

impl World {
    /// Writes `config.yaml` with the one key that every configuration needs.
    fn new(config: &str) -> Self {
        let world = Self::bare();
        world.put(
            "config.yaml",
            &format!("{config}\nplugin_roots: [plugins]\n"),
        );
        world
    }

    fn bare() -> Self {
        consign_testkit::plants::from_environment();
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment {
            variables: BTreeMap::new(),
            home: Some(dir.path().join("home")),
            system_dir: dir.path().join("etc"),
            processors: 4,
        };
        Self { dir, environment }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        let variables = &mut self.environment.variables;
        variables.insert(name.to_owned(), value.to_owned());
        self
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn load(&self, verify: SealCheck) -> LoadedConfig {
        load(&self.path("config.yaml"), &self.environment, verify)
    }

    fn config(&self) -> Config {
        let LoadedConfig {
            config, problems, ..
        } = self.load(SealCheck::No);
        config.unwrap_or_else(|| panic!("{}", shown(&problems)))
    }

    fn problems(&self) -> String {
        shown(&self.load(SealCheck::No).problems)
    }

    fn lock(&self) -> SealPlan {
        let now = "2026-02-25T10:00:00.5Z".parse().unwrap();
        let plan = lock(&self.path("config.yaml"), &self.environment, &[], now).unwrap();
        plan.apply().unwrap();
        plan
    }
}

/// The problems as lines of `severity file:line: message; fix`, with file names only.
fn shown(problems: &[ConfigProblem]) -> String {
    let line = |problem: &ConfigProblem| {
        let file = problem.file.file_name().map(Path::new);
        let problem = ConfigProblem {
            file: file.unwrap_or(Path::new("")).to_owned(),
            ..problem.clone()
        };
        format!("{:?} {problem}", problem.severity)
    };
    let lines: Vec<_> = problems.iter().map(line).collect();
    lines.join("\n")
}

/// One configuration, one expected line among the problems, and whether it loads.
fn refused(config: &str, expected: &str) {
    let world = World::new(config);
    let problems = world.problems();
    assert!(problems.contains(expected), "{config}\ngave: {problems}");
    assert!(world.load(SealCheck::No).config.is_none(), "{config}");
}

fn warned(config: &str, expected: &str) {
    let world = World::new(config);
    let problems = world.problems();
    assert!(problems.contains(expected), "{config}\ngave: {problems}");
    assert!(world.load(SealCheck::No).config.is_some(), "{problems}");
}
