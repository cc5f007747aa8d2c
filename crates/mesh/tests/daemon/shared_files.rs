//! Files that members share.

use consign_mesh::frame::{PushFrame, RawJson};
use serde_json::{Value, json};

use crate::receiving::{clear, until_acked};
use crate::sending::{bob, connected};

#[tokio::test]
async fn cm_033_a_file_is_sent_in_pieces_and_is_whole_at_its_recipient() {
    let (home, broker, daemon) = connected().await;
    let path = home.folder().join("picture.bin");
    let content: Vec<u8> = (0..80_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let share = json!({"path": path, "to": bob(), "message": "look"});
    let shared = daemon.post("/v1/file/share", &share).await;
    assert_eq!(shared.status, 200, "{}", shared.text);
    let id = shared.json()["fileId"].as_str().unwrap().to_owned();
    assert_eq!(
        shared.json()["client_message_ids"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    daemon.until_status(&format!("{id}.2"), "done").await;
    let files = daemon.get("/v1/file/list").await.json();
    let file = &files["files"][0];
    assert_eq!(
        (&file["id"], &file["bytes"], &file["complete"]),
        (&json!(id), &json!(80_000), &json!(true))
    );
    assert_eq!(daemon.get("/v1/inbox").await.json()["items"], json!([]));
    let out = home.folder().join("copy.bin");
    let target = format!("/v1/file/get?id={id}&out={}", out.display());
    let got = daemon.get(&target).await;
    assert_eq!(got.json(), json!({"id": id, "out": out, "bytes": 80_000}));
    assert_eq!(std::fs::read(&out).unwrap(), content);
    assert_eq!(
        daemon.get("/v1/file/get?id=none&out=/tmp/x").await.status,
        404
    );
    assert_eq!(daemon.get("/v1/file/get?id=none&out=x").await.status, 400);
    assert_eq!(
        daemon
            .post("/v1/file/share", &json!({"path": "/nowhere"}))
            .await
            .status,
        404
    );
    drop(broker);
    daemon.down().await;
}

#[tokio::test]
async fn cm_117_a_file_is_announced_when_its_last_piece_is_there() {
    let (home, broker, daemon) = connected().await;
    let path = home.folder().join("text");
    std::fs::write(&path, vec![b'x'; 40_000]).unwrap();
    daemon
        .post("/v1/file/share", &json!({"path": path, "to": "*"}))
        .await;
    broker
        .until("sent", |broker| broker.of_type("send").len() == 2)
        .await;
    let sent = broker.of_type("send");
    daemon.down().await;
    std::fs::remove_file(home.folder().join("inbox.db")).unwrap();
    let daemon = home.up().await;
    daemon.until_connected().await;
    let mut events = daemon.events().await;
    let push = |frame: &Value| PushFrame {
        meta: RawJson::parse(&frame["meta"].to_string()),
        ciphertext: frame["ciphertext"].as_str().unwrap().to_owned(),
        ..clear(frame["client_message_id"].as_str().unwrap(), 2, "")
    };
    broker.push(push(&sent[1]));
    until_acked(&broker, 1).await;
    let files = daemon.get("/v1/file/list").await.json();
    assert_eq!(files["files"], json!([]), "the first piece is missing");
    broker.push(push(&sent[0]));
    let event = events.event("file_shared").await;
    assert_eq!(
        (&event["name"], &event["bytes"]),
        (&json!("text"), &json!(40_000))
    );
    assert_eq!(event["from_name"], "member-2");
    let text = events.until("file_shared").await;
    assert!(!text.contains("event: message"), "{text}");
    daemon.down().await;
}

#[tokio::test]
async fn files_are_listed_page_by_page_and_what_senders_say_has_a_bound() {
    let (_home, broker, daemon) = connected().await;
    let push = |file: usize, piece: u32, pieces: u32, message: &str| {
        let meta = json!({"file_share": {
            "id": format!("f-{file}"), "name": "n", "bytes": 1, "sha256": "0", "piece": piece, "pieces": pieces,
            "message": message,
        }});
        broker.push(PushFrame {
            meta: RawJson::parse(&meta.to_string()),
            ..clear(&format!("f-{file}.{piece}"), 2, "x")
        });
    };
    let long = "m".repeat(5_000);
    for file in 0..5 {
        push(file, 0, 2, &long);
    }
    push(3, 1, 2, &long);
    // The same ids of another sender are no pieces of it.
    broker.push(PushFrame {
        meta: RawJson::parse(
            r#"{"file_share":{"id":"f-4","name":"n","bytes":1,"sha256":"0","piece":1,"pieces":2}}"#,
        ),
        ..clear("f-4.1", 3, "x")
    });
    until_acked(&broker, 7).await;
    let mut found = Vec::new();
    let mut target = "/v1/file/list?limit=2".to_owned();
    loop {
        let page = daemon.get(&target).await.json();
        let files = page["files"].as_array().unwrap();
        assert!(files.len() <= 2);
        for file in files {
            assert_eq!(file["message"].as_str().map(str::len), Some(1_000));
            found.push((file["id"].clone(), file["complete"].clone()));
        }
        let Some(next) = page["next"].as_str() else {
            break;
        };
        target = format!("/v1/file/list?limit=2&before={next}");
    }
    let expected = [4, 3, 2, 1, 0].map(|file| (json!(format!("f-{file}")), json!(file == 3)));
    assert_eq!(found, expected);
    assert_eq!(daemon.get("/v1/file/list?before=x").await.status, 400);
    let share = json!({"path": "/etc/hostname", "message": long});
    assert_eq!(daemon.post("/v1/file/share", &share).await.status, 400);
    daemon.down().await;
}
