//! The folder of a daemon.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::world::{Home, NO_BROKER};

fn mode(path: &Path) -> u32 {
    let metadata =
        std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    metadata.permissions().mode() & 0o777
}

#[tokio::test]
async fn cm_001_cm_002_cm_008_the_folder_has_its_files_modes_and_aliases() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    daemon.send("c-1", "*", "hello").await;
    let folder = home.folder();
    assert_eq!(mode(&folder), 0o700);
    let files = [
        ("pid", 0o600),
        ("sock", 0o600),
        ("http.port", 0o644),
        ("local_token", 0o600),
        ("config.toml", 0o644),
        ("outbox.db", 0o600),
        ("outbox.db-wal", 0o600),
        ("outbox.db-shm", 0o600),
        ("inbox.db", 0o600),
        ("inbox.db-wal", 0o600),
        ("inbox.db-shm", 0o600),
        ("schema_version", 0o644),
        ("daemon.log", 0o644),
        ("hooks", 0o700),
        ("topic_subscriptions.json", 0o600),
    ];
    for (file, expected) in files {
        let found = mode(&folder.join(file));
        assert_eq!(format!("{found:o}"), format!("{expected:o}"), "{file}");
    }
    for (alias, file) in [
        ("daemon.sock", "sock"),
        ("daemon.pid", "pid"),
        ("local-token", "local_token"),
    ] {
        let target = std::fs::read_link(folder.join(alias)).unwrap();
        assert_eq!(target, Path::new(file));
    }
    let pid = std::fs::read_to_string(folder.join("pid")).unwrap();
    assert_eq!(pid.trim(), std::process::id().to_string());
    assert_eq!(daemon.down().await.status(), 0);
    for gone in ["pid", "sock", "http.port"] {
        assert!(!folder.join(gone).exists(), "{gone}");
    }
}

#[tokio::test]
async fn cm_003_a_second_start_ends_with_1_and_names_the_process() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let second = home.start(home.options()).ended().await;
    assert_eq!(second.status(), 1);
    let message = second.message.unwrap();
    assert!(
        message.contains(&std::process::id().to_string()),
        "{message}"
    );
    // The first one is not disturbed.
    assert_eq!(daemon.get("/v1/health").await.status, 200);
    daemon.down().await;
}

#[tokio::test]
async fn cm_004_files_of_a_process_that_is_gone_are_replaced() {
    let home = Home::new(1, NO_BROKER);
    std::fs::create_dir_all(home.folder()).unwrap();
    std::fs::write(home.folder().join("pid"), "999999\n").unwrap();
    drop(std::os::unix::net::UnixListener::bind(home.folder().join("sock")).unwrap());
    let daemon = home.up().await;
    assert_eq!(daemon.health().await["ok"], true);
    daemon.down().await;
}

#[tokio::test]
async fn cm_008_the_folder_may_be_another_one() {
    let home = Home::new(1, NO_BROKER);
    let folder = home.claudemesh().join("elsewhere");
    let mut options = home.options();
    options.daemon_folder = Some(folder.clone());
    let daemon = home.start(options);
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while !folder.join("sock").exists() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(!home.folder().exists());
    assert_eq!(daemon.down().await.status(), 0);
}

#[tokio::test]
async fn cm_096_an_older_schema_is_migrated_and_a_newer_one_refused() {
    let home = Home::new(1, NO_BROKER);
    let path = home.folder().join("schema_version");
    std::fs::create_dir_all(home.folder()).unwrap();
    std::fs::write(&path, "0\n").unwrap();
    home.up().await.down().await;
    assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), "1");
    std::fs::write(&path, "99").unwrap();
    let end = home.start(home.options()).ended().await;
    assert_ne!(end.status(), 0);
    assert!(end.message.unwrap().contains("newer"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "99");
}

#[tokio::test]
async fn cm_090_a_damaged_outbox_refuses_the_start_and_names_the_way_out() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    for number in 0..50 {
        daemon
            .send(&format!("c-{number}"), "*", &"text ".repeat(500))
            .await;
    }
    daemon.down().await;
    let path = home.folder().join("outbox.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[4_096..end.min(200_000)].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let end = home.start(home.options()).ended().await;
    assert_ne!(end.status(), 0);
    let message = end.message.unwrap();
    assert!(message.contains("daemon recover"), "{message}");
    assert_eq!(
        std::fs::read(&path).unwrap(),
        bytes,
        "it was left untouched"
    );
    assert!(!home.folder().join("pid").exists());
}

#[tokio::test]
async fn cm_091_a_damaged_inbox_is_set_aside() {
    let home = Home::new(1, NO_BROKER);
    home.up().await.down().await;
    let path = home.folder().join("inbox.db");
    std::fs::write(
        &path,
        "this is no database, however long it is. ".repeat(300),
    )
    .unwrap();
    let daemon = home.up().await;
    assert_eq!(
        daemon.get("/v1/inbox").await.json()["items"],
        serde_json::json!([])
    );
    let aside = std::fs::read_dir(home.folder()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("inbox.db.corrupt-")
    });
    assert_eq!(aside.count(), 1);
    assert_eq!(home.logged("inbox_corruption_recovered").len(), 1);
    daemon.down().await;
}

#[tokio::test]
async fn cm_022_the_list_of_joined_meshes_is_read_and_not_changed() {
    let home = Home::new(7, NO_BROKER);
    let path = home.claudemesh().join("config.json");
    let before = std::fs::read(&path).unwrap();
    let daemon = home.up().await;
    let key = home.key.public_key().to_string();
    assert_eq!(daemon.health().await["member_pubkey"], key);
    daemon.down().await;
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::write(&path, r#"{"version":1,"meshes":[]}"#).unwrap();
    assert_eq!(home.start(home.options()).ended().await.status(), 2);
    std::fs::write(&path, "{").unwrap();
    assert_eq!(home.start(home.options()).ended().await.status(), 3);
}

#[tokio::test]
async fn settings_that_are_wrong_end_the_start_with_3() {
    let home = Home::new(1, NO_BROKER);
    for text in [
        "[outbox]\nmax_queue = 5\n",
        "[ipc]\nmax_sse = \"many\"\n",
        "[daemon]\nmesh = \"other\"\n",
    ] {
        home.configure(text);
        let end = home.start(home.options()).ended().await;
        assert_eq!(end.status(), 3, "{text}: {end:?}");
    }
}

#[tokio::test]
async fn cm_011_a_daemon_with_a_time_limit_ends_by_itself() {
    let home = Home::new(1, NO_BROKER);
    let mut options = home.options();
    options.ttl = Some(std::time::Duration::from_millis(300));
    assert_eq!(home.start(options).ended().await.status(), 0);
}
