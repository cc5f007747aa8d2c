//! The inbox on a real file.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn received(number: i64) -> ReceivedMessage {
    ReceivedMessage {
        id: format!("id-{number}"),
        client_message_id: format!("c-{number}"),
        broker_message_id: Some(format!("b-{number}")),
        mesh: "home".to_owned(),
        topic: (number % 2 == 0).then(|| "alerts".to_owned()),
        sender_pubkey: if number % 3 == 0 { "aa" } else { "bb" }.to_owned(),
        sender_name: "alice".to_owned(),
        body: Some("hello".to_owned()),
        meta: Some(r#"{"n":1}"#.to_owned()),
        received_at: number * 1_000,
        reply_to_id: None,
    }
}

fn filled(path: &Path) -> Inbox {
    let inbox = Inbox::open(path).unwrap();
    for number in 1..=6 {
        assert!(inbox.insert(&received(number)).unwrap());
    }
    inbox
}

fn ids(inbox: &Inbox, filter: &ReceivedFilter) -> Vec<String> {
    let found = inbox.list(filter).unwrap().into_iter();
    found.map(|item| item.id).collect()
}

#[test]
fn cm_088_an_id_is_stored_once_and_the_first_item_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inbox.db");
    let inbox = filled(&path);
    let again = ReceivedMessage {
        id: "another".to_owned(),
        sender_pubkey: "cc".to_owned(),
        ..received(2)
    };
    assert!(!inbox.insert(&again).unwrap());
    assert_eq!(inbox.find("c-2").unwrap(), Some(received(2)));
    assert_eq!(inbox.find("c-9").unwrap(), None);
    drop(inbox);
    // It is there after a restart, in the columns of the protocol and private.
    let inbox = Inbox::open(&path).unwrap();
    assert_eq!(inbox.find("c-2").unwrap(), Some(received(2)));
    let columns: String = inbox
        .connection()
        .query_row(
            "SELECT group_concat(name, ' ') FROM pragma_table_info('inbox')",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(columns, columns!().replace(", ", " "));
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_page_is_newest_first_and_narrowed_by_its_filter() {
    let folder = tempfile::tempdir().unwrap();
    let inbox = filled(&folder.path().join("inbox.db"));
    let page = |filter: ReceivedFilter| ids(&inbox, &filter);
    let newest = || ReceivedFilter {
        limit: 2,
        ..ReceivedFilter::default()
    };
    assert_eq!(page(newest()), ["id-6", "id-5"]);
    let older = ReceivedFilter {
        before: Some((5_000, "id-5".to_owned())),
        ..newest()
    };
    assert_eq!(page(older), ["id-4", "id-3"]);
    let since = ReceivedFilter {
        since: Some(6_000),
        ..newest()
    };
    assert_eq!(page(since), ["id-6"]);
    let topic = ReceivedFilter {
        topic: Some("alerts".to_owned()),
        sender_pubkey: Some("bb".to_owned()),
        ..newest()
    };
    assert_eq!(page(topic), ["id-4", "id-2"]);
}

#[test]
fn items_are_found_and_left_out_by_the_beginning_of_their_meta() {
    let folder = tempfile::tempdir().unwrap();
    let inbox = filled(&folder.path().join("inbox.db"));
    let piece = ReceivedMessage {
        meta: Some(r#"{"part":{"id":1}}"#.to_owned()),
        ..received(7)
    };
    let bare = ReceivedMessage {
        meta: None,
        ..received(8)
    };
    assert!(inbox.insert(&piece).unwrap() && inbox.insert(&bare).unwrap());
    let bodiless = ReceivedMessage {
        body: None,
        ..piece
    };
    let found = |id_end: &str, before: Option<(i64, String)>| {
        let found = inbox.with_meta(r#"{"part":"#, id_end, before.as_ref(), 9);
        found.unwrap()
    };
    assert_eq!(found("7", None), std::slice::from_ref(&bodiless));
    assert_eq!(found("8", None), []);
    let (at, id) = (bodiless.received_at, bodiless.id.clone());
    assert_eq!(found("7", Some((at, id))), []);
    assert_eq!(found("7", Some((at + 1, String::new()))), [bodiless]);
    let others = ReceivedFilter {
        without_meta: Some(r#"{"part":"#.to_owned()),
        limit: 3,
        ..ReceivedFilter::default()
    };
    assert_eq!(ids(&inbox, &others), ["id-8", "id-6", "id-5"]);
}

#[test]
fn items_are_found_by_their_sender_and_the_beginning_of_their_id() {
    let folder = tempfile::tempdir().unwrap();
    let inbox = filled(&folder.path().join("inbox.db"));
    for (number, id, sender) in [
        (11, "f.0", "aa"),
        (12, "f.1", "aa"),
        (13, "f.2", "bb"),
        (14, "f", "aa"),
        (15, "ff.0", "aa"),
        (16, "f0", "aa"),
    ] {
        let item = ReceivedMessage {
            client_message_id: id.to_owned(),
            sender_pubkey: sender.to_owned(),
            ..received(number)
        };
        assert!(inbox.insert(&item).unwrap());
    }
    let found = |limit| {
        let found = inbox.with_id("f", "aa", limit).unwrap().into_iter();
        found.map(|item| item.client_message_id).collect::<Vec<_>>()
    };
    assert_eq!(found(9), ["f.0", "f.1"]);
    assert_eq!(found(1), ["f.0"]);
}

#[test]
fn items_of_one_commit_are_stored_together_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let inbox = Inbox::open(&folder.path().join("inbox.db")).unwrap();
    let stored = inbox.in_one_commit(|commit| {
        assert!(commit.insert(&received(1))?);
        assert!(!commit.insert(&received(1))?, "known within the commit");
        assert_eq!(commit.find("c-1")?, Some(received(1)));
        commit.insert(&received(2))
    });
    assert!(stored.unwrap());
    let failed: Result<(), Error> = inbox.in_one_commit(|commit| {
        commit.insert(&received(3))?;
        Err(Error::Corrupt("a test".to_owned()))
    });
    assert!(failed.is_err());
    let all = ReceivedFilter {
        limit: 9,
        ..ReceivedFilter::default()
    };
    assert_eq!(ids(&inbox, &all), ["id-2", "id-1"]);
}

#[test]
fn cm_099_the_oldest_items_are_removed_by_their_time() {
    let folder = tempfile::tempdir().unwrap();
    let inbox = filled(&folder.path().join("inbox.db"));
    assert_eq!(inbox.forget_before(3_000, 1).unwrap(), 1);
    assert_eq!(inbox.forget_before(3_000, 9).unwrap(), 1);
    assert_eq!(inbox.forget_before(3_000, 9).unwrap(), 0);
    let all = ReceivedFilter {
        limit: 9,
        ..ReceivedFilter::default()
    };
    assert_eq!(ids(&inbox, &all), ["id-6", "id-5", "id-4", "id-3"]);
}

#[test]
fn a_damaged_file_and_a_newer_one_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inbox.db");
    std::fs::write(&path, "no database".repeat(1_000)).unwrap();
    assert!(matches!(Inbox::open(&path), Err(Error::Corrupt(_))));
    std::fs::remove_file(&path).unwrap();
    let inbox = filled(&path);
    inbox
        .connection()
        .pragma_update(None, "user_version", 9)
        .unwrap();
    drop(inbox);
    let newer = Inbox::open(&path).unwrap_err();
    assert!(matches!(newer, Error::TooNew { found: 9, .. }), "{newer}");
}

#[test]
fn space_is_given_back_once_a_week_however_often_the_file_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inbox.db");
    let week = 7 * 86_400_000;
    let large = ReceivedMessage {
        body: Some("x".repeat(1_000_000)),
        ..received(1)
    };
    let inbox = Inbox::open(&path).unwrap();
    assert!(inbox.insert(&large).unwrap());
    assert!(!inbox.vacuum_if_due(1_000, week).unwrap(), "a new file");
    assert_eq!(inbox.forget_before(i64::MAX, 9).unwrap(), 1);
    assert!(inbox.free_bytes().unwrap() > 900_000);
    for day in 1..7 {
        drop(Inbox::open(&path).unwrap());
        let now = 1_000 + day * 86_400_000;
        let opened = Inbox::open(&path).unwrap();
        assert!(!opened.vacuum_if_due(now, week).unwrap(), "day {day}");
    }
    let inbox = Inbox::open(&path).unwrap();
    assert!(inbox.vacuum_if_due(1_000 + week, week).unwrap());
    assert_eq!(inbox.free_bytes().unwrap(), 0);
    assert!(!inbox.vacuum_if_due(2_000 + week, week).unwrap());
    // A clock that was ahead does not put the next time off.
    assert!(!inbox.vacuum_if_due(9 * week, week * 9).unwrap());
    assert!(inbox.vacuum_if_due(9 * week, week).unwrap());
    assert!(!inbox.vacuum_if_due(2 * week, week).unwrap());
    assert!(inbox.vacuum_if_due(3 * week, week).unwrap());
}
