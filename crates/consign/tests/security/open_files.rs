//! The limit of open files of a plugin: the limit before the service raised its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use consign_testkit::process;

use crate::automation_world::{Service, World, until};
use crate::place::{Place, binary, start};

const SOFT: &str = "321";
const CONFIG: &str = "\
plugins:
  plain: {}
  boxed: {sandbox: {best_effort: true}}
  small: {limits: {open_files: 50}}
";
/// The limit of the plugin and that of a process that it starts. A plugin in a sandbox cannot read `/proc`.
const SHOW: &str = r#"
own=$(ulimit -Sn)
read -r _ _ _ started _ < <(grep '^Max open files' /proc/self/limits 2>/dev/null || sh -c 'echo Max open files $(ulimit -Sn)')
echo "{\"status\": \"ok\", \"result\": \"$own $started\"}""#;

fn world() -> World {
    let world = World::new();
    for name in ["plain", "boxed", "small"] {
        world.plugin(name, SHOW);
    }
    world.config(CONFIG);
    world
}

/// The binary with its own soft limit. The hard limit is unchanged.
fn limited(folder: &Path) -> PathBuf {
    let script = folder.join("limited");
    let text = format!(
        "#!/bin/sh\nulimit -Sn {SOFT} && exec '{}' \"$@\"\n",
        binary().display()
    );
    fs::write(&script, text).expect("a script can be written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    script
}

/// The soft and hard limit of a process.
fn open_files(line: &str) -> (String, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    (words[3].to_owned(), words[4].to_owned())
}

fn of_service(pid: u32) -> (String, String) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits"));
    let limits = limits.expect("Linux tells the limits of a process");
    let mut lines = limits.lines();
    let line = lines.find(|line| line.starts_with("Max open files"));
    open_files(line.expect("it is listed"))
}

fn assert_given_back(world: &World, pid: u32) {
    let (soft, hard) = of_service(pid);
    assert_eq!(soft, hard, "the service raised its own");
    assert_ne!(soft, SOFT, "the test needs a higher hard limit");
    for (name, expected) in [("plain", SOFT), ("boxed", SOFT), ("small", "50")] {
        let ran = world.json(&["plugin", "run", name, "--command", "work", "--wait"]);
        assert_eq!(
            ran["result"]["result"],
            format!("{expected} {expected}"),
            "{name}: {ran}"
        );
    }
}

#[test]
fn s4_plugins_of_a_service_have_the_limit_of_open_files_it_was_started_with() {
    let world = world();
    let mut command: Command = process::cleaned(&limited(&world.path("")));
    command
        .args(["system", "start", "--config"])
        .arg(world.path("config.yaml"))
        .env("HOME", world.path(""))
        .stdin(Stdio::null());
    let service = Service::spawn(command);
    service.until_logged("the automation is running");
    assert_given_back(&world, service.pid());
}

#[test]
fn s4_plugins_of_a_server_have_the_limit_of_open_files_it_was_started_with() {
    let world = world();
    let place = Place::new();
    let config = world.path("config.yaml");
    let mut options = place
        .options()
        .arg("--config")
        .arg(&config.to_string_lossy());
    options.binary = limited(&world.path(""));
    let server = start(&options);
    until("the socket is there", || {
        world.path("state/ductile.sock").exists()
    });
    assert_given_back(&world, server.pid());
}
