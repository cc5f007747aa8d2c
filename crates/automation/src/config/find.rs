//! Finds the configuration file and resolves the paths in it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};

/// The name of the file that is found without being named.
pub const FILE: &str = "config.yaml";
const VARIABLE: &str = "DUCTILE_CONFIG_DIR";

/// The environment of the process as values: this crate reads neither variables nor the machine.
#[derive(Clone)]
pub struct Environment {
    pub variables: BTreeMap<String, String>,
    pub home: Option<PathBuf>,
    /// The system-wide directory, searched last.
    pub system_dir: PathBuf,
    pub processors: usize,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.len())
            .field("home", &self.home)
            .field("system_dir", &self.system_dir)
            .field("processors", &self.processors)
            .finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("`--config` and `--config-dir` are alternatives; give only one of them")]
    Both,
    #[error("no configuration exists at {0}")]
    Missing(PathBuf),
    #[error("no configuration found; looked for {FILE} in {0}")]
    Nowhere(String),
    #[error("the working directory is unknown: {0}")]
    CurrentDir(#[from] std::io::Error),
}

/// The absolute path of the file to load: as given by the flags, or the first that exists.
pub fn find(
    config: Option<&Path>,
    config_dir: Option<&Path>,
    environment: &Environment,
) -> Result<PathBuf, FindError> {
    let given = match (config, config_dir) {
        (Some(_), Some(_)) => return Err(FindError::Both),
        (Some(path), None) if !path.is_dir() => Some(path.to_owned()),
        (Some(dir), None) | (None, Some(dir)) => Some(dir.join(FILE)),
        (None, None) => None,
    };
    if let Some(path) = given {
        if !path.is_file() {
            return Err(FindError::Missing(path));
        }
        return Ok(absolute(&path)?);
    }
    let places = default_dirs(environment);
    if let Some(place) = places.iter().find(|place| place.join(FILE).is_file()) {
        return Ok(absolute(&place.join(FILE))?);
    }
    let places = places.iter().map(|place| place.display().to_string());
    Err(FindError::Nowhere(places.collect::<Vec<_>>().join(", ")))
}

fn default_dirs(environment: &Environment) -> Vec<PathBuf> {
    let named = environment.variables.get(VARIABLE);
    let named = named.filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let home = environment.home.as_ref();
    let home = home.map(|home| home.join(".config/ductile"));
    let system = Some(environment.system_dir.clone());
    [named, home, system].into_iter().flatten().collect()
}

/// Absolute and without `.` and `..`, by text alone: seals use such paths, and a link must not change them.
pub(super) fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    let mut clean = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => clean.push(part),
        }
    }
    Ok(clean)
}

/// Resolves a path of the configuration: `~` is the home directory, and relative paths start at `base`.
pub(super) fn resolve(written: &str, base: &Path, environment: &Environment) -> PathBuf {
    let at_home = written.strip_prefix('~').and_then(|rest| {
        let rest = rest.strip_prefix('/').or(rest.is_empty().then_some(""))?;
        Some(environment.home.as_ref()?.join(rest))
    });
    let path = at_home.unwrap_or_else(|| base.join(written));
    absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(root: &Path) -> Environment {
        let named = root.join("named").display().to_string();
        Environment {
            variables: BTreeMap::from([(VARIABLE.to_owned(), named)]),
            home: Some(root.join("home")),
            system_dir: root.join("etc"),
            processors: 2,
        }
    }

    #[test]
    fn a_flag_decides_and_else_the_first_place_that_has_a_file_du_001() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let environment = environment(root);
        let put = |dir: &str| {
            std::fs::create_dir_all(root.join(dir)).unwrap();
            std::fs::write(root.join(dir).join(FILE), "").unwrap();
            root.join(dir).join(FILE)
        };
        let nowhere = find(None, None, &environment).unwrap_err().to_string();
        assert!(
            nowhere.contains("named") && nowhere.contains("etc"),
            "{nowhere}"
        );
        for dir in ["etc", "home/.config/ductile", "named"] {
            let file = put(dir);
            assert_eq!(find(None, None, &environment).unwrap(), file);
        }
        let given = put("given");
        let dir = root.join("given");
        assert_eq!(find(Some(&dir), None, &environment).unwrap(), given);
        assert_eq!(find(Some(&given), None, &environment).unwrap(), given);
        assert_eq!(find(None, Some(&dir), &environment).unwrap(), given);
        assert!(matches!(
            find(Some(&dir), Some(&dir), &environment),
            Err(FindError::Both)
        ));
        let gone = find(Some(&root.join("gone")), None, &environment);
        assert!(matches!(gone, Err(FindError::Missing(_))));
    }

    #[test]
    fn paths_start_at_home_or_at_the_base_du_009() {
        let root = Path::new("/r");
        let environment = environment(root);
        let resolved = |written| resolve(written, Path::new("/base"), &environment);
        assert_eq!(resolved("~"), Path::new("/r/home"));
        assert_eq!(resolved("~/x"), Path::new("/r/home/x"));
        assert_eq!(resolved("~user/x"), Path::new("/base/~user/x"));
        assert_eq!(resolved("./a/../b"), Path::new("/base/b"));
        assert_eq!(resolved("/abs"), Path::new("/abs"));
    }
}
