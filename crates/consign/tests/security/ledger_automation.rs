//! S5, S9 and S7 of the ledger of an automation service.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use consign_testkit::process;

use crate::place::*;

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(place: &Place, args: &[&str]) -> Command {
    let mut command = process::cleaned(&binary());
    command
        .args(args)
        .arg("--config")
        .arg(place.path("config.yaml"))
        .env("HOME", place.folder.path())
        .stdin(Stdio::null());
    command
}

fn ended(place: &Place, args: &[&str]) -> Output {
    process::run(command(place, args), PATIENCE).expect("the command ends in time")
}

fn refused(place: &Place, way_out: &str) {
    let output = ended(place, &["system", "start"]);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(code(&output), 1, "{said}");
    assert!(said.contains(way_out), "{said}");
}

fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("plugins")).unwrap();
    let config = "plugin_roots: [plugins]\nstate: {path: state/ductile.db}\n";
    fs::write(place.path("config.yaml"), config).unwrap();
    place
}

/// Starts the service and waits until it accepts requests.
fn start(place: &Place, more: &[&str]) -> Service {
    let mut command = command(place, &[&["system", "start"], more].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let service = Service(command.spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    while std::os::unix::net::UnixStream::connect(place.path("state/ductile.sock")).is_err() {
        assert!(Instant::now() < deadline, "the service does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    service
}

fn stop(mut service: Service) {
    process::signal(service.0.id(), "TERM").unwrap();
    assert!(service.0.wait().unwrap().success());
}

#[test]
fn s5_removed_lock_files_let_no_second_automation_in() {
    let place = place();
    let service = start(&place, &[]);
    for name in ["ductile.lock", "ductile.db.lock"] {
        fs::remove_file(place.path("state").join(name)).unwrap();
    }
    refused(&place, "in use");
    // A server that uses another name of the file is refused, too.
    fs::hard_link(place.path("state/ductile.db"), place.path("linked.db")).unwrap();
    let linked = format!("sqlite:{}", place.path("linked.db").display());
    let (code, said) = refusal(&place.options().arg("--store").arg(&linked));
    assert!(code == 1 && said.contains("in use"), "{said}");
    stop(service);
}

#[test]
fn s9_s7_a_lost_ledger_and_one_from_the_future_are_refused_for_the_automation_too() {
    let place = place();
    stop(start(&place, &[]));
    let ledger = place.path("state/ductile.db");
    let file = rusqlite::Connection::open(&ledger).unwrap();
    let ahead = "UPDATE position SET last_time = (unixepoch() + 864000) * 1000000";
    file.execute(ahead, []).unwrap();
    drop(file);
    refused(&place, "--clock-ahead");
    stop(start(&place, &["--clock-ahead"]));
    fs::write(&ledger, "").unwrap();
    refused(&place, "--new-ledger");
    fs::remove_file(&ledger).unwrap();
    refused(&place, "--new-ledger");
    let queued = ended(&place, &["job", "list"]);
    assert!(!ledger.exists(), "no command makes one: {queued:?}");
    stop(start(&place, &["--new-ledger"]));
    stop(start(&place, &[]));
}
