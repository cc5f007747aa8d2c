//! `file-watch` over files that appear, change, disappear and become unreadable.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use consign_automation::plugin::confine::{Confinement, GuardedPaths, Sandbox};
use consign_automation::plugin::response::PluginResponse;
use consign_automation::plugin::run::{Launcher, ProcessSpec};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use super::{ask, found, job, refused, succeeded};
use crate::plugin_world::{World, finish};

async fn look(world: &World, state: &PluginResponse, more: Value) -> PluginResponse {
    ask("file-watch", "poll", members(world, state, more)).await
}

fn members(world: &World, state: &PluginResponse, more: Value) -> Value {
    let mut config = more;
    config["paths"] = json!([world.path("tree")]);
    json!({"config": config, "state": state.state_updates})
}

async fn first(world: &World, more: Value) -> PluginResponse {
    let mut config = more;
    config["paths"] = json!([world.path("tree")]);
    ask(
        "file-watch",
        "poll",
        json!({"config": config, "state": null}),
    )
    .await
}

/// The events as `kind name`, in order.
fn told(response: &PluginResponse) -> Vec<String> {
    let events = response.events.iter().map(|event| {
        let kind = event.kind.strip_prefix("file_watch.").unwrap();
        let path = event.payload["path"].as_str().unwrap();
        format!("{kind} {}", path.rsplit('/').next().unwrap())
    });
    events.collect()
}

#[tokio::test]
async fn new_changed_and_gone_files_are_told_once() {
    let world = World::new();
    world.file("tree/stays.csv", "1", 0o644);
    world.file("tree/deep/changes.csv", "1", 0o644);
    let gone = world.file("tree/goes.csv", "1", 0o644);
    let more = json!({"glob": "*.csv"});
    let before = first(&world, more.clone()).await;
    assert_eq!(
        (before.events.len(), before.result.as_str()),
        (0, "3 files, 0 changes")
    );

    world.file("tree/deep/changes.csv", "22", 0o644);
    world.file("tree/appears.csv", "1", 0o644);
    world.file("tree/ignored.txt", "1", 0o644);
    fs::remove_file(gone).unwrap();
    let after = look(&world, &before, more.clone()).await;
    assert_eq!(
        told(&after),
        [
            "created appears.csv",
            "changed changes.csv",
            "removed goes.csv"
        ]
    );
    assert_eq!(after.events[1].payload["size"], 2);
    assert_eq!(
        told(&look(&world, &after, more).await),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn a_file_that_is_dropped_again_with_its_old_time_is_told_again() {
    let world = World::new();
    fs::create_dir(world.path("tree")).unwrap();
    let kept = world.file("kept", "1", 0o644);
    let mut response = first(&world, json!({})).await;
    let mut all = Vec::new();
    for _ in 0..2 {
        // As `cp -p` and `rsync -a` do it.
        fs::hard_link(&kept, world.path("tree/dropped")).unwrap();
        response = look(&world, &response, json!({})).await;
        all.extend(response.events.clone());
        fs::remove_file(world.path("tree/dropped")).unwrap();
        response = look(&world, &response, json!({})).await;
    }
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].payload, all[1].payload);
    // With the same key, the second event would be a duplicate.
    assert!(all.iter().all(|event| event.dedupe_key.is_none()));
}

#[tokio::test]
async fn existing_files_globs_of_paths_and_flat_looks_are_options() {
    let world = World::new();
    world.file("tree/a.csv", "1", 0o644);
    world.file("tree/in/b.csv", "1", 0o644);
    world.file("tree/out/c.csv", "1", 0o644);
    let all = json!({"report_existing": true});
    assert_eq!(told(&first(&world, all).await).len(), 3);
    let some = json!({"report_existing": true, "glob": "in/*.csv"});
    assert_eq!(told(&first(&world, some).await), ["created b.csv"]);
    let flat = json!({"report_existing": true, "recursive": false});
    assert_eq!(told(&first(&world, flat).await), ["created a.csv"]);
}

#[tokio::test]
async fn a_flood_is_told_in_portions_and_nothing_is_lost() {
    let world = World::new();
    fs::create_dir(world.path("tree")).unwrap();
    let more = json!({"events_max": 4});
    let mut response = first(&world, more.clone()).await;
    for number in 0..10 {
        world.file(&format!("tree/{number}"), "1", 0o644);
    }
    let mut all = Vec::new();
    for expected in [4, 4, 2, 0] {
        response = look(&world, &response, more.clone()).await;
        assert_eq!(response.events.len(), expected, "{}", response.result);
        all.extend(told(&response));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 10);
    let told = refused(
        "file-watch",
        "poll",
        members(&world, &response, json!({"files_max": 9})),
    )
    .await;
    assert!(told.contains("files_max"), "{told}");
}

#[tokio::test]
async fn links_pipes_and_odd_names_do_no_harm() {
    let world = World::new();
    world.file("tree/in/plain", "1", 0o644);
    world.file("tree/new\nline \"quoted\"", "1", 0o644);
    let odd = world.path("tree").join(OsStr::from_bytes(b"not-\xff-text"));
    fs::write(odd, "1").unwrap();
    symlink("..", world.path("tree/in/loop")).unwrap();
    symlink("self", world.path("tree/self")).unwrap();
    symlink("/etc/passwd", world.path("tree/link")).unwrap();
    let pipe = world.path("tree/pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let response = first(&world, json!({"report_existing": true})).await;
    let names = told(&response);
    assert_eq!(
        names,
        [
            "created plain",
            "created new\nline \"quoted\"",
            "created not-\\xff-text"
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_read_has_not_gone() {
    let world = World::new();
    world.file("tree/open/seen", "1", 0o644);
    world.file("tree/closed/hidden", "1", 0o644);
    let before = first(&world, json!({})).await;
    fs::remove_file(world.path("tree/open/seen")).unwrap();
    // A sandbox makes other paths unreadable, even for root.
    let mut confined: ProcessSpec = job(
        &found("file-watch"),
        "poll",
        &members(&world, &before, json!({})),
    );
    let sandbox = Sandbox {
        read: vec![world.path("tree/open")],
        ..Sandbox::default()
    };
    let confinement = Confinement {
        sandbox: Some(sandbox),
        ..Confinement::default()
    };
    // The files are in the default temporary directory, which a sandbox leaves open.
    fs::create_dir(world.path("temporary")).unwrap();
    confined
        .environment
        .insert("TMPDIR".into(), world.path("temporary").into());
    let base = Launcher {
        program: PathBuf::from(env!("CARGO_BIN_EXE_plugin-launch")),
        arguments: Vec::new(),
    };
    confined.launcher = confinement.launcher(
        &base,
        &found("file-watch").directory,
        &confined.environment,
        &GuardedPaths::default(),
    );
    let nothing = succeeded(&finish(confined).await);
    assert_eq!(told(&nothing), Vec::<String>::new());
    assert!(nothing.logs[0].message.contains("tree/"), "{nothing:?}");
    assert_eq!(
        told(&look(&world, &nothing, json!({})).await),
        ["removed seen"]
    );

    fs::rename(world.path("tree"), world.path("away")).unwrap();
    let away = look(&world, &before, json!({})).await;
    assert_eq!((told(&away).len(), away.logs.len()), (0, 1));
}

#[tokio::test]
async fn a_file_that_is_watched_itself_can_go_and_paths_must_be_absolute() {
    let world = World::new();
    let file = world.file("one", "1", 0o644);
    let config = json!({"paths": file});
    let before = ask("file-watch", "poll", json!({"config": config})).await;
    fs::remove_file(&file).unwrap();
    let members = json!({"config": config, "state": before.state_updates});
    assert_eq!(
        told(&ask("file-watch", "poll", members).await),
        ["removed one"]
    );
    for paths in [
        json!(["relative"]),
        json!([]),
        json!("~/x"),
        json!(["/a\u{0}b"]),
    ] {
        refused("file-watch", "poll", json!({"config": {"paths": paths}})).await;
    }
}
