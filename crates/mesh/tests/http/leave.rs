//! A member that ends its own membership.

use consign_mesh::keys::MeshPrivateKey;
use consign_mesh::signed_text::MeshSignedText;
use serde_json::json;

use crate::world::{Answer, World, key};

impl World {
    /// Asks to end the membership of `of`, signed by `by`.
    async fn leave(&self, mesh: &str, of: u8, by: u8) -> Answer {
        let path = format!("/v1/me/members/{}/leave", key(of));
        let private = MeshPrivateKey::from_seed(&[by; 32]);
        let member = private.public_key().to_string();
        let now = u64::try_from(self.engine.wall().0 / 1_000).unwrap();
        let signature = MeshSignedText::http(mesh, &member, "POST", &path, now).sign(&private);
        let now = now.to_string();
        let headers = [
            ("x-mesh-id", mesh),
            ("x-mesh-member", &member),
            ("x-mesh-timestamp", &now),
            ("x-mesh-signature", &signature),
        ];
        self.request("POST", &path, &headers, None).await
    }
}

#[tokio::test]
async fn cm_129_a_member_leaves_by_itself_and_removes_no_other() {
    let world = World::new();
    let mesh = world.mesh(&json!({})).await;
    let alice = world.member(1, "alice").await;
    world.member(2, "bob").await;
    let other = world.leave(&mesh, 2, 1).await;
    assert_eq!(other.error(), (403, "forbidden".to_owned()));
    let stranger = world.leave(&mesh, 9, 9).await;
    assert_eq!(stranger.error(), (401, "unauthorized".to_owned()));
    let left = world.leave(&mesh, 1, 1).await.of(200);
    assert_eq!(left["memberId"], json!(alice));
    let members = world.get("/v1/meshes/acme/members").await.of(200);
    let names = members["members"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|member| &member["name"]).collect();
    assert_eq!(names, ["bob"]);
    let again = world.leave(&mesh, 1, 1).await;
    assert_eq!(again.error(), (401, "unauthorized".to_owned()));
}
