//! A PostgreSQL server for tests: created by `initdb` as an unprivileged user, reachable from this machine only.
//!
//! Tests run in many processes. The first one starts the shared cluster, the others find it; each test has its own
//! database, copied from a template. `cargo xtask test` stops the cluster at its end. Its commits are not synced,
//! because only behaviour is tested there; campaigns that kill servers start their own clusters.

mod replica;

pub(crate) use replica::{data_folders, kill_server};

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::unprivileged::User;

/// The number of databases that this process created.
static DATABASES: AtomicU64 = AtomicU64::new(0);

/// Debian installs the programs of each version here and not in the path.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A running server and its folder.
#[derive(Clone, Debug)]
pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    user: User,
    /// Variables that its server is started with.
    env: Vec<(String, String)>,
    pub port: u16,
}

/// The settings of a cluster.
pub const FAST: &[&str] = &[
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_connections=400",
];

impl Cluster {
    /// Creates a cluster in an empty folder and starts it.
    pub fn make(folder: &Path, settings: &[&str]) -> io::Result<Self> {
        let cluster = Self::place(folder)?;
        cluster.init()?;
        cluster.start(settings)?;
        Ok(cluster)
    }

    /// A cluster that is not initialised yet.
    pub fn place(folder: &Path) -> io::Result<Self> {
        let programs = newest(Path::new(VERSIONS))?;
        let user = User::find()?;
        fs::create_dir_all(folder)?;
        user.owns(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            programs,
            user,
            env: Vec::new(),
            port: free_port()?,
        })
    }

    /// Starts its server with this variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn init(&self) -> io::Result<()> {
        let mut init = self.command("initdb");
        init.args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--pgdata",
        ]);
        output(init.arg(self.data())).map(drop)
    }

    pub fn start(&self, settings: &[&str]) -> io::Result<()> {
        let mut options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={}",
            self.port,
            self.folder.display()
        );
        for setting in settings {
            options.push_str(" -c ");
            options.push_str(setting);
        }
        let mut start = self.command("pg_ctl");
        start.envs(self.env.iter().map(|(name, value)| (name, value)));
        start.args(["start", "--wait", "--silent", "--pgdata"]);
        start.arg(self.data());
        start.arg("--log").arg(self.folder.join("log"));
        output(start.arg("--options").arg(options))?;
        Ok(())
    }

    /// `fast` is an orderly shutdown; `immediate` is a crash.
    pub fn stop(&self, mode: &str) -> io::Result<()> {
        let mut stop = self.command("pg_ctl");
        stop.args(["stop", "--wait", "--silent", "--mode", mode, "--pgdata"]);
        output(stop.arg(self.data()))?;
        Ok(())
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the result of the last statement, without formatting.
    pub fn sql(&self, database: &str, text: &str) -> io::Result<String> {
        self.run(database, &[text])
    }

    /// Executes the statements one after the other.
    fn run(&self, database: &str, texts: &[&str]) -> io::Result<String> {
        let mut psql = self.command("psql");
        psql.args(["--quiet", "--no-psqlrc", "--tuples-only", "--no-align"]);
        psql.args(["--set", "ON_ERROR_STOP=1"]);
        for text in texts {
            psql.args(["--command", text]);
        }
        output(psql.arg(self.url(database)))
    }

    /// A new database, copied from `template`, which `fill` fills if it does not exist yet. The name of the template
    /// identifies its content, so that a changed schema creates a new one.
    pub fn database(&self, template: &str, fill: impl FnOnce(&str)) -> io::Result<Database> {
        self.make_template(template, fill)?;
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{number}", std::process::id());
        // In one call: starting `psql` costs as much as copying the template.
        self.run(
            "postgres",
            &[
                &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
                &format!("CREATE DATABASE {name} TEMPLATE {template}"),
            ],
        )?;
        Ok(Database {
            cluster: self.clone(),
            name,
        })
    }

    fn make_template(&self, template: &str, fill: impl FnOnce(&str)) -> io::Result<()> {
        let made = self.folder.join(format!("{template}.made"));
        if made.exists() {
            return Ok(());
        }
        let lock = File::create(self.folder.join("template.lock"))?;
        lock.lock()?;
        if made.exists() {
            return Ok(());
        }
        self.admin(&format!("DROP DATABASE IF EXISTS {template}"))?;
        let making = format!("{template}_new");
        self.admin(&format!("DROP DATABASE IF EXISTS {making}"))?;
        self.admin(&format!("CREATE DATABASE {making}"))?;
        fill(&self.url(&making));
        let rename = format!("ALTER DATABASE {making} RENAME TO {template}");
        // The last connection of `fill` may still be closing.
        for _ in 0..50 {
            if self.admin(&rename).is_ok() {
                return fs::write(&made, "");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.admin(&rename)?;
        fs::write(&made, "")
    }

    fn admin(&self, text: &str) -> io::Result<String> {
        self.sql("postgres", text)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// One of PostgreSQL's programs, such as `psql`, of the same version and as the same user.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.user.command(self.programs.join(program));
        command.current_dir(&self.folder);
        command
    }
}

/// A database that is dropped with its handle.
#[derive(Debug)]
pub struct Database {
    pub cluster: Cluster,
    pub name: String,
}

impl Database {
    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    pub fn sql(&self, text: &str) -> io::Result<String> {
        self.cluster.sql(&self.name, text)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A remaining database is removed with the cluster.
        let _ = self.cluster.sql("postgres", &drop);
    }
}

/// The cluster that all tests of this workspace share, started if necessary.
pub fn shared() -> io::Result<Cluster> {
    let folder = shared_folder();
    fs::create_dir_all(&folder)?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let place = folder.join("cluster");
    if let Some(port) = running(&folder) {
        return Ok(Cluster {
            folder: place,
            programs: newest(Path::new(VERSIONS))?,
            user: User::find()?,
            env: Vec::new(),
            port,
        });
    }
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    let cluster = Cluster::make(&place, FAST)?;
    fs::write(folder.join("port"), cluster.port.to_string())?;
    Ok(cluster)
}

/// The folder from the environment, else one for each checkout in the temporary directory.
fn shared_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("CONSIGN_TEST_POSTGRES") {
        return PathBuf::from(folder);
    }
    let checkout = env!("CARGO_MANIFEST_DIR");
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in checkout.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    std::env::temp_dir().join(format!("consign-test-postgres-{hash:016x}"))
}

fn running(folder: &Path) -> Option<u16> {
    let port = fs::read_to_string(folder.join("port")).ok()?.parse().ok()?;
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(port)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

fn output(command: &mut Command) -> io::Result<String> {
    // A server that inherits our pipes must not keep us waiting.
    let done = command.stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let program = command.get_program().to_string_lossy();
    Err(io::Error::other(format!("{program}: {}", said.trim())))
}

fn newest(versions: &Path) -> io::Result<PathBuf> {
    let missing = || {
        let told = "PostgreSQL's initdb is missing; `cargo xtask test` installs it";
        io::Error::new(io::ErrorKind::NotFound, told)
    };
    let entries = fs::read_dir(versions).map_err(|_| missing())?;
    let numbered = entries.flatten().filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let programs = entry.path().join("bin");
        let complete = programs.join("initdb").is_file();
        complete.then_some((version, programs))
    });
    let newest = numbered.max_by_key(|(version, _)| *version);
    newest.map(|(_, programs)| programs).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_taken_by_number() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["9", "15", "common"] {
            let programs = folder.path().join(version).join("bin");
            fs::create_dir_all(&programs).unwrap();
            fs::write(programs.join("initdb"), "").unwrap();
        }
        let found = newest(folder.path()).unwrap();
        assert!(found.ends_with("15/bin"), "{found:?}");
    }
}
