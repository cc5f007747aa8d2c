//! Files that members share.

use consign_kernel::ids::DAY_US;
use consign_mesh::broker::BlobSettings;
use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::signed_text::MeshSignedText;
use consign_web::listener_policy::ListenerPolicy;
use data_encoding::HEXLOWER;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::world::{Answer, World, key};

const BYTES_MAX: u64 = 200_000;

/// A world with a folder, and an API key of its first member.
async fn world() -> (World, TempDir, String, String) {
    world_with(|_| ()).await
}

async fn world_with(change: impl FnOnce(&mut BlobSettings)) -> (World, TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let world = World::with(ListenerPolicy::default(), |settings| {
        let mut blobs = BlobSettings::new(folder.path().join("blobs"));
        (blobs.bytes_max, blobs.free_bytes_min) = (BYTES_MAX, 0);
        change(&mut blobs);
        settings.blobs = Some(blobs);
    });
    let mesh = world.mesh(&json!({"message_days": 30})).await;
    world.member(1, "alice").await;
    let capabilities = json!({"capabilities": ["send", "read"]});
    let api_key = world.api_key(1, capabilities).await;
    (world, folder, mesh, api_key)
}

fn path_of(text: &str) -> String {
    format!("/v1/blobs/{}", HEXLOWER.encode(&Sha256::digest(text)))
}

impl World {
    async fn blob(&self, method: &str, path: &str, api_key: &str, body: Option<&str>) -> Answer {
        let bearer = format!("Bearer {api_key}");
        let headers = [("authorization", bearer.as_str())];
        self.request(method, path, &headers, body).await
    }

    /// The number of files in the folder.
    fn files(folder: &TempDir) -> usize {
        let mut count = 0;
        let mut folders = vec![folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    count += 1;
                }
            }
        }
        count
    }
}

#[tokio::test]
async fn a_file_is_stored_under_its_hash_and_returned() {
    let (world, folder, _, api_key) = world().await;
    let text = "x".repeat(150_000);
    let path = path_of(&text);
    let missing = world.blob("GET", &path, &api_key, None).await;
    assert_eq!(missing.error(), (404, "not_found".to_owned()));
    let stored = world.blob("PUT", &path, &api_key, Some(&text)).await;
    assert_eq!(stored.of(201)["bytes"], json!(150_000));
    let again = world.blob("PUT", &path, &api_key, Some(&text)).await;
    again.of(200);
    let found = world.blob("GET", &path, &api_key, None).await;
    assert_eq!((found.status, &found.text), (200, &text));
    assert_eq!(World::files(&folder), 1);
    // A file of another mesh does not exist here.
    world.post("/v1/meshes", &json!({"slug": "other"})).await;
    let token = world.post("/v1/meshes/other/invites", &json!({})).await;
    let token = token.of(201)["token"].as_str().unwrap().to_owned();
    world.join(&token, 2, "bob").await.of(200);
    let other = json!({"member": key(2), "capabilities": ["read"]});
    let other = world.post("/v1/meshes/other/keys", &other).await.of(201);
    let other = other["key"].as_str().unwrap();
    assert_eq!(world.blob("GET", &path, other, None).await.status, 404);
    let refused = world.blob("PUT", &path, other, Some(&text)).await;
    assert_eq!(refused.error(), (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn what_is_not_the_named_file_leaves_nothing() {
    let (world, folder, _, api_key) = world().await;
    let wrong = world
        .blob("PUT", &path_of("one"), &api_key, Some("another"))
        .await;
    assert_eq!(wrong.error(), (400, "invalid_payload".to_owned()));
    let long = "x".repeat(200_001);
    let path = path_of(&long);
    let large = world.blob("PUT", &path, &api_key, Some(&long)).await;
    assert_eq!(large.error(), (413, "payload_too_large".to_owned()));
    for name in ["abc", &"A".repeat(64), &"%2e%2e%2f".repeat(7)] {
        let path = format!("/v1/blobs/{name}");
        let answer = world.blob("PUT", &path, &api_key, Some("x")).await;
        assert_eq!(
            answer.error(),
            (400, "invalid_request".to_owned()),
            "{name}"
        );
    }
    assert_eq!(World::files(&folder), 0);
    let without = World::new();
    without.mesh(&json!({})).await;
    without.member(1, "alice").await;
    let api_key = without.api_key(1, json!({"capabilities": ["send"]})).await;
    let none = without
        .blob("PUT", &path_of("x"), &api_key, Some("x"))
        .await;
    assert_eq!(none.error(), (503, "blobs_unavailable".to_owned()));
}

#[tokio::test]
async fn a_member_signs_its_requests() {
    let (world, _folder, mesh, _) = world().await;
    let path = path_of("hello");
    let now = u64::try_from(world.engine.wall().0 / 1_000).unwrap();
    let send = async |seed: u8, signed: &str, timestamp: u64| {
        let private = MeshPrivateKey::from_seed(&[seed; 32]);
        let member = private.public_key().to_string();
        let text = MeshSignedText::http(&mesh, &member, signed, &path, timestamp);
        let timestamp = timestamp.to_string();
        let signature = text.sign(&private);
        let headers = [
            ("x-mesh-id", mesh.as_str()),
            ("x-mesh-member", &member),
            ("x-mesh-timestamp", &timestamp),
            ("x-mesh-signature", &signature),
        ];
        world.request("PUT", &path, &headers, Some("hello")).await
    };
    send(1, "PUT", now).await.of(201);
    let unauthorized = (401, "unauthorized".to_owned());
    for (seed, method, timestamp) in [
        (1, "GET", now),
        (1, "PUT", now - 60_001),
        (1, "PUT", now + 60_001),
        (9, "PUT", now),
    ] {
        let refused = send(seed, method, timestamp).await;
        assert_eq!(refused.error(), unauthorized, "{seed} {method} {timestamp}");
    }
    let incomplete = [("x-mesh-signature", "00")];
    let incomplete = world
        .request("PUT", &path, &incomplete, Some("hello"))
        .await;
    assert_eq!(incomplete.error(), unauthorized);
}

#[tokio::test]
async fn a_file_ends_with_its_retention() {
    let (world, folder, _, api_key) = world().await;
    let path = path_of("hello");
    let stored = world.blob("PUT", &path, &api_key, Some("hello")).await;
    stored.of(201);
    let sweep = async |days: i64| {
        let at = world.engine.wall().0 + days * DAY_US;
        let at = jiff::Timestamp::from_microsecond(at).unwrap().to_string();
        let body = json!({"as_of": at});
        world.post("/v1/mesh/sweep", &body).await.of(200);
    };
    sweep(29).await;
    assert_eq!(world.blob("GET", &path, &api_key, None).await.status, 200);
    sweep(31).await;
    assert_eq!(world.blob("GET", &path, &api_key, None).await.status, 404);
    assert_eq!(World::files(&folder), 0);
}

#[tokio::test]
async fn the_files_of_a_mesh_have_a_limit_together() {
    let limit = |blobs: &mut BlobSettings| blobs.mesh_bytes_max = 1_000;
    let (world, _folder, _, api_key) = world_with(limit).await;
    let put = async |text: &str| {
        let path = path_of(text);
        world.blob("PUT", &path, &api_key, Some(text)).await
    };
    let first = "x".repeat(600);
    put(&first).await.of(201);
    let refused = put(&"y".repeat(401)).await;
    assert_eq!(refused.error(), (413, "payload_too_large".to_owned()));
    assert!(refused.text.contains("400 bytes"), "{}", refused.text);
    // A file that is there takes no more room, and one that has ended takes none.
    put(&first).await.of(200);
    put(&"y".repeat(400)).await.of(201);
    assert_eq!(put("z").await.status, 413);
    world.clock.advance_us(31 * DAY_US);
    put("z").await.of(201);
}

#[tokio::test]
async fn a_disk_without_room_takes_no_file() {
    let limit = |blobs: &mut BlobSettings| blobs.free_bytes_min = u64::MAX;
    let (world, folder, _, api_key) = world_with(limit).await;
    let refused = world.blob("PUT", &path_of("x"), &api_key, Some("x")).await;
    assert_eq!(refused.error(), (503, "blobs_unavailable".to_owned()));
    assert!(refused.text.contains("disk"), "{}", refused.text);
    assert_eq!(World::files(&folder), 0);
}
