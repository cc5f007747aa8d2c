//! Failover of a server: standbys, promotion, SIGKILL, and settings that change while it runs.
//!
//! Invariant: after [`Cluster::kill9`] no process of that server is left, so the next server on its data directory is alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{Cluster, output};
use crate::process::signal;
use crate::process::table::{family, is_alive};

/// Included by the configuration. It is outside of the data directory, so a copy of that directory does not contain it.
const OWN_SETTINGS: &str = "own.conf";
const INCLUDE: &str = "\ninclude_if_exists = '../own.conf'\n";
/// A killed process is gone at once, except on a very busy machine.
const GONE_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

impl Cluster {
    /// Makes the configuration include the file of [`Cluster::configure`]. To be called once, after `init`.
    pub fn include_settings(&self) -> io::Result<()> {
        let file = self.data().join("postgresql.conf");
        let text = fs::read_to_string(&file)? + INCLUDE;
        fs::write(&file, text)
    }

    /// Replaces the included settings; a running server applies them when it reloads.
    pub fn configure(&self, text: &str) -> io::Result<()> {
        let file = self.folder.join(OWN_SETTINGS);
        fs::write(&file, text)?;
        self.user.owns(&file)
    }

    pub fn reload(&self) -> io::Result<()> {
        let mut reload = self.command("pg_ctl");
        reload.args(["reload", "--silent", "--pgdata"]);
        output(reload.arg(self.data())).map(drop)
    }

    /// Copies the data directory of a cluster that was shut down in order.
    pub fn copy_stopped(&self, other: &Self) -> io::Result<()> {
        let mut copy = Command::new("cp");
        output(copy.arg("-a").args([other.data(), self.data()])).map(drop)
    }

    /// Replaces the data directory with a copy of a running server.
    pub fn copy_running(&self, primary: &Self) -> io::Result<()> {
        if self.data().exists() {
            fs::remove_dir_all(self.data())?;
        }
        let mut copy = self.command("pg_basebackup");
        copy.args(["--checkpoint=fast", "--no-sync", "--wal-method=stream"]);
        copy.arg("--dbname").arg(primary.url("postgres"));
        output(copy.arg("--pgdata").arg(self.data())).map(drop)
    }

    /// The next start is that of a standby.
    pub fn mark_standby(&self) -> io::Result<()> {
        let mark = self.data().join("standby.signal");
        fs::write(&mark, "")?;
        self.user.owns(&mark)
    }

    /// Promotes a standby, and waits until it accepts writes.
    pub fn promote(&self) -> io::Result<()> {
        let mut promote = self.command("pg_ctl");
        promote.args(["promote", "--wait", "--silent", "--pgdata"]);
        output(promote.arg(self.data())).map(drop)
    }

    /// The process id of the postmaster, if the server runs.
    pub fn postmaster(&self) -> Option<u32> {
        postmaster(&self.data())
    }

    /// Kills all its processes with SIGKILL, as a crash of the machine would.
    pub fn kill9(&self) -> io::Result<()> {
        kill_server(&self.data())?;
        self.forget_lock()
    }

    /// Removes the lock files. PostgreSQL would take a zombie process for the owner of the data directory and of the socket.
    fn forget_lock(&self) -> io::Result<()> {
        let socket = self.folder.join(format!(".s.PGSQL.{}.lock", self.port));
        for file in [self.data().join("postmaster.pid"), socket] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The process id of the postmaster of this data directory.
fn postmaster(data: &Path) -> Option<u32> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid = text.lines().next()?.trim().parse().ok()?;
    // The postmaster's working directory is its data directory; another process may have reused the id.
    let lives_in = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let there = fs::canonicalize(data).is_ok_and(|data| data == lives_in);
    (there && is_alive(pid)).then_some(pid)
}

/// Kills all processes of the server on this data directory with SIGKILL, if one runs.
pub(crate) fn kill_server(data: &Path) -> io::Result<()> {
    let Some(postmaster) = postmaster(data) else {
        return Ok(());
    };
    // A suspended postmaster starts no new processes.
    signal(postmaster, "STOP")?;
    let pids = family(postmaster);
    let words = pids.iter().map(u32::to_string);
    // All at once; some may have ended by themselves meanwhile.
    let _ = Command::new("kill").arg("-KILL").args(words).output()?;
    let deadline = Instant::now() + GONE_LIMIT;
    while pids.iter().any(|pid| is_alive(*pid)) {
        if Instant::now() > deadline {
            return Err(io::Error::other("killed processes are still there"));
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Data directories below a folder.
pub(crate) fn data_folders(folder: &Path) -> Vec<PathBuf> {
    if folder.join("PG_VERSION").exists() {
        return vec![folder.to_owned()];
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .flat_map(|entry| data_folders(&entry.path()))
        .collect()
}
