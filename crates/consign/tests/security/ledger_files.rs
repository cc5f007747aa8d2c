//! S5, S9, S10 and S7 of a SQLite file: one server per file under all its names, and files that other processes change.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use consign_testkit::process::{self, Options, Server};
use consign_testkit::shim::Shim;
use serde_json::json;

use crate::place::*;

fn store(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// A server with its own data directory, on a file elsewhere.
fn on(place: &Place, data: &str, file: &Path) -> Options {
    let options = Options::new(binary(), place.path(data));
    options.arg("--store").arg(&store(file))
}

fn refused_as_in_use(options: &Options) {
    let (code, said) = refusal(options);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("in use"), "{said}");
}

/// Copies the secrets, as a user who links or copies a ledger does.
fn beside(place: &Place, name: &str) -> Options {
    consign_testkit::process::copy_secrets(&place.data(), &place.path(name)).unwrap();
    Options::new(binary(), place.path(name))
}

fn remove_locks(data: &Path) {
    for name in ["lock", "consign.db.lock"] {
        let _ = fs::remove_file(data.join(name));
    }
}

#[test]
fn s5_removed_lock_files_let_no_second_server_in() {
    let place = Place::new();
    let mut server = place.start();
    let mut http = main_client(&server);
    for _ in 0..3 {
        published(&mut http, "before");
        remove_locks(&place.data());
        refused_as_in_use(&place.options());
    }
    for args in [
        &["store", "check"][..],
        &["store", "check", "--repair"],
        &["store", "migrate"],
        &["import", "intent-bus", "nothing.db", "--yes"],
    ] {
        remove_locks(&place.data());
        assert_ne!(code(&place.consign(args)), 0, "{args:?}");
    }
    let (from, to) = (
        store(&place.data().join("consign.db")),
        store(&place.path("to.db")),
    );
    remove_locks(&place.data());
    let copied = place.consign(&["store", "copy", "--from", &from, "--to", &to]);
    assert_eq!(code(&copied), 1, "{copied:?}");
    published(&mut http, "after");
    // The server creates the files again within a second, so that commands find it.
    let deadline = Instant::now() + PATIENCE;
    while !place.data().join("lock").exists() || !place.data().join("consign.db.lock").exists() {
        assert!(Instant::now() < deadline, "nobody made them again");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.terminate(PATIENCE).unwrap().success());
    assert_eq!(code(&place.consign(&["store", "check"])), 0);
}

#[test]
fn s10_a_hard_link_is_the_same_ledger_and_a_copy_is_another() {
    let place = Place::new();
    let mut server = place.start();
    let id = published(&mut main_client(&server), "kept");
    let (data, linked) = (place.data(), beside(&place, "linked"));
    fs::hard_link(data.join("consign.db"), linked.data.join("consign.db")).unwrap();
    refused_as_in_use(&linked);
    refused_as_in_use(&on(&place, "third", &linked.data.join("consign.db")));
    let soft = place.path("soft.db");
    std::os::unix::fs::symlink(data.join("consign.db"), &soft).unwrap();
    refused_as_in_use(&on(&place, "fourth", &soft));
    let by_variable = Options::new(binary(), place.path("fifth")).env(
        "BUS_DB_PATH",
        &linked.data.join("consign.db").to_string_lossy(),
    );
    refused_as_in_use(&by_variable);
    let file = store(&linked.data.join("consign.db"));
    for args in [
        &["store", "check", "--store", &file][..],
        &["store", "check", "--repair", "--store", &file],
        &["store", "migrate", "--store", &file],
        &[
            "store",
            "copy",
            "--from",
            &file,
            "--to",
            &store(&place.path("to.db")),
        ],
    ] {
        assert_eq!(code(&place.consign(args)), 1, "{args:?}");
    }
    assert!(server.terminate(PATIENCE).unwrap().success());
    let copied = beside(&place, "copied");
    fs::copy(data.join("consign.db"), copied.data.join("consign.db")).unwrap();
    let [first, second] = [place.options(), copied].map(|options| start(&options));
    for server in [&first, &second] {
        let mut http = main_client(server);
        assert_eq!(status_of(&mut http, &id), "open");
        published(&mut http, "goes on");
    }
}

#[test]
fn s10_after_a_kill_a_hard_link_does_not_go_on_without_the_log() {
    let place = Place::new();
    let mut server = place.start();
    let id = published(&mut main_client(&server), "kept");
    let linked = beside(&place, "linked");
    fs::hard_link(
        place.data().join("consign.db"),
        linked.data.join("consign.db"),
    )
    .unwrap();
    server.kill9().unwrap();
    let (code, said) = refusal(&linked);
    assert!(
        code == 1 && said.contains("start it by that name"),
        "{said}"
    );
    let mut server = place.start();
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
    assert!(server.terminate(PATIENCE).unwrap().success());
    let server = start(&linked);
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
}

/// Writes a script that starts the binary in its own mount namespace, in which `from` is also mounted at `to`. None if the
/// system does not allow such a namespace.
fn with_mount(place: &Place, name: &str, from: &Path, to: &Path) -> Option<PathBuf> {
    let mut unshare = vec!["unshare", "--mount"];
    if !rustix::process::geteuid().is_root() {
        unshare.push("--map-root-user");
    }
    let mut attempt = process::cleaned(Path::new(unshare[0]));
    attempt.args(&unshare[1..]).args(["mount", "--bind"]);
    attempt.arg(from).arg(to);
    if !process::run(attempt, PATIENCE).is_ok_and(|ended| ended.status.success()) {
        return None;
    }
    let script = place.path(name);
    let text = format!(
        "#!/bin/sh\nexec {} sh -c 'mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"' sh '{}' '{}' '{}' \"$@\"\n",
        unshare.join(" "),
        from.display(),
        to.display(),
        binary().display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    Some(script)
}

#[test]
fn s5_s10_a_mounted_directory_or_file_is_the_same_ledger() {
    let place = Place::new();
    let mut server = place.start();
    let key = server.secret("bus_secret").unwrap();
    let id = published(&mut main_client(&server), "kept");
    let data = place.data();
    // The directory under another name.
    let mut by_directory = Options::new(binary(), place.path("mounted"));
    fs::create_dir(&by_directory.data).unwrap();
    fs::set_permissions(&by_directory.data, fs::Permissions::from_mode(0o700)).unwrap();
    // Its file under another name, in a directory with the same secrets and its own lock files.
    let mut by_file = beside(&place, "with-file");
    let file = by_file.data.join("consign.db");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let scripts = (
        with_mount(&place, "mount-directory", &data, &by_directory.data),
        with_mount(&place, "mount-file", &data.join("consign.db"), &file),
    );
    // Without mounts, `/proc/self/root` still provides a second name for every file.
    let root = Path::new("/proc/self/root").join(data.strip_prefix("/").unwrap());
    let mut ways = vec![
        Options::new(binary(), &root),
        on(&place, "by-root", &root.join("consign.db")),
    ];
    let can_mount = scripts.0.is_some();
    if let (Some(directory), Some(one_file)) = scripts {
        by_directory.binary = directory;
        by_file.binary = one_file;
        let mut on_mounted = on(&place, "on-mounted", &by_directory.data.join("consign.db"));
        on_mounted.binary.clone_from(&by_directory.binary);
        ways.extend([by_directory.clone(), by_file, on_mounted]);
    } else {
        eprintln!("no mount namespaces here: only /proc/self/root was tried");
    }
    for options in &ways {
        refused_as_in_use(options);
        remove_locks(&data);
        refused_as_in_use(options);
    }
    published(&mut main_client(&server), "goes on");
    assert!(server.terminate(PATIENCE).unwrap().success());
    assert_eq!(code(&place.consign(&["store", "check"])), 0);
    if can_mount {
        // The mounted directory has the same ledger.
        let server = start(&by_directory);
        let mut http = server.http().header("X-API-KEY", &key);
        assert_eq!(status_of(&mut http, &id), "open");
    }
}

#[test]
fn s5_a_renamed_directory_lets_no_second_server_in_and_loses_nothing() {
    let place = Place::new();
    let mut server = place.start();
    let id = published(&mut main_client(&server), "kept");
    let moved = place.path("moved");
    fs::rename(place.data(), &moved).unwrap();
    remove_locks(&moved);
    let mut second = Options::new(binary(), moved);
    second.listen.clone_from(&place.options().listen);
    if let Ok(mut second) = Server::start(&second) {
        // The first server has exited by then.
        assert!(!server.wait(PATIENCE).unwrap().success());
        assert!(second.terminate(PATIENCE).unwrap().success());
    } else {
        assert!(!server.wait(PATIENCE).unwrap().success());
    }
    let server = start(&second);
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
}

#[test]
fn s9_a_log_that_is_removed_replaced_or_cut_stops_the_server_before_it_acknowledges_more() {
    type Meddling = (&'static str, fn(&Path), bool);
    let ways: [Meddling; 4] = [
        ("removed", |log| fs::remove_file(log).unwrap(), true),
        (
            "moved",
            |log| fs::rename(log, log.with_extension("x")).unwrap(),
            true,
        ),
        (
            "replaced",
            |log| {
                fs::write(log.with_extension("x"), "").unwrap();
                fs::rename(log.with_extension("x"), log).unwrap();
            },
            true,
        ),
        ("emptied", |log| fs::write(log, "").unwrap(), false),
    ];
    for (what, meddle, saved) in ways {
        for idle in [false, true] {
            let place = Place::new();
            let mut server = place.start();
            let mut http = main_client(&server);
            let ids: Vec<_> = (0..5).map(|_| published(&mut http, "kept")).collect();
            let began = Instant::now();
            meddle(&place.data().join("consign.db-wal"));
            if !idle {
                let body = json!({"goal": "late", "payload": {}});
                let status = http.post("/intent", &body).map_or(0, |reply| reply.status);
                assert_ne!(status, 201, "{what}: acknowledged");
            }
            let status = server.wait(PATIENCE).unwrap();
            assert_eq!(status.code(), Some(1), "{what}");
            assert!(began.elapsed() < Duration::from_secs(3), "{what}");
            let said = server.stderr();
            assert!(said.contains("consign.db-wal"), "{what}: {said}");
            if saved {
                let server = place.start();
                let mut http = main_client(&server);
                for id in &ids {
                    assert_eq!(status_of(&mut http, id), "open", "{what}");
                }
            }
        }
    }
}

#[test]
fn s9_an_empty_ledger_beside_keys_is_refused_by_whatever_name_it_is_given() {
    let place = Place::new();
    let elsewhere = place.path("elsewhere.db");
    for options in [
        place.options(),
        on(&place, "by-flag", &elsewhere),
        Options::new(binary(), place.path("by-variable"))
            .env("BUS_DB_PATH", &place.path("variable.db").to_string_lossy()),
    ] {
        let mut server = start(&options);
        published(&mut main_client(&server), "kept");
        assert!(server.terminate(PATIENCE).unwrap().success());
        let own = options.data.join("consign.db");
        let files = [own, elsewhere.clone(), place.path("variable.db")];
        let file = files.iter().find(|file| file.exists()).unwrap();
        fs::write(file, "").unwrap();
        let (code, said) = refusal(&options);
        assert!(code == 1 && said.contains("--new-ledger"), "{said}");
        assert_eq!(fs::metadata(file).unwrap().len(), 0, "it is as it was");
        fs::remove_file(file).unwrap();
        let (code, said) = refusal(&options);
        assert!(code == 1 && said.contains("--new-ledger"), "{said}");
    }
}

#[test]
fn s9_a_backup_that_is_put_back_starts_without_a_word() {
    let place = Place::new();
    let mut server = place.start();
    let id = published(&mut main_client(&server), "kept");
    let backup = place.path("backup.db");
    let saved = place.consign(&["store", "backup", &backup.to_string_lossy()]);
    assert_eq!(code(&saved), 0, "{saved:?}");
    server.kill9().unwrap();
    for name in ["consign.db", "consign.db-wal", "consign.db-shm"] {
        let _ = fs::remove_file(place.data().join(name));
    }
    fs::rename(&backup, place.data().join("consign.db")).unwrap();
    let server = place.start();
    assert_eq!(status_of(&mut main_client(&server), &id), "open");
}

#[test]
fn s7_time_asleep_ends_leases_and_a_set_clock_does_not() {
    let place = Place::new();
    let shim = Shim::build(place.folder.path()).expect("cc builds the shim");
    let server = start(&shim.under(place.options(), "consign.db"));
    let mut http = main_client(&server);
    let held = published(&mut http, "held");
    let mut claimed = || {
        let reply = http.post("/claim", &json!({})).expect("the server answers");
        (reply.status == 200).then(|| word(&reply.json()["id"]))
    };
    assert_eq!(claimed().as_ref(), Some(&held));
    shim.move_clock(20 * 60).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(claimed(), None, "the clock was set, and no lease ended");
    shim.has_slept(20 * 60).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let again = loop {
        if let Some(again) = claimed() {
            break again;
        }
        assert!(
            Instant::now() < deadline,
            "its lease is over since it slept"
        );
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(again, held);
    assert!(
        server
            .stderr()
            .contains("the wall clock is ahead of engine time")
    );
}
