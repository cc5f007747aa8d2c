//! Directories with good, bad and malicious plugins.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::PathBuf;

use consign_automation::plugin::discovery::{Discovery, Note, Weight, discover};
use consign_automation::plugin::registry::{Declaration, Error, register};
use consign_automation::plugin::trust::Symlinks;
use serde_json::{Value, json};

use crate::plugin_world::{World, chmod, manifest};

fn found(world: &World, roots: &[&str]) -> Discovery {
    let roots: Vec<PathBuf> = roots.iter().map(|root| world.path(root)).collect();
    discover(&roots, Symlinks::Refuse).unwrap()
}

fn names(discovery: &Discovery) -> Vec<&str> {
    discovery.plugins.keys().map(String::as_str).collect()
}

/// The notes of a weight, each with its path.
fn told(notes: &[Note], weight: Weight) -> String {
    let lines = notes.iter().filter(|note| note.weight == weight);
    let lines: Vec<String> = lines.map(ToString::to_string).collect();
    lines.join("\n")
}

fn declared(entries: Value) -> BTreeMap<String, Declaration> {
    let entries: BTreeMap<String, Value> = serde_json::from_value(entries).unwrap();
    let declaration = |value: Value| Declaration {
        is_disabled: value["enabled"] == false,
        uses: value["uses"].as_str().map(str::to_owned),
        config: value["config"].as_object().cloned().unwrap_or_default(),
    };
    entries
        .into_iter()
        .map(|(name, value)| (name, declaration(value)))
        .collect()
}

#[test]
fn plugins_are_found_at_any_depth_by_the_names_of_their_manifests_du_026() {
    let world = World::new();
    world.plugin("root/a/b/c", "deep");
    world.plugin("root/flat", "other-name");
    world.plugin("root/flat/inner", "inner");
    world.plugin("root/.git/x", "hidden");
    let discovery = found(&world, &["root"]);
    assert_eq!(names(&discovery), ["deep", "inner", "other-name"]);
    assert_eq!(
        discovery.plugins["deep"].entrypoint,
        world.path("root/a/b/c/run.sh")
    );
    assert_eq!(discovery.notes, []);
}

#[test]
fn the_first_of_two_plugins_with_one_name_wins_and_both_are_told_du_026() {
    let world = World::new();
    let second = world.plugin("one/z", "twin");
    let first = world.plugin("two/a", "twin");
    let discovery = found(&world, &["two", "one", "two"]);
    assert_eq!(discovery.plugins["twin"].directory, world.path("two/a"));
    let told = told(&discovery.notes, Weight::Warning);
    assert!(told.contains(first.to_str().unwrap()) && told.contains(second.to_str().unwrap()));
    assert_eq!(told.lines().count(), 1);
}

#[test]
fn a_root_that_cannot_be_used_is_an_error_du_026() {
    let world = World::new();
    world.plugin("root/a", "a");
    let file = world.file("file", "", 0o644);
    for bad in [world.path("missing"), file] {
        let roots = [world.path("root"), bad.clone()];
        let error = discover(&roots, Symlinks::Refuse).unwrap_err().to_string();
        assert!(error.contains(bad.to_str().unwrap()), "{error}");
    }
}

#[test]
fn a_bad_plugin_is_skipped_with_a_reason_and_the_others_stay_du_027() {
    let world = World::new();
    world.plugin("root/good", "good");
    world.plugin("root/old", "old");
    let old = world.manifest(
        "root/old",
        &manifest("old").replace("protocol: 2", "protocol: 1"),
    );
    world.manifest("root/torn", "name: [");
    world.manifest("root/long", &"# much\n".repeat(200_000));
    world.file("root/binary/manifest.yaml", "", 0o644);
    fs::write(world.path("root/binary/manifest.yaml"), [0xff, 0xfe]).unwrap();
    fs::create_dir_all(world.path("root/odd/manifest.yaml")).unwrap();
    let discovery = found(&world, &["root"]);
    assert_eq!(names(&discovery), ["good"]);
    let skipped: Vec<_> = discovery.skipped.iter().map(String::as_str).collect();
    assert_eq!(skipped, ["binary", "long", "odd", "old", "torn"]);
    let told = told(&discovery.notes, Weight::Skipped);
    assert!(
        told.contains(&format!("{}: `protocol` is `1`", old.display())),
        "{told}"
    );
}

#[test]
fn the_search_ends_at_a_depth_and_says_so_du_026() {
    let world = World::new();
    world.plugin("root/1/2/3/4/5/6/7/8", "reached");
    world.plugin("root/1/2/3/4/5/6/7/x/9", "too-deep");
    let discovery = found(&world, &["root"]);
    assert_eq!(names(&discovery), ["reached"]);
    assert!(told(&discovery.notes, Weight::Warning).contains("9: is more than 8"));
}

#[test]
fn unknown_keys_and_forgotten_manifests_are_told_du_026() {
    let world = World::new();
    world.plugin("root/a", "a");
    world.manifest("root/a", &format!("{}author: me\n", manifest("a")));
    world.file("root/a/src/main.py", "", 0o644);
    world.file("root/forgotten/run.py", "", 0o755);
    world.file("root/lib/run.py", "", 0o755);
    world.file("root/_lib/main.py", "", 0o755);
    let discovery = found(&world, &["root"]);
    assert!(told(&discovery.notes, Weight::Detail).contains("unknown key `author`"));
    let told = told(&discovery.notes, Weight::Warning);
    assert!(
        told.contains("forgotten: has `run.py` and no manifest.yaml"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn an_untrustworthy_entrypoint_is_refused_du_028() {
    let world = World::new();
    world.file("root/other/run.sh", "#!/bin/sh\n", 0o755);
    for (entrypoint, reason) in [
        ("../other/run.sh", "without `..`"),
        ("a/../run.sh", "without `..`"),
        ("/bin/sh", "without `..`"),
        (".", "outside of its plugin's directory"),
        ("missing.sh", "cannot be examined"),
        ("plain.sh", "chmod +x"),
        ("folder", "is not a file"),
        ("open/run.sh", "chmod go-w"),
    ] {
        let text = manifest("x").replace("run.sh", entrypoint);
        world.manifest("root/x", &text);
        world.file("root/x/plain.sh", "#!/bin/sh\n", 0o644);
        world.file("root/x/open/run.sh", "#!/bin/sh\n", 0o755);
        chmod(&world.path("root/x/open"), 0o777);
        fs::create_dir_all(world.path("root/x/folder")).unwrap();
        let discovery = found(&world, &["root"]);
        let told = told(&discovery.notes, Weight::Skipped);
        assert!(
            discovery.plugins.is_empty() && told.contains(reason),
            "{entrypoint}: {told}"
        );
    }
}

#[test]
fn what_its_group_or_others_may_write_is_refused_with_the_way_out_du_028() {
    let world = World::new();
    world.plugin("root/deep/x", "x");
    let all = [
        "root",
        "root/deep",
        "root/deep/x",
        "root/deep/x/run.sh",
        "root/deep/x/manifest.yaml",
    ];
    for path in all {
        let path = world.path(path);
        let before = fs::metadata(&path).unwrap().permissions();
        for (mode, whom) in [
            (0o777, "any user"),
            (0o757, "any user"),
            (0o775, "its group"),
            (0o775 | 0o2000, "its group"),
        ] {
            chmod(&path, mode);
            let discovery = found(&world, &["root"]);
            let told = told(&discovery.notes, Weight::Skipped);
            assert!(discovery.plugins.is_empty(), "{path:?} {mode:o}");
            let fix = format!("chmod go-w {}", path.display());
            assert!(told.contains(whom) && told.contains(&fix), "{told}");
        }
        fs::set_permissions(&path, before).unwrap();
        assert_eq!(names(&found(&world, &["root"])), ["x"]);
    }
}

#[test]
fn what_belongs_to_another_user_is_refused_with_the_way_out_du_028() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        // Only root can change the owner of a file; other users skip this part.
        return;
    }
    let world = World::new();
    world.plugin("root/deep/x", "x");
    for path in [
        "root",
        "root/deep",
        "root/deep/x",
        "root/deep/x/run.sh",
        "root/deep/x/manifest.yaml",
    ] {
        let path = world.path(path);
        chown(&path, Some(4321), None).unwrap();
        let discovery = found(&world, &["root"]);
        let told = told(&discovery.notes, Weight::Skipped);
        assert!(discovery.plugins.is_empty(), "{path:?}");
        let fix = format!("chown root {}", path.display());
        assert!(told.contains("user 4321") && told.contains(&fix), "{told}");
        chown(&path, Some(0), None).unwrap();
    }
    assert_eq!(names(&found(&world, &["root"])), ["x"]);
}

#[test]
fn a_link_in_a_directory_that_others_may_write_is_refused_du_028() {
    let world = World::new();
    world.plugin("root/x", "x");
    world.manifest("root/x", &manifest("x").replace("run.sh", "bin/go"));
    world.file("root/x/bin/kept", "", 0o644);
    symlink("../run.sh", world.path("root/x/bin/go")).unwrap();
    let roots = [world.path("root")];
    let found = || discover(&roots, Symlinks::Follow).unwrap();
    assert_eq!(names(&found()), ["x"]);
    chmod(&world.path("root/x/bin"), 0o775);
    let discovery = found();
    assert!(discovery.plugins.is_empty());
    assert!(told(&discovery.notes, Weight::Skipped).contains("chmod go-w"));
}

#[test]
fn a_root_that_everybody_may_write_is_told_with_what_follows_du_028() {
    let world = World::new();
    world.plugin("root/x", "x");
    for (mode, may, left) in [
        (0o777, "add and replace plugins;", &[][..]),
        // In a sticky directory existing plugins cannot be replaced, and plugins of other users are refused.
        (0o1777, "add plugins;", &["x"]),
    ] {
        chmod(&world.path("root"), mode);
        let discovery = found(&world, &["root"]);
        let told = told(&discovery.notes, Weight::Warning);
        assert!(told.contains(may), "{mode:o}: {told}");
        assert_eq!(names(&discovery), left);
    }
}

#[test]
fn links_are_refused_or_followed_and_always_told_du_029() {
    let world = World::new();
    world.plugin("root/real", "real");
    world.manifest("root/linked", &manifest("linked"));
    symlink("inner.sh", world.path("root/linked/run.sh")).unwrap();
    world.file("root/linked/inner.sh", "#!/bin/sh\n", 0o755);
    world.plugin("second/far", "far");
    symlink(world.path("second/far"), world.path("root/far")).unwrap();
    symlink(world.path("root"), world.path("root/loop")).unwrap();

    let roots = [world.path("root"), world.path("second")];
    let refused = discover(&roots[..1], Symlinks::Refuse).unwrap();
    assert_eq!(names(&refused), ["real"]);
    let text = told(&refused.notes, Weight::Skipped);
    assert!(text.contains("run.sh is a symbolic link") && text.contains("allow_symlinks"));
    assert!(told(&refused.notes, Weight::Warning).contains("far is a symbolic link"));

    let followed = discover(&roots, Symlinks::Follow).unwrap();
    assert_eq!(names(&followed), ["far", "linked", "real"]);
    assert_eq!(
        followed.plugins["linked"].entrypoint,
        world.path("root/linked/inner.sh")
    );
    assert!(told(&followed.notes, Weight::Warning).contains("run.sh is a symbolic link"));
}

#[test]
fn a_linked_root_is_refused_or_told_du_029() {
    let world = World::new();
    world.plugin("real/a", "a");
    symlink(world.path("real"), world.path("link")).unwrap();
    let with_slash = world.path("link").join("");
    for root in [world.path("link"), with_slash] {
        let error = discover(std::slice::from_ref(&root), Symlinks::Refuse).unwrap_err();
        assert!(error.to_string().contains("is a symbolic link"), "{error}");
        let followed = discover(&[root], Symlinks::Follow).unwrap();
        assert_eq!(names(&followed), ["a"]);
        assert!(told(&followed.notes, Weight::Warning).contains("is a symbolic link"));
    }
}

#[test]
fn a_link_out_of_the_roots_is_refused_even_when_links_are_followed_du_029() {
    let world = World::new();
    world.plugin("outside/evil", "evil");
    world.manifest("root/x", &manifest("x"));
    symlink(
        world.path("outside/evil/run.sh"),
        world.path("root/x/run.sh"),
    )
    .unwrap();
    symlink(world.path("outside/evil"), world.path("root/evil")).unwrap();
    world.file("root/y/run.sh", "#!/bin/sh\n", 0o755);
    let foreign = world.path("outside/evil/manifest.yaml");
    symlink(foreign, world.path("root/y/manifest.yaml")).unwrap();
    // Inside the root, but in the directory of another plugin.
    world.plugin("root/z", "z");
    world.manifest("root/w", &manifest("w"));
    symlink(world.path("root/z/run.sh"), world.path("root/w/run.sh")).unwrap();

    let discovery = discover(&[world.path("root")], Symlinks::Follow).unwrap();
    assert_eq!(names(&discovery), ["z"]);
    let told = told(&discovery.notes, Weight::Skipped);
    assert_eq!(
        told.matches("outside of every plugin root").count(),
        2,
        "{told}"
    );
    assert!(told.contains("outside of its plugin's directory"), "{told}");
}

#[test]
fn a_plugin_without_its_required_configuration_is_not_loaded_du_031() {
    let world = World::new();
    world.plugin("root/a", "a");
    let keys = "config_keys: {required: [token, url], optional: [zone]}\n";
    world.manifest("root/a", &format!("{}{keys}", manifest("a")));
    let load = |config: Value| {
        let entries = declared(json!({"a": {"config": config}}));
        register(found(&world, &["root"]), &entries).unwrap()
    };
    let (registry, notes) = load(json!({"token": "t", "url": null}));
    assert!(registry.get("a").is_none());
    assert!(
        told(&notes, Weight::Skipped)
            .contains("`plugins.a.config` lacks `url`, which the plugin needs")
    );
    assert!(load(json!({"token": "t", "url": "u"})).0.get("a").is_some());
    let (registry, _) = register(found(&world, &["root"]), &BTreeMap::new()).unwrap();
    assert!(registry.get("a").is_none());
}

#[test]
fn an_alias_shares_the_program_and_keeps_its_own_name_and_configuration_du_032() {
    let world = World::new();
    world.plugin("root/a", "a");
    let keys = "config_keys: {required: [token]}\n";
    world.manifest("root/a", &format!("{}{keys}", manifest("a")));
    world.plugin("root/free", "free");
    let entries = declared(json!({
        "mine": {"uses": "a", "config": {"token": "t"}},
        "poor": {"uses": "a"},
    }));
    let (registry, _) = register(found(&world, &["root"]), &entries).unwrap();
    let loaded: Vec<_> = registry.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(loaded, ["free", "mine"]);
    let mine = registry.get("mine").unwrap();
    assert_eq!(mine.base.as_deref(), Some("a"));
    assert_eq!(mine.entrypoint, world.path("root/a/run.sh"));
}

#[test]
fn a_configuration_that_contradicts_the_plugins_stops_the_start_du_032() {
    let world = World::new();
    world.plugin("root/a", "a");
    world.plugin("root/b", "b");
    world.manifest("root/torn", "name: [");
    let load = |entries: Value| register(found(&world, &["root"]), &declared(entries));
    for (entries, expected) in [
        (json!({"x": {}}), Error::NotFound("x".to_owned())),
        (
            json!({"x": {"uses": "none"}}),
            Error::UnknownBase {
                alias: "x".to_owned(),
                base: "none".to_owned(),
            },
        ),
        (
            json!({"x": {"uses": "y"}, "y": {"uses": "a"}}),
            Error::AliasOfAlias {
                alias: "x".to_owned(),
                base: "y".to_owned(),
            },
        ),
        (
            json!({"a": {"uses": "b"}}),
            Error::AliasHidesPlugin("a".to_owned()),
        ),
        (
            json!({"core.publish": {"uses": "b"}}),
            Error::Reserved("core.publish".to_owned()),
        ),
    ] {
        assert_eq!(load(entries).unwrap_err(), expected);
    }
    assert!(load(json!({"x": {"enabled": false}})).is_ok());
    let (registry, notes) = load(json!({"torn": {}, "x": {"uses": "torn"}})).unwrap();
    assert!(registry.get("x").is_none() && registry.get("torn").is_none());
    assert!(told(&notes, Weight::Skipped).contains("plugins.x: the plugin `torn`"));
}
