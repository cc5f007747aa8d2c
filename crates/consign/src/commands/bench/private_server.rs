//! A private server for one measurement: this same program, in a new directory.
//!
//! Invariant: when it is dropped, its process has ended and its directory is removed. Variables that configure a
//! server are not inherited, so that measurements are comparable. It is killed, not drained, because its data is not
//! needed.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use consign_bench::BenchTarget;
use consign_client::{Address, SecretKey};
use data_encoding::HEXLOWER;

use crate::data_dir::DataDir;
use crate::secrets::{self, SecretName};

/// Longer than any healthy start takes on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Short, because restarts are measured with it.
const POLL: Duration = Duration::from_millis(1);

/// What the server does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerMode {
    Serve,
    /// Also agent transactions, without any effect.
    Site,
    /// Also a directory of Beam whose senders have no limit.
    Directory,
    /// Also a broker of the mesh whose members have no limit.
    Broker,
    Empty,
}

/// The site that a server in [`ServerMode::Site`] is.
pub(super) const SITE: &str = "https://bench.example";

#[derive(Debug)]
pub(super) struct PrivateServer {
    mode: ServerMode,
    child: Child,
    url: String,
    directory: TempDirectory,
    store: Option<String>,
}

impl PrivateServer {
    /// Starts it in a new directory under `parent` and waits until it listens.
    pub(super) async fn start(
        mode: ServerMode,
        parent: Option<&Path>,
        store: Option<&str>,
    ) -> anyhow::Result<Self> {
        let directory = TempDirectory::make(parent)?;
        let store = store.map(str::to_owned);
        let mut server = Self {
            mode,
            child: spawn(mode, &directory, store.as_deref())?,
            url: String::new(),
            directory,
            store,
        };
        server.url = server.listening().await?;
        Ok(server)
    }

    /// Kills the server and starts it on the same data; returns when the new process was started.
    pub(super) async fn restart(&mut self) -> anyhow::Result<Instant> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server")?;
        // Otherwise the old address would be taken for the new one.
        let address = self.directory.data().address_file();
        fs::remove_file(&address).context("the killed server left no address")?;
        let began = Instant::now();
        self.child = spawn(self.mode, &self.directory, self.store.as_deref())?;
        self.url = self.listening().await?;
        Ok(began)
    }

    /// Waits for the address. The server writes it once the socket is bound, so connections to it succeed.
    async fn listening(&mut self) -> anyhow::Result<String> {
        let deadline = Instant::now() + START_LIMIT;
        let data = self.directory.data();
        loop {
            if let Some(url) = data.read_address()? {
                return Ok(url);
            }
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read_to_string(self.directory.log()).unwrap_or_default();
                return Err(anyhow!("the server ended with {status}: {}", said.trim()));
            }
            if Instant::now() > deadline {
                return Err(anyhow!("the server did not start in {START_LIMIT:?}"));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) fn data_root(&self) -> PathBuf {
        self.directory.data().root().to_owned()
    }

    pub(super) fn target(&self) -> anyhow::Result<BenchTarget> {
        let data = self.directory.data();
        let (key, admin_token) = match self.mode {
            ServerMode::Serve | ServerMode::Site | ServerMode::Directory | ServerMode::Broker => {
                let key = |name| -> anyhow::Result<SecretKey> {
                    let secret = secrets::read(&data, name)?;
                    let secret = secret.context("the server created no keys")?;
                    Ok(SecretKey::new(secret.reveal()))
                };
                (
                    key(SecretName::BusSecret)?,
                    Some(key(SecretName::AdminSecret)?),
                )
            }
            // As long as a real key, so that requests have the same size.
            ServerMode::Empty => (SecretKey::new(&format!("ck_{:040}", 0)), None),
        };
        Ok(BenchTarget {
            server: Address::parse(&self.url)?,
            key,
            admin_token,
            pid: Some(self.child.id()),
            dir: Some(data.root().to_owned()),
        })
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A site that accepts all agents. All load comes from one address, so its limits are off.
const SITE_SETTINGS: &[(&str, &str)] = &[
    ("ATP_SITE", SITE),
    ("ATP_AGENT_KEYS", "open"),
    ("ATP_RAIL", "null"),
    ("ATP_WRITES_PER_MINUTE", "0"),
    ("ATP_WRITE_BYTES_PER_MINUTE", "0"),
    ("ATP_OPEN_PER_KEY", "0"),
    ("ATP_OPEN_MAX", "0"),
    ("ATP_PUBLIC_PER_MINUTE", "0"),
];

/// A directory that lets each sender send as fast as it can.
const DIRECTORY_SETTINGS: &[(&str, &str)] = &[("BEAM_RATE_LIMIT_PER_MIN", "100000000")];

/// A broker that lets each member send as fast as it can.
const BROKER_SETTINGS: &[(&str, &str)] = &[
    ("MESH_SENDS_PER_MIN", "100000000"),
    ("MESH_SEND_BURST", "100000000"),
];

fn spawn(
    mode: ServerMode,
    directory: &TempDirectory,
    store: Option<&str>,
) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let log = directory.log();
    let stderr = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = unconfigured(&program);
    command
        .arg(match mode {
            ServerMode::Serve | ServerMode::Site | ServerMode::Directory | ServerMode::Broker => {
                "serve"
            }
            ServerMode::Empty => "bench-empty",
        })
        .args(["--listen", "127.0.0.1:0", "--data"])
        .arg(directory.data().root())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    match mode {
        ServerMode::Site => {
            command.envs(SITE_SETTINGS.iter().copied());
        }
        ServerMode::Directory => {
            command.envs(DIRECTORY_SETTINGS.iter().copied());
        }
        ServerMode::Broker => {
            command.envs(BROKER_SETTINGS.iter().copied());
        }
        ServerMode::Serve | ServerMode::Empty => {}
    }
    if let Some(store) = store {
        // Not as an argument: it may contain a password.
        command.env("CONSIGN_STORE", store);
        for name in ["CONSIGN_STORE_PASSWORD", "CONSIGN_STORE_PASSWORD_FILE"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
    }
    command.spawn().context("cannot start a server")
}

/// A temporary directory; dropping it removes it.
#[derive(Debug)]
struct TempDirectory(PathBuf);

impl TempDirectory {
    fn make(parent: Option<&Path>) -> anyhow::Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).context("no source of random numbers")?;
        let path = parent.join(format!("consign-bench-{}", HEXLOWER.encode(&random)));
        // Fails if the path exists, so that no other directory is ever removed.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Self(path))
    }

    fn data(&self) -> DataDir {
        DataDir::new(&self.0.join("data"))
    }

    fn log(&self) -> PathBuf {
        self.0.join("server.log")
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        // A directory that cannot be removed stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// This program without the variables that configure a server or a daemon.
pub(super) fn unconfigured(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if configures(&name.to_string_lossy()) {
            command.env_remove(&name);
        }
    }
    command
}

const PREFIXES: &[&str] = &[
    "ATP_",
    "BEAM_",
    "BUS_",
    "CLAUDEMESH_",
    "CONSIGN_",
    "MESH_",
    "RELAY_",
];

fn configures(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || matches!(name, "DASHBOARD_PASSWORD" | "RUST_LOG")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::site_settings::SiteSettings;

    #[test]
    fn a_site_that_is_measured_turns_none_of_its_load_away() {
        let lookup = |name: &str| {
            let mut settings = SITE_SETTINGS.iter();
            let found = settings.find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let site = SiteSettings::read(lookup).unwrap().unwrap();
        assert_eq!((site.writes_per_minute, site.public_per_minute), (0, 0));
    }

    #[test]
    fn nothing_that_configures_a_server_is_inherited() {
        for name in [
            "ATP_SITE",
            "ATP_RAIL",
            "BEAM_OPEN",
            "BUS_SECRET",
            "CLAUDEMESH_DAEMON_DIR",
            "CONSIGN_STORE",
            "MESH_URL",
            "RUST_LOG",
        ] {
            assert!(configures(name), "{name}");
        }
        assert!(!configures("PATH"));
    }
}
