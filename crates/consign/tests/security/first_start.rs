//! Secrets that a start generates: shown only at a terminal.

use std::process::{Command, Output};

use consign_testkit::process;

use crate::place::{PATIENCE, Place, binary, text};

const SHOWN: [(&str, &str); 4] = [
    ("the main API key", "bus_secret"),
    ("the admin token", "admin_secret"),
    ("the dashboard password", "dashboard_password"),
    ("the metrics token", "metrics_token"),
];
const NEVER_SHOWN: [&str; 2] = ["seal_key", "receipt_seed"];

/// Runs its arguments at a new terminal until they report that they are running, and prints their output.
const AT_A_TERMINAL: &str = r"
import os, pty, signal, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said = b''
while b'\nclaim ' not in said:
    try:
        said += os.read(terminal, 4096)
    except OSError:
        break
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
os.write(1, said)
";

#[test]
fn first_start_without_a_terminal_tells_the_files_of_its_secrets_and_no_secret() {
    let place = Place::new();
    let mut server = place.start();
    let lines = server.stdout_lines().join("\n");
    let log = server.stderr();
    for line in log.lines() {
        let line: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(line.is_ok(), "a log in JSON has no other lines: {log}");
    }
    let listening = log.lines().find(|line| line.contains("\"listening\""));
    let listening = listening.expect("the log tells that it listens");
    assert!(listening.contains(server.base_url()), "{listening}");
    let said = format!("{log}\n{lines}");
    for (what, name) in SHOWN {
        let file = place.data().join("keys").join(name);
        let told = format!("made {what}: kept in {}", file.display());
        assert!(said.contains(&told), "{said}");
    }
    for name in SHOWN.map(|(_, name)| name).into_iter().chain(NEVER_SHOWN) {
        let secret = server.secret(name).expect("it was made");
        assert!(!said.contains(&secret), "{name} was shown: {said}");
    }
    assert!(server.terminate(PATIENCE).expect("it ends").success());
}

#[test]
fn first_start_at_a_terminal_with_a_log_in_json_shows_no_secret() {
    let place = Place::new();
    let mut command = process::cleaned("python3".as_ref());
    command.args(["-c", AT_A_TERMINAL]).arg(binary());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--data",
    ]);
    command.arg(place.data());
    let output = process::run(command, PATIENCE).expect("it ends in time");
    let said = text(&output.stdout);
    assert!(said.contains("made the admin token: kept in"), "{said}");
    for name in SHOWN.map(|(_, name)| name).into_iter().chain(NEVER_SHOWN) {
        let file = place.data().join("keys").join(name);
        let secret = std::fs::read_to_string(file).expect("it was made");
        assert!(!said.contains(secret.trim()), "{name} was shown: {said}");
    }
}

#[test]
fn first_start_at_a_terminal_shows_what_has_to_be_typed_once() {
    let place = Place::new();
    let start = || -> Output {
        let mut command = process::cleaned("python3".as_ref());
        command.args(["-c", AT_A_TERMINAL]).arg(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(place.data());
        process::run(command, PATIENCE).expect("it ends in time")
    };
    let read = |name: &str| {
        let file = place.data().join("keys").join(name);
        let secret = std::fs::read_to_string(file).expect("it was made");
        secret.trim().to_owned()
    };
    let first = text(&start().stdout);
    for (what, name) in SHOWN {
        let told = format!("made {what}: {}  (shown once", read(name));
        assert!(first.contains(&told), "{first}");
    }
    let again = text(&start().stdout);
    assert!(again.contains("listening"), "{again}");
    for name in SHOWN.map(|(_, name)| name).into_iter().chain(NEVER_SHOWN) {
        assert!(!again.contains(&read(name)), "{again}");
        assert!(
            !NEVER_SHOWN.contains(&name) || !first.contains(&read(name)),
            "{first}"
        );
    }
}

#[test]
fn first_start_of_an_automation_shows_no_secret() {
    let world = crate::automation_world::World::new();
    world.config("plugins: {}\n");
    let mut command: Command = process::cleaned(&world.path("ductile"));
    command
        .args(["system", "start", "--config"])
        .arg(world.path("config.yaml"))
        .stderr(std::fs::File::create(world.path("stderr")).expect("a file can be made"));
    let mut service = crate::automation_world::Service::spawn(command);
    service.until_logged("the automation is running");
    service.signal("TERM");
    assert!(service.wait().success());
    let said = format!("{}{}", service.lines().join("\n"), world.read("stderr"));
    let mut seen = 0;
    for entry in std::fs::read_dir(world.path("state/keys")).expect("it made keys") {
        let file = entry.expect("it can be listed").path();
        let secret = std::fs::read_to_string(&file).expect("it can be read");
        assert!(!said.contains(secret.trim()), "{file:?}: {said}");
        seen += 1;
    }
    assert!(seen >= 6, "so nothing was looked at");
}
