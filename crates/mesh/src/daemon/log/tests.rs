//! The form of lines, what is hidden, and rotation.

use std::fs;
use std::path::Path;

use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

fn log(path: &Path, level: MeshLogLevel) -> DaemonLog {
    DaemonLog::open(MeshLogOptions {
        mesh: "team".to_owned(),
        level,
        file: Some(path.to_owned()),
        on_stderr: false,
    })
    .unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn rotated(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count() - 1
}

#[test]
fn cm_116_a_line_is_an_object_with_time_level_message_and_mesh() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("daemon.log");
    let log = log(&path, MeshLogLevel::Info);
    log.debug("not written", &json!({}));
    log.info("started \"now\"\n", &json!({"pid": 7, "msg": "another"}));
    log.set_level(MeshLogLevel::Warn);
    log.info("not written", &Value::Null);
    log.warn("fingerprint_unavailable", &Value::Null);
    let lines = lines(&path);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["msg"], "started \"now\"\n");
    assert_eq!(lines[0]["pid"], 7);
    assert_eq!(lines[0]["level"], "info");
    assert_eq!(lines[0]["mesh"], "team");
    let time = lines[0]["ts"].as_str().unwrap();
    assert!(time.parse::<Timestamp>().is_ok() && time.len() == 24 && time.ends_with('Z'));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("{\"ts\":\""), "{text}");
    assert_eq!(lines[1]["msg"], "fingerprint_unavailable");
}

#[test]
fn cm_028_secrets_are_not_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("daemon.log");
    let log = log(&path, MeshLogLevel::Debug);
    log.info(
        "request",
        &json!({
            "local_token": "hidden",
            "headers": [{"Authorization": "Bearer hidden", "host": "localhost"}],
            "keys": {"secretKey": "hidden", "x25519_privkey": ["hidden"], "rootKey": "hidden"},
            "tokens_rotated": 2,
        }),
    );
    let line = fs::read_to_string(&path).unwrap();
    assert!(!line.contains("hidden"), "{line}");
    assert!(line.contains("localhost") && line.contains("\"tokens_rotated\":2"));
}

#[test]
fn a_full_file_is_rotated_and_old_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("daemon.log");
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut file = RotatedFile::open_limited(path.clone(), 100).unwrap();
    let line = format!("{}\n", "x".repeat(59));
    for second in 0..20 {
        let now = start + jiff::SignedDuration::from_secs(second);
        file.append(line.as_bytes(), now).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 60);
    }
    assert_eq!(rotated(folder.path()), LOG_FILES_MAX);
    // After two weeks only the file of the last line is left, and that is a new one.
    let later = start + jiff::SignedDuration::from_hours(24 * 15);
    file.append(b"{}\n", later).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}\n");
    assert_eq!(rotated(folder.path()), 1);
}

#[test]
fn a_file_is_continued_with_its_age_and_a_torn_line_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("daemon.log");
    fs::write(&path, "{\"ts\":\"2020-01-01T00:00:00.000Z\"}\n{\"ts\":\"20").unwrap();
    let mut file = RotatedFile::open_limited(path.clone(), 1_000).unwrap();
    assert!(fs::read_to_string(&path).unwrap().ends_with("\"20\n"));
    let soon: Timestamp = "2020-01-02T00:00:00Z".parse().unwrap();
    file.append(b"{}\n", soon).unwrap();
    assert_eq!(rotated(folder.path()), 0);
    let late: Timestamp = "2020-01-15T00:00:01Z".parse().unwrap();
    file.append(b"{}\n", late).unwrap();
    assert_eq!(rotated(folder.path()), 1);
}

#[test]
fn a_line_that_cannot_be_written_is_counted() {
    let log = log(Path::new("/dev/full"), MeshLogLevel::Info);
    log.info("one", &json!({}));
    assert_eq!(log.lost(), 1);
}

#[test]
fn events_of_libraries_are_lines_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("daemon.log");
    let log = log(&path, MeshLogLevel::Info);
    let subscriber = tracing_subscriber::registry().with(log);
    tracing::subscriber::with_default(subscriber, || {
        tracing::debug!("not written");
        tracing::warn!(rows = 3, token = "hidden", "checkpoint is late");
    });
    let lines = lines(&path);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["msg"], "checkpoint is late");
    assert_eq!(lines[0]["level"], "warn");
    assert_eq!(lines[0]["rows"], 3);
    assert_eq!(lines[0]["token"], "***");
}
