//! Starts a peer's server on loopback in a folder of its own, and ends it with all of its children.
//!
//! Everything a server writes is thrown away with the folder, so it is not asked to save anything on its way out.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::machine;

const START_MAX: Duration = Duration::from_secs(90);
const STOP_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    stop_signal: &'static str,
}

impl Server {
    /// Starts `command` with its output in `log`, and waits until it takes connections on `port`.
    pub(crate) fn start(mut command: Command, port: u16, log: &Path) -> Result<Self, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(log).map_err(Error::io(log.display().to_string()))?;
        let errors = output.try_clone().map_err(Error::io("copying a handle"))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command
            .spawn()
            .map_err(Error::io(format!("starting {name}")))?;
        let mut server = Self {
            child,
            port,
            stop_signal: "-TERM",
        };
        let give_up_at = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = matches!(server.child.try_wait(), Ok(Some(_)) | Err(_));
            if ended || Instant::now() >= give_up_at {
                return Err(Error::Program(format!(
                    "{name} did not start; it said: {}",
                    last_words(log)
                )));
            }
            thread::sleep(LOOK);
        }
        Ok(server)
    }

    /// For servers that take their time on SIGTERM, such as one that waits for its clients to leave.
    pub(crate) fn stopped_by(mut self, signal: &'static str) -> Self {
        self.stop_signal = signal;
        self
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let family = machine::family(self.child.id());
        signal(self.stop_signal, &family[..1]);
        let give_up_at = Instant::now() + STOP_MAX;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < give_up_at {
            thread::sleep(LOOK);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            signal("-KILL", &family);
        }
        // Gone or about to be; its status does not matter.
        let _ = self.child.wait();
    }
}

pub(crate) fn signal(signal: &str, processes: &[u32]) {
    let ids = processes.iter().map(ToString::to_string);
    // Those that have ended in the meantime make `kill` complain, which is fine.
    let _ = Command::new("kill")
        .arg(signal)
        .args(ids)
        .stderr(Stdio::null())
        .status();
}

fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16, Error> {
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(Error::io("looking for a free port"))?;
    let address = listener
        .local_addr()
        .map_err(Error::io("looking for a free port"))?;
    Ok(address.port())
}

/// Runs a command to its end and gives back what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("starting {name}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().rev().take(5).collect();
    Err(Error::Program(format!(
        "{name} failed: {}",
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    )))
}

/// The user that runs what refuses to run as root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unprivileged {
    ids: Option<(u32, u32)>,
}

impl Unprivileged {
    /// The user `nobody` when we are root; otherwise we are unprivileged ourselves.
    pub(crate) fn find(folder: &Path) -> Result<Self, Error> {
        let probe = folder.join("owner");
        File::create(&probe).map_err(Error::io(probe.display().to_string()))?;
        let ours = std::os::unix::fs::MetadataExt::uid(
            &fs::metadata(&probe).map_err(Error::io(probe.display().to_string()))?,
        );
        if ours != 0 {
            return Ok(Self { ids: None });
        }
        let users = fs::read_to_string("/etc/passwd").map_err(Error::io("/etc/passwd"))?;
        let ids = ids_of(&users, "nobody");
        let missing = || Error::Program("there is no user `nobody` to run it as".to_owned());
        Ok(Self {
            ids: Some(ids.ok_or_else(missing)?),
        })
    }

    pub(crate) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command
    }

    /// A folder that this user may write.
    pub(crate) fn folder(self, path: PathBuf) -> Result<PathBuf, Error> {
        let made = fs::create_dir_all(&path).and_then(|()| match self.ids {
            Some((user, group)) => chown(&path, Some(user), Some(group)),
            None => io::Result::Ok(()),
        });
        made.map_err(Error::io(path.display().to_string()))?;
        Ok(path)
    }
}

/// User and group of a line such as `nobody:x:65534:65534:...`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line
        .split(':')
        .skip(2)
        .map_while(|field| field.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "nobody2:x:5:6::/:\nnobody:x:65534:65533:n:/:/bin/sh\n";
        assert_eq!(ids_of(users, "nobody"), Some((65534, 65533)));
        assert_eq!(ids_of(users, "postgres"), None);
    }

    #[test]
    fn a_server_that_ends_at_once_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no room; exit 1"]);
        let port = free_port().unwrap();
        let refusal = Server::start(command, port, &folder.path().join("log")).unwrap_err();
        assert!(refusal.to_string().contains("no room"), "{refusal}");
    }
}
