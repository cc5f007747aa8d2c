//! Row S8: commands on the machine of a server send their secrets to that server alone.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use consign_testkit::process::{self, Options};
use consign_testkit::unprivileged::User;
use serde_json::Value;

use crate::place::{PATIENCE, Place, binary, code, mode, printed, refusal, start, text};

/// Commands that send the admin token, the main key, or documents signed by an agent.
const COMMANDS: [&[&str]; 6] = [
    &["key", "list"],
    &["key", "revoke", "tk_x", "--yes"],
    &["node", "list"],
    &["intent", "publish", "hello", "{}"],
    &["intent", "show", "abc"],
    &["receipt", "show", "abc"],
];

const UNREACHABLE: i32 = 5;

/// Listens on the address of a stopped server and returns the bytes that it receives.
fn listen_instead(authority: &str) -> Receiver<String> {
    let listener = TcpListener::bind(authority).expect("the port is free again");
    let (heard, hears) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or(0);
            let _ = heard.send(text(&head[..read]));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        }
    });
    hears
}

fn assert_silence(hears: &Receiver<String>) {
    let heard = hears.recv_timeout(Duration::from_millis(50));
    assert!(heard.is_err(), "it was sent: {heard:?}");
}

fn said(output: &Output) -> String {
    text(&output.stderr)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("the mode can be set");
}

#[test]
fn s8_a_stopped_or_killed_server_leaves_nobody_who_is_trusted() {
    for killed in [false, true] {
        let place = Place::new();
        let mut server = place.start();
        let data = place.data();
        let url = server.base_url().to_owned();
        let noted = fs::read_to_string(data.join("address")).expect("a running server notes it");
        assert_eq!(noted.trim(), url);
        let authority = server.authority().to_owned();
        if killed {
            server.kill9().expect("it can be killed");
            assert!(data.join("address").exists(), "nobody could remove it");
        } else {
            let ended = server.terminate(PATIENCE).expect("it stops");
            assert!(ended.success(), "{ended}");
            for name in ["address", "consign.sock"] {
                assert!(!data.join(name).exists(), "{name} stays after a stop");
            }
        }
        let hears = listen_instead(&authority);
        let named_too = [vec![], vec!["--server", url.as_str()]];
        if !killed {
            // As an attacker with write access would restore it.
            fs::write(data.join("address"), &noted).expect("it can be written");
        }
        for args in COMMANDS {
            for named in &named_too {
                let args = [args, &named[..]].concat();
                if args[..2] == ["receipt", "show"] && !named.is_empty() {
                    // Sends no secret, so it may query any server that is named.
                    continue;
                }
                let output = place.consign(&args);
                assert_eq!(code(&output), UNREACHABLE, "{args:?}: {output:?}");
            }
        }
        assert_silence(&hears);
    }
}

#[test]
fn s8_a_directory_that_others_can_write_to_is_refused_by_server_and_commands() {
    let place = Place::new();
    let mut server = place.start();
    let (data, authority) = (place.data(), server.authority().to_owned());
    set_mode(&data, 0o777);
    let output = place.consign(&["key", "list"]);
    assert_eq!(code(&output), 1, "also while its server runs: {output:?}");
    server.terminate(PATIENCE).expect("it stops");

    let hears = listen_instead(&authority);
    let planted = format!("http://{authority}\n");
    for loose in [0o777, 0o770, 0o1777, 0o2775, 0o703] {
        set_mode(&data, loose);
        fs::write(data.join("address"), &planted).expect("it can be written");
        let (refused, why) = refusal(&place.options());
        assert_eq!(refused, 1, "{loose:o}: {why}");
        assert!(why.contains("other users can write to"), "{why}");
        assert!(why.contains("chmod go-w"), "{why}");
        for args in COMMANDS {
            let output = place.consign(args);
            let why = said(&output);
            assert_eq!(code(&output), 1, "{loose:o} {args:?}: {output:?}");
            assert!(why.contains("chmod go-w"), "{why}");
        }
        let named = ["key", "list", "--server", planted.trim()];
        assert_eq!(code(&place.consign(&named)), 1);
    }
    assert_silence(&hears);
    // A new directory inside such a directory, as on a volume, is private.
    let inside = place.options_with(data.join("consign"));
    let inside = Options {
        args: Vec::new(),
        ..inside
    };
    drop(start(&inside));
    set_mode(&data, 0o755);
    drop(place.start());
}

/// Whether this test can use two users.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[test]
fn s8_a_directory_of_another_user_is_refused() {
    let place = Place::new();
    drop(place.start());
    let user = User::find().expect("there is a user to be");
    user.owns(&place.data()).expect("it can be given away");
    if !is_root() {
        return;
    }
    let (refused, why) = refusal(&place.options());
    assert_eq!(refused, 1, "{why}");
    assert!(why.contains("belongs to another user"), "{why}");
    let output = place.consign(&["key", "list"]);
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(said(&output).contains("belongs to another user"));
}

/// A server of another user if the test can use two users, otherwise another server of the same user.
struct Stranger {
    folder: tempfile::TempDir,
    child: Child,
}

impl Stranger {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let user = User::find().expect("there is a user to be");
        let program = folder.path().join("consign");
        // The build directory may be inaccessible to that user.
        fs::copy(binary(), &program).expect("the program can be copied");
        user.owns(folder.path()).expect("it can be given away");
        let child = user
            .command(&program)
            .args(["serve", "--listen", "127.0.0.1:0", "--access-log", "--data"])
            .arg(folder.path().join("data"))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join("log")).expect("a log can be made"))
            .spawn()
            .expect("the program starts");
        let stranger = Self { folder, child };
        let deadline = Instant::now() + PATIENCE;
        while !stranger.folder.path().join("data/address").exists() {
            assert!(Instant::now() < deadline, "{}", stranger.log());
            thread::sleep(Duration::from_millis(10));
        }
        stranger
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("data/consign.sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn s8_a_socket_of_somebody_else_gets_no_secret() {
    let stranger = Stranger::start();
    let place = Place::new();
    let mut server = place.start();
    let socket = place.data().join("consign.sock");
    fs::remove_file(&socket).expect("it is there");
    symlink(stranger.socket(), &socket).expect("it can be replaced");
    let refuse = |why: &str| {
        for args in COMMANDS {
            let output = place.consign(args);
            assert_eq!(code(&output), UNREACHABLE, "{args:?}: {output:?}");
            assert!(said(&output).contains(why), "{why}: {}", said(&output));
        }
    };
    // The lock is held, but not by the server that answers.
    refuse(if is_root() {
        "belongs to another user"
    } else {
        "is held by"
    });
    server.kill9().expect("it can be killed");
    refuse(if is_root() {
        "belongs to another user"
    } else {
        "nobody holds"
    });
    assert!(!stranger.log().contains("request"), "{}", stranger.log());
}

#[test]
fn s8_a_socket_of_the_same_user_must_belong_to_who_holds_the_lock() {
    let place = Place::new();
    let server = place.start();
    let other = place.path("other");
    let options = Options {
        args: vec!["--access-log".to_owned()],
        ..place.options_with(other.clone())
    };
    let second = start(&options);
    let socket = place.data().join("consign.sock");
    fs::rename(other.join("consign.sock"), &socket).expect("it can be replaced");
    let output = place.consign(&["key", "list"]);
    assert_eq!(code(&output), UNREACHABLE, "{output:?}");
    assert!(said(&output).contains("is held by"), "{output:?}");
    drop(server);
    let output = place.consign(&["key", "list"]);
    assert_eq!(code(&output), UNREACHABLE, "{output:?}");
    assert!(said(&output).contains("nobody holds"), "{output:?}");
    assert!(!second.stderr().contains("/admin/keys"));
}

#[test]
fn s8_without_its_lock_file_a_server_is_not_known_and_gets_no_secret() {
    let place = Place::new();
    let _server = place.start();
    fs::remove_file(place.data().join("lock")).expect("it is there");
    let output = place.consign(&["key", "list"]);
    assert_eq!(code(&output), UNREACHABLE, "{output:?}");
    assert!(said(&output).contains("nobody holds"), "{output:?}");
}

/// Sends one request without a key on the socket.
fn ask(socket: &Path, method: &str, path: &str, more: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is set");
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn s8_reaching_the_socket_alone_grants_nothing() {
    let place = Place::new();
    let server = start(&place.options().env("BUS_TRUST_PROXY", "true"));
    let socket = place.data().join("consign.sock");
    for (method, path) in [
        ("GET", "/admin/keys"),
        ("POST", "/admin/purge"),
        ("GET", "/metrics"),
        ("POST", "/intent"),
        ("POST", "/claim"),
        ("GET", "/status/abc"),
    ] {
        let answer = ask(&socket, method, path, "X-Forwarded-For: 127.0.0.1\r\n");
        let over_tcp = match method {
            "GET" => server.http().get(path),
            _ => server.http().post(path, &Value::Null),
        };
        let status = over_tcp.expect("the server answers").status;
        assert!((401..=403).contains(&status), "{path}: {status}");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    assert!(ask(&socket, "GET", "/health", "").starts_with("HTTP/1.1 200 "));
}

#[test]
fn s8_commands_work_over_the_socket_with_long_names_enforced_https_and_umask_0() {
    let place = Place::new();
    let long = place.path(&"d".repeat(150)).join("data");
    let options = place.options_with(long.clone());
    let mut command = process::cleaned(Path::new("sh"));
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]);
    command
        .arg(binary())
        .args(["serve", "--listen", "127.0.0.1:0"]);
    command.arg("--data").arg(&long).args(&options.args);
    command
        .env("BUS_ENFORCE_HTTPS", "true")
        .stdin(Stdio::null());
    let log = File::create(place.path("log")).expect("a log can be made");
    command.stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().expect("the server starts");
    let deadline = Instant::now() + PATIENCE;
    while !long.join("address").exists() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(10));
    }
    let data = long.to_string_lossy();
    let listed = place.consign(&["key", "list", "--json", "--data", &data]);
    let published = place.consign(&["intent", "publish", "x", "{}", "--json", "--data", &data]);
    let modes = [".", "keys", "consign.sock", "address", "lock"].map(|name| mode(&long.join(name)));
    process::signal(child.id(), "TERM").expect("it is told");
    let ended = child.wait().expect("it ends");
    printed(&listed);
    assert_eq!(printed(&published)["status"], "published");
    assert_eq!(modes, [0o700, 0o700, 0o600, 0o600, 0o600]);
    assert!(ended.success(), "{ended}");
    let left: Vec<_> = ["consign.sock", "consign.sock.new", "address"]
        .into_iter()
        .filter(|name| long.join(name).exists())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn s8_a_second_server_leaves_socket_and_address_of_the_first_alone() {
    let place = Place::new();
    let mut server = place.start();
    let (refused, why) = refusal(&place.options());
    assert_eq!(refused, 1, "{why}");
    printed(&place.consign(&["key", "list", "--json"]));
    // The files of a killed server are replaced by the next one.
    server.kill9().expect("it can be killed");
    assert_eq!(code(&place.consign(&["key", "list"])), UNREACHABLE);
    let _next = place.start();
    printed(&place.consign(&["key", "list", "--json"]));
}
