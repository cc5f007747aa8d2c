//! Sealing, and the effects of a broken seal.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A tree with a file of every kind.
fn whole(service: &str) -> World {
    let world = World::new(&format!(
        "include: [tokens.yaml, webhooks.yaml, more/ops.yaml]\nservice: {{{service}}}"
    ));
    world.put(
        "tokens.yaml",
        "tokens: [{name: a, key: v, scopes_file: scopes/a.json}]",
    );
    world.put("webhooks.yaml", "webhooks: []");
    world.put("routes.yaml", "routes: []");
    world.put("relay-x.yaml", "instances: {}");
    world.put("scopes/a.json", r#"["*"]"#);
    world.put("scopes/unused.json", r#"["*"]"#);
    world.put("more/ops.yaml", "plugins: {}");
    world
}

/// Whether it starts, whether the seal is the reason, and the message about the file.
fn start(world: &World, file: &str) -> (bool, bool, String) {
    let loaded = world.load(SealCheck::AsConfigured);
    let problems = shown(&loaded.problems);
    // The most severe message about the file.
    let line = problems.lines().filter(|line| line.contains(file)).min();
    (
        loaded.config.is_some(),
        loaded.integrity_failed,
        line.unwrap_or_default().to_owned(),
    )
}

#[test]
fn a_lock_seals_every_file_du_017() {
    let world = whole("");
    let plan = world.lock();
    let path = world.path(".checksums");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("version: 2\ngenerated_at: "), "{text}");
    let seal = ConfigSeal::read(world.dir.path()).unwrap().unwrap();
    assert_eq!(seal.generated_at, "2026-02-25T10:00:00Z");
    let files = [
        "config.yaml",
        "more/ops.yaml",
        "relay-x.yaml",
        "routes.yaml",
        "scopes/a.json",
        "scopes/unused.json",
        "tokens.yaml",
        "webhooks.yaml",
    ];
    let expected = files.map(|file| {
        let bytes = fs::read(world.path(file)).unwrap();
        (world.path(file), blake3::hash(&bytes).to_hex().to_string())
    });
    assert_eq!(seal.hashes, BTreeMap::from(expected));
    assert!(
        plan.changes
            .iter()
            .all(|(_, change)| *change == SealChange::Added)
    );
    let (starts, failed, _) = start(&world, "");
    assert!(starts && !failed);
}

#[test]
fn a_dry_run_says_what_would_change_and_writes_nothing_du_017() {
    let world = whole("");
    world.lock();
    let before = fs::read(world.path(".checksums")).unwrap();
    world.put("scopes/b.json", "[]");
    world.put("routes.yaml", "routes: [ ]");
    fs::remove_file(world.path("relay-x.yaml")).unwrap();
    let now = Timestamp::UNIX_EPOCH;
    let plan = lock(&world.path("config.yaml"), &world.environment, &[], now).unwrap();
    let changes = plan
        .changes
        .iter()
        .filter(|(_, change)| *change != SealChange::Kept);
    let changes: Vec<_> = changes.cloned().collect();
    let expected = [
        (world.path("relay-x.yaml"), SealChange::Removed),
        (world.path("routes.yaml"), SealChange::Changed),
        (world.path("scopes/b.json"), SealChange::Added),
    ];
    assert_eq!(changes, expected);
    assert_eq!(fs::read(world.path(".checksums")).unwrap(), before);
    assert_eq!(fs::read_dir(world.dir.path()).unwrap().count(), 7);
}

#[test]
fn a_changed_high_security_file_prevents_the_start_du_018() {
    let changes = [
        (
            "tokens.yaml",
            "tokens: [{name: a, key: w, scopes_file: scopes/a.json}]",
        ),
        ("webhooks.yaml", "webhooks:  []"),
        ("scopes/a.json", r#"["*"] "#),
        ("scopes/unused.json", "[]"),
        ("scopes/new.json", "[]"),
    ];
    for (file, text) in changes {
        let world = whole("");
        world.lock();
        world.put(file, text);
        let name = Path::new(file).file_name().unwrap().to_str().unwrap();
        let (starts, failed, line) = start(&world, name);
        assert!(
            !starts && failed && line.starts_with("Error"),
            "{file}: {line}"
        );
        world.lock();
        assert!(start(&world, name).0, "{file}");
    }
    let world = whole("");
    world.lock();
    fs::remove_file(world.path("scopes/unused.json")).unwrap();
    let (starts, failed, line) = start(&world, "unused.json");
    assert!(
        !starts && failed && line.contains("was sealed and no longer exists"),
        "{line}"
    );
}

#[test]
fn what_everybody_may_write_to_is_told_and_such_a_seal_is_refused_du_018_du_019() {
    let chmod = |path: PathBuf, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (service, expected) in [("", true), ("strict_mode: true", false)] {
        let world = World::new(&format!("service: {{{service}}}"));
        world.lock();
        assert_eq!(
            start(&world, "world-writable"),
            (true, false, String::new())
        );
        for (file, mode) in [("config.yaml", 0o600), ("", 0o700)] {
            chmod(world.path(file), 0o777);
            let (starts, _, told) = start(&world, "is world-writable; run `chmod o-w`");
            assert!(!told.is_empty(), "{file}");
            assert_eq!(starts, expected, "{told}");
            chmod(world.path(file), mode);
        }
        chmod(world.path(".checksums"), 0o602);
        let (starts, is_seal, told) = start(&world, ".checksums");
        assert!(!starts && is_seal && told.starts_with("Error"), "{told}");
    }
}

#[test]
fn a_changed_operational_file_warns_or_fails_when_strict_du_019() {
    for (service, fatal) in [
        ("", false),
        ("strict_mode: true", true),
        ("admission: {fail_on_drift: true}", true),
        (
            "strict_mode: true, admission: {verify_integrity_on_boot: true}",
            false,
        ),
    ] {
        let world = whole(service);
        world.put("tokens.yaml", "tokens: []");
        world.lock();
        world.put("more/ops.yaml", "plugins: {p: {}}");
        let (starts, failed, line) = start(&world, "ops.yaml");
        assert_eq!((starts, failed), (!fatal, fatal), "{service}: {line}");
        assert!(line.contains("ops.yaml: differs from its seal"), "{line}");
    }
}

#[test]
fn a_proposed_configuration_is_judged_by_the_running_one() {
    let world = whole("");
    world.lock();
    world.put("more/ops.yaml", "plugins: {p: {}}");
    let strict = Strictness {
        drift: true,
        validation: false,
    };
    assert!(world.load(SealCheck::AsRunning(strict)).config.is_none());
    assert!(
        world
            .load(SealCheck::AsRunning(Strictness::default()))
            .config
            .is_some()
    );
    assert!(
        world.load(SealCheck::No).problems.len()
            < world.load(SealCheck::AsConfigured).problems.len()
    );
}

#[test]
fn a_missing_seal_matters_when_there_is_something_to_guard_du_020() {
    let (starts, failed, line) = start(&whole(""), ".checksums");
    assert!(
        !starts && failed && line.contains("no seal exists for "),
        "{line}"
    );
    let (starts, failed, line) = start(&World::new(""), ".checksums");
    assert!(starts && !failed, "{line}");
    assert_eq!(
        line,
        "Warning .checksums: the configuration is not sealed; run `config lock`"
    );
    let (starts, ..) = start(&World::new("service: {strict_mode: true}"), ".checksums");
    assert!(!starts);
}

#[test]
fn a_damaged_seal_is_an_error_du_021() {
    let world = World::new("");
    for text in [
        "version: 1\ngenerated_at: x\nhashes: {}",
        "version: 2",
        "[",
        "hello",
        "\u{0}",
    ] {
        world.put(".checksums", text);
        let (starts, failed, line) = start(&world, ".checksums");
        assert!(
            !starts && failed && line.starts_with("Error"),
            "{text}: {line}"
        );
    }
    world.lock();
    assert!(start(&world, "").0);
    fs::remove_file(world.path(".checksums")).unwrap();
    fs::create_dir(world.path(".checksums")).unwrap();
    assert!(start(&world, ".checksums").1);
}

#[test]
fn the_seal_is_of_the_bytes_and_not_of_their_meaning_du_022() {
    let world = World::new("service: {name: \"${NAME}\"}").with("NAME", "a");
    world.lock();
    let world = world.with("NAME", "b");
    let (starts, _, line) = start(&world, "config.yaml");
    assert!(starts && line.is_empty(), "{line}");
}

#[test]
fn shared_tokens_have_the_seal_of_their_own_directory_du_018() {
    let world = World::new("include: [shared/tokens.yaml]");
    world.put("shared/tokens.yaml", "tokens: []");
    let (starts, failed, _) = start(&world, ".checksums");
    assert!(!starts && failed);
    let stranger = world.path("shared/stranger.yaml");
    let mut other = ConfigSeal::new("then".to_owned());
    other.hashes.insert(stranger.clone(), "0".repeat(64));
    other.write(&world.path("shared")).unwrap();
    world.lock();
    assert!(start(&world, "").0);
    // Another configuration sealed its own file there; that entry stays.
    let seal = ConfigSeal::read(&world.path("shared")).unwrap().unwrap();
    assert_eq!(seal.hashes[&stranger], "0".repeat(64));
    assert_eq!(seal.hashes.len(), 2);
    world.put("shared/tokens.yaml", "tokens: [{name: a, key: b}]");
    assert!(start(&world, "tokens.yaml").1);
}

#[test]
fn fingerprints_of_plugins_are_kept_in_the_seal() {
    let world = World::new("");
    let fingerprint = Fingerprint {
        name: "echo".to_owned(),
        enabled: true,
        uses: Some("base".to_owned()),
        manifest_path: "/p/manifest.yaml".into(),
        manifest_resolved_path: "/q/manifest.yaml".into(),
        manifest_hash: "00".repeat(32),
        entrypoint_path: "/p/run.sh".into(),
        entrypoint_resolved_path: "/q/run.sh".into(),
        entrypoint_hash: "11".repeat(32),
    };
    let given = [fingerprint];
    let plan = lock(
        &world.path("config.yaml"),
        &world.environment,
        &given,
        Timestamp::UNIX_EPOCH,
    );
    plan.unwrap().apply().unwrap();
    let seal = ConfigSeal::read(world.dir.path()).unwrap().unwrap();
    assert_eq!(seal.plugin_fingerprints, given);
}

#[test]
fn a_tree_that_cannot_be_read_cannot_be_sealed() {
    let world = World::new("include: [gone.yaml]");
    let refused = lock(
        &world.path("config.yaml"),
        &world.environment,
        &[],
        Timestamp::UNIX_EPOCH,
    );
    assert!(matches!(refused, Err(LockError::Unreadable(problems)) if problems.len() == 1));
    assert!(!world.path(".checksums").exists());
}
