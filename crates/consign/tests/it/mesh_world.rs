//! Members of a mesh: a server with a mesh, and users whose daemons are processes.

use std::os::unix::fs::PermissionsExt as _;
#[cfg(feature = "planted")]
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::{self, Options, Server};
use serde_json::Value;

use super::{Place, binary, code, printed, text, word};

pub(crate) const MESH: &str = "team";
#[cfg(feature = "planted")]
const FAILPOINT: &str = "CONSIGN_FAILPOINT";
/// A daemon asks the broker at its start, and waits before it tries again.
const MESH_PATIENCE: Duration = Duration::from_secs(30);

/// A server with a mesh. Its address stays the same when it is started again.
pub(crate) struct MeshWorld {
    pub(crate) place: Place,
    pub(crate) server: Option<Server>,
    listen: String,
    invite: String,
    /// How the server starts the next time, apart from its address.
    pub(crate) settings: Options,
}

/// A user of this machine with a home folder.
pub(crate) struct MeshUser {
    pub(crate) home: PathBuf,
    daemon: Option<Child>,
}

impl MeshWorld {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With further arguments of `mesh create`.
    pub(crate) fn with(settings: &[&str]) -> Self {
        Self::serving(settings, |options| options)
    }

    /// The same, and with further settings of the server.
    pub(crate) fn serving(settings: &[&str], change: impl FnOnce(Options) -> Options) -> Self {
        let place = Place::new();
        let options = change(place.options());
        let server = super::start(&options);
        let create = [&["mesh", "create", MESH, "--json"], settings].concat();
        printed(&place.consign(&create));
        let invite = printed(&place.consign(&["mesh", "invite", MESH, "--uses", "9", "--json"]));
        Self {
            listen: server.authority().to_owned(),
            invite: word(&invite["link"]),
            server: Some(server),
            settings: options,
            place,
        }
    }

    fn options(&self) -> Options {
        self.settings.clone().listen(&self.listen)
    }

    /// Ends the server without any warning.
    pub(crate) fn kill_broker(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill9().expect("the server can be killed");
        }
    }

    pub(crate) fn start_broker(&mut self) {
        self.server = Some(Server::start(&self.options()).expect("the server starts again"));
    }

    /// A user who has joined, without a daemon.
    pub(crate) fn join(&self, name: &str) -> MeshUser {
        let user = self.stranger(name);
        let joined =
            printed(&user.consign(&["mesh", "join", &self.invite, "--name", name, "--json"]));
        assert_eq!(joined["slug"], MESH);
        user
    }

    /// A user who has joined and whose daemon runs.
    pub(crate) fn member(&self, name: &str) -> MeshUser {
        let mut user = self.join(name);
        user.up();
        user.wait_connected();
        user
    }

    pub(crate) fn stranger(&self, name: &str) -> MeshUser {
        let home = self.place.path(name);
        std::fs::create_dir_all(&home).expect("a home folder can be made");
        MeshUser { home, daemon: None }
    }

    /// The key of the Intent Protocol that the server made for itself.
    pub(crate) fn main_key(&self) -> String {
        let server = self.server.as_ref().expect("the server runs");
        server.secret("bus_secret").expect("it made its main key")
    }

    /// Revokes a member by its key.
    pub(crate) fn revoke(&self, user: &MeshUser) {
        let args = ["mesh", "revoke", MESH, &user.pubkey(), "--json"];
        assert_eq!(printed(&self.place.consign(&args))["revoked"], true);
    }
}

impl MeshUser {
    pub(crate) fn folder(&self) -> PathBuf {
        self.home.join(".claudemesh/daemon").join(MESH)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = process::cleaned(&binary());
        command
            .args(args)
            .env("HOME", &self.home)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn consign(&self, args: &[&str]) -> Output {
        process::run(self.command(args), MESH_PATIENCE).expect("the command ends in time")
    }

    /// `consign daemon ARGS --mesh team --json`.
    pub(crate) fn daemon(&self, args: &[&str]) -> Output {
        self.consign(&[&["daemon"], args, &["--mesh", MESH, "--json"]].concat())
    }

    /// Starts the daemon in the foreground and waits until it is ready.
    pub(crate) fn up(&mut self) {
        self.spawn(&[]);
        let is_ready = || self.daemon(&["status"]).status.success();
        wait_for("the daemon is ready", is_ready);
    }

    /// Starts the daemon, which may end by itself.
    pub(crate) fn spawn(&mut self, flags: &[&str]) {
        self.spawn_with(flags, &[]);
    }

    /// The same with variables of the environment.
    pub(crate) fn spawn_with(&mut self, flags: &[&str], variables: &[(&str, String)]) {
        let args = ["daemon", "up", "--foreground", "--mesh", MESH];
        let mut command = self.command(&[&args, flags].concat());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let log = std::fs::File::create(self.home.join("stderr")).expect("a log can be made");
        command.stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().expect("the daemon is started"));
    }

    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(self.home.join("stderr")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    pub(crate) fn wait_connected(&self) {
        wait_for("the daemon is connected", || {
            printed(&self.daemon(&["status"]))["connected"] == true
        });
    }

    /// Ends the daemon without any warning.
    pub(crate) fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon
                .kill()
                .and_then(|()| daemon.wait())
                .expect("the daemon can be killed");
        }
    }

    /// The exit status of a daemon that ends by itself.
    pub(crate) fn exit_status(&mut self) -> i32 {
        let mut daemon = self.daemon.take().expect("a daemon was started");
        let deadline = Instant::now() + MESH_PATIENCE;
        loop {
            if let Some(status) = daemon.try_wait().expect("the daemon is a child") {
                return status.code().unwrap_or(-1);
            }
            if Instant::now() > deadline {
                let _ = daemon.kill();
                panic!("the daemon does not end: {}", self.stderr());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn pubkey(&self) -> String {
        let text = std::fs::read_to_string(self.home.join(".claudemesh/config.json"));
        let config: Value =
            serde_json::from_str(&text.expect("the user has joined")).expect("JSON");
        word(&config["meshes"][0]["pubkey"])
    }

    pub(crate) fn send(&self, to: &str, message: &str, id: &str) -> Output {
        self.daemon(&["send", to, message, "--id", id])
    }

    pub(crate) fn outbox_status(&self, id: &str) -> String {
        status_in(&printed(&self.daemon(&["outbox", "--limit", "500"])), id)
    }

    /// The ids in the inbox, oldest first.
    pub(crate) fn inbox_ids(&self) -> Vec<String> {
        let inbox = printed(&self.daemon(&["inbox", "--limit", "1000"]));
        let items = inbox["items"].as_array().expect("a list");
        let ids = items
            .iter()
            .rev()
            .map(|item| word(&item["client_message_id"]));
        ids.collect()
    }

    /// The ids in the inbox, in the order in which the broker accepted them.
    pub(crate) fn accepted_ids(&self) -> Vec<String> {
        let inbox = printed(&self.daemon(&["inbox", "--limit", "1000"]));
        let items = inbox["items"].as_array().expect("a list");
        let of = |item: &Value, key: &str| word(&item[key]);
        let mut ids: Vec<(String, String)> = items
            .iter()
            .map(|item| (of(item, "broker_message_id"), of(item, "client_message_id")))
            .collect();
        ids.sort();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    pub(crate) fn wait_received(&self, id: &str) {
        wait_for(&format!("{id} is received"), || {
            self.inbox_ids().iter().any(|one| one == id)
        });
    }

    /// Writes the file that `api_key_file = "intents_key"` names.
    pub(crate) fn write_intents_key(&self, key: &str) {
        let file = self.folder().join("intents_key");
        std::fs::write(&file, key).expect("a key can be written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("its mode can be set");
    }

    /// Writes the settings of the daemon, before its start.
    pub(crate) fn configure(&self, settings: &str) {
        std::fs::create_dir_all(self.folder()).expect("the folder can be made");
        std::fs::write(self.folder().join("config.toml"), settings).expect("a file can be written");
    }
}

/// What tests of crashes need.
#[cfg(feature = "planted")]
impl MeshWorld {
    /// Starts a server that kills itself at the failpoint, perhaps before it serves.
    pub(crate) fn start_broker_until(&mut self, failpoint: &str) {
        let options = self.options().env(FAILPOINT, failpoint);
        match Server::start(&options) {
            Ok(server) => self.server = Some(server),
            Err(error) => assert!(process::killed_at_start(&error), "{error}"),
        }
    }

    /// Whether the server has ended by itself, perhaps before it served.
    pub(crate) fn broker_has_ended(&mut self) -> bool {
        let server = self.server.as_mut();
        server.is_none_or(|server| server.wait(Duration::ZERO).is_ok())
    }

    /// The ids that the broker has accepted, with the number of messages of each.
    pub(crate) fn accepted_messages(&self) -> Vec<String> {
        let file = self.place.data().join("consign.db");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let database = rusqlite::Connection::open_with_flags(file, flags).expect("a database");
        let sql = "SELECT client_message_id FROM message_queue ORDER BY client_message_id";
        let mut found = database.prepare(sql).expect("a view of the broker");
        let ids = found.query_map([], |row| row.get(0)).expect("rows");
        ids.map(|id| id.expect("a text")).collect()
    }
}

#[cfg(feature = "planted")]
impl MeshUser {
    /// Whether a signal has ended the daemon.
    pub(crate) fn was_killed(&mut self) -> bool {
        let daemon = self.daemon.as_mut().expect("a daemon was started");
        let ended = daemon.try_wait().expect("the daemon is a child");
        ended.is_some_and(|status| {
            assert!(status.signal().is_some(), "{status}: {}", self.stderr());
            true
        })
    }

    /// The ids in the inbox while the daemon may be gone.
    pub(crate) fn received_or_none(&self) -> Vec<String> {
        let inbox = self.daemon(&["inbox", "--limit", "1000"]);
        if !inbox.status.success() {
            return Vec::new();
        }
        let inbox = printed(&inbox);
        let items = inbox["items"].as_array().expect("a list").iter();
        items.map(|item| word(&item["client_message_id"])).collect()
    }

    /// The status of a row while the daemon may be gone.
    pub(crate) fn outbox_status_or_none(&self, id: &str) -> String {
        let is_running = self.daemon(&["status"]).status.success();
        if is_running {
            let outbox = self.daemon(&["outbox", "--limit", "500"]);
            if outbox.status.success() {
                return status_in(&printed(&outbox), id);
            }
        }
        String::new()
    }
}

impl Drop for MeshUser {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        } else if self.folder().join("pid").exists() {
            // One that detached.
            let _ = self.daemon(&["down"]);
        }
    }
}

/// The status of a row in a list of the outbox, or nothing.
fn status_in(outbox: &Value, id: &str) -> String {
    let rows = outbox["items"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["client_message_id"] == id);
    row.map_or_else(String::new, |row| word(&row["status"]))
}

/// Repeats a look until it succeeds.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + MESH_PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The exit code and the error of a command that must fail.
#[track_caller]
pub(crate) fn failed(output: &Output) -> (i32, String) {
    assert!(!output.status.success(), "{output:?}");
    (code(output), text(&output.stderr))
}

/// Joins a mesh of another broker, without asking it.
pub(crate) fn write_config(home: &Path, broker_url: &str) {
    let key = consign_mesh::keys::MeshPrivateKey::from_seed(&[7; 32]);
    let config = serde_json::json!({"version": 1, "meshes": [{
        "meshId": "mesh-1", "memberId": "m-1", "slug": MESH, "name": MESH,
        "pubkey": key.public_key().to_string(), "secretKey": key.reveal().as_str(),
        "brokerUrl": broker_url, "joinedAt": "2026-01-01T00:00:00.000Z",
    }]});
    let folder = home.join(".claudemesh");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file can be written");
}
