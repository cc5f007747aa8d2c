//! Starts a peer's server on loopback in a folder of its own, and stops it with all of its children.
//!
//! The folder is removed afterwards, so a server that does not stop in time is killed.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::table;
use consign_testkit::run_folder;

use crate::error::Error;

const START_MAX: Duration = Duration::from_secs(90);
const STOP_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts `command` with its output in `log`, and waits until it takes connections on `port`.
    pub(crate) fn start(mut command: Command, port: u16, log: &Path) -> Result<Self, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let output = File::create(log).map_err(Error::io(log.display().to_string()))?;
        let errors = output.try_clone().map_err(Error::io("copying a handle"))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        // Marks the process as ours, in case that this program is killed.
        command.env(run_folder::VARIABLE, log);
        let child = command
            .spawn()
            .map_err(Error::io(format!("starting {name}")))?;
        let mut server = Self { child, port };
        let give_up_at = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = matches!(server.child.try_wait(), Ok(Some(_)) | Err(_));
            if ended || Instant::now() >= give_up_at {
                return Err(Error::Program(format!(
                    "{name} did not start; the end of its log: {}",
                    log_tail(log)
                )));
            }
            thread::sleep(POLL);
        }
        Ok(server)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let family = table::family(self.child.id());
        signal("-TERM", &family[..1]);
        let give_up_at = Instant::now() + STOP_MAX;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < give_up_at {
            thread::sleep(POLL);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            signal("-KILL", &family);
        }
        // It has ended or is about to; its status does not matter.
        let _ = self.child.wait();
    }
}

fn signal(signal: &str, processes: &[u32]) {
    let ids = processes.iter().map(ToString::to_string);
    // `kill` fails for processes that have ended in the meantime, which is fine.
    let _ = Command::new("kill")
        .arg(signal)
        .args(ids)
        .stderr(Stdio::null())
        .status();
}

fn log_tail(log: &Path) -> String {
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

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("starting {name}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let lines: Vec<&str> = printed.lines().rev().take(5).collect();
    Err(Error::Program(format!(
        "{name} failed: {}",
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_server_that_ends_at_once_has_the_end_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no room; exit 1"]);
        let port = free_port().unwrap();
        let refusal = Server::start(command, port, &folder.path().join("log")).unwrap_err();
        assert!(refusal.to_string().contains("no room"), "{refusal}");
    }
}
