//! The user for programs that refuse to run as root.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Copy, Debug)]
pub struct User {
    ids: Option<(u32, u32)>,
}

impl User {
    /// The user `nobody` if we are root, else the current user.
    pub fn find() -> io::Result<Self> {
        if fs::metadata("/proc/self")?.uid() != 0 {
            return Ok(Self { ids: None });
        }
        let ids = ids_of(&fs::read_to_string("/etc/passwd")?, "nobody");
        let missing = || io::Error::other("there is no user `nobody` to run it as");
        Ok(Self {
            ids: Some(ids.ok_or_else(missing)?),
        })
    }

    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives this user a file or folder.
    pub fn owns(self, path: &Path) -> io::Result<()> {
        match self.ids {
            Some((user, group)) => chown(path, Some(user), Some(group)),
            None => Ok(()),
        }
    }
}

/// User and group of a line such as `nobody:x:65534:65534:...`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut lines = users.lines();
    let line = lines.find(|line| line.split(':').next() == Some(name))?;
    let fields = line.split(':').skip(2);
    let mut numbers = fields.map_while(|field| field.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::ids_of;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "nobody2:x:5:6::/:\nnobody:x:65534:65533:n:/:/bin/sh\n";
        assert_eq!(ids_of(users, "nobody"), Some((65534, 65533)));
        assert_eq!(ids_of(users, "postgres"), None);
    }
}
