//! Upstream's file is read and written without a loss.

use serde_json::json;

use super::*;

fn file() -> Value {
    let key = MeshPrivateKey::from_seed(&[1; 32]);
    json!({
        "version": 1,
        "meshes": [{
            "meshId": "mesh-1", "memberId": "m-a", "slug": "mesh-one", "name": "Mesh one",
            "pubkey": key.public_key().to_string(), "secretKey": *key.reveal(),
            "brokerUrl": "wss://ic.claudemesh.com/ws", "joinedAt": "2026-01-01T00:00:00.000Z",
            "rootKey": "root", "inviteVersion": 2, "later": {"a": 1},
        }],
        "displayName": "Worker", "role": "dev", "groups": [{"name": "ops"}], "messageMode": "push", "accountId": "acc",
    })
}

#[test]
fn cm_022_the_file_of_the_existing_client_is_read_unchanged() {
    let read = JoinedMeshes::parse(&file().to_string()).unwrap();
    let mesh = read.get("mesh-one").unwrap();
    assert_eq!(
        (mesh.mesh_id.as_str(), mesh.member_id.as_str()),
        ("mesh-1", "m-a")
    );
    assert_eq!(mesh.key().unwrap().public_key().to_string(), mesh.pubkey);
    assert_eq!(serde_json::to_value(&read).unwrap(), file());
    assert!(read.get("other").is_none());
    assert!(
        JoinedMeshes::parse(r#"{"version":1}"#)
            .unwrap()
            .meshes
            .is_empty()
    );
}

#[test]
fn a_mesh_that_is_joined_again_replaces_its_entry() {
    let mut read = JoinedMeshes::parse(&file().to_string()).unwrap();
    let mut again = read.meshes[0].clone();
    again.member_id = "m-b".to_owned();
    read.put(again);
    assert_eq!(read.meshes.len(), 1);
    assert_eq!(read.get("mesh-one").unwrap().member_id, "m-b");
}

#[test]
fn keys_must_belong_together_and_are_not_printed() {
    let mut mesh = JoinedMeshes::parse(&file().to_string())
        .unwrap()
        .meshes
        .remove(0);
    assert!(!format!("{mesh:?}").contains(&"01".repeat(32)));
    mesh.pubkey = "ab".repeat(32);
    assert!(mesh.key().is_err());
}

#[test]
fn a_secret_key_is_wiped_when_it_is_dropped() {
    fn is_wiped(_: &impl zeroize::ZeroizeOnDrop) {}
    let text = r#"{"version":1,"meshes":[{"meshId":"m","memberId":"n","slug":"s","name":"s","pubkey":"p","secretKey":"k","brokerUrl":"ws://b/ws","joinedAt":"t"}]}"#;
    let meshes = JoinedMeshes::parse(text).unwrap();
    is_wiped(&meshes.meshes[0].secret_key);
    assert_eq!(serde_json::to_string(&meshes).unwrap(), text);
}
