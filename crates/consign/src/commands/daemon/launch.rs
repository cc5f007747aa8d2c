//! The process of a daemon, without what its command line needed.
//!
//! `daemon up` reads its arguments, and the process then executes this program again with the result. The description of the
//! commands and the code that reads it are several megabytes, and a daemon, which runs for weeks, would keep them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use consign_mesh::id::MeshSlug;
use serde::{Deserialize, Serialize};

use super::up::UpArgs;
use crate::cli::daemon_threads;
use crate::failure::Exit;
use crate::mesh_member::home::MemberHome;
use crate::planted;

/// The words before the JSON document, which no list of arguments of `daemon up` can begin with.
const WORDS: [&str; 2] = ["daemon", "up"];

/// What a process that becomes a daemon has to know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DaemonLaunch {
    mesh: MeshSlug,
    up: UpArgs,
}

impl DaemonLaunch {
    pub(super) fn new(mesh: &MeshSlug, up: &UpArgs) -> Self {
        Self {
            mesh: mesh.clone(),
            up: up.clone(),
        }
    }

    /// Reads the arguments of this process; `None` if they are those of a user.
    pub(crate) fn from_arguments() -> Option<Self> {
        Self::read(std::env::args_os().skip(1))
    }

    fn read(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let is_launch = WORDS
            .iter()
            .all(|word| arguments.next().is_some_and(|given| given == *word));
        let document = arguments.next().filter(|_| is_launch)?;
        serde_json::from_slice(document.as_encoded_bytes()).ok()
    }

    /// Executes this program again in this process. Returns only if that is not possible.
    pub(super) fn replace_process(&self) -> io::Error {
        let document = serde_json::to_string(self).expect("names and flags are JSON");
        let name = std::env::args_os().next();
        match std::env::current_exe() {
            Ok(program) => Command::new(program)
                .arg0(name.as_deref().unwrap_or(OsStr::new("consign")))
                .args(WORDS)
                .arg(document)
                .exec(),
            Err(error) => error,
        }
    }

    /// Becomes the daemon, and returns when it has ended.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        planted::arm_failpoint();
        let home = MemberHome::from_environment()?;
        daemon_threads()?.block_on(Box::pin(self.up.serve_launched(&home, &self.mesh)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_arguments_of_a_launch_are_one() {
        let read = |words: &[&str]| DaemonLaunch::read(words.iter().map(OsString::from));
        let document = r#"{"mesh":"team","up":{"foreground":true,"name":"a b","ttl":null}}"#;
        let launch = read(&["daemon", "up", document]).unwrap();
        assert_eq!(launch.mesh.as_str(), "team");
        let again = serde_json::to_string(&launch).unwrap();
        let again = read(&["daemon", "up", &again]).unwrap();
        assert_eq!(format!("{again:?}"), format!("{launch:?}"));
        for words in [
            &["daemon", "up"][..],
            &["daemon", "up", "--foreground"],
            &["daemon", "up", "{}"],
            &["daemon", document],
            &["serve", "up", document],
            &[],
        ] {
            assert!(read(words).is_none(), "{words:?}");
        }
    }
}
