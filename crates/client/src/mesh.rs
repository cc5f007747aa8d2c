//! Calls of operators of a mesh: meshes, invites, members, retention and reads.
//!
//! Responses are returned as the server sent them. The credential is the admin token; `/join` needs none.

use std::time::Duration;

use serde_json::{Value, json};

use crate::call::{Call, Credential};
use crate::query::{encode, path_with_query};
use crate::{Client, Error};

/// How long a pass over all messages may take.
const UPKEEP_WAIT: Duration = Duration::from_mins(30);

impl Client {
    pub async fn mesh_create(&self, mesh: &Value) -> Result<Value, Error> {
        self.mesh_post("mesh", "/v1/meshes".to_owned(), mesh).await
    }

    pub async fn meshes(&self) -> Result<Value, Error> {
        self.mesh_get("meshes", "/v1/meshes".to_owned()).await
    }

    pub async fn mesh(&self, slug: &str) -> Result<Value, Error> {
        self.mesh_get("mesh", mesh_path(slug, "")).await
    }

    /// The response has the token of the invite, which is not shown again.
    pub async fn mesh_invite(&self, slug: &str, invite: &Value) -> Result<Value, Error> {
        self.mesh_post("invite", mesh_path(slug, "/invites"), invite)
            .await
    }

    pub async fn mesh_invites(&self, slug: &str) -> Result<Value, Error> {
        self.mesh_get("invites", mesh_path(slug, "/invites")).await
    }

    pub async fn mesh_revoke_invite(&self, slug: &str, id: &str) -> Result<Value, Error> {
        let path = format!("/invites/{}/revoke", encode(id.as_bytes()));
        self.mesh_post("revocation", mesh_path(slug, &path), &json!({}))
            .await
    }

    /// The members of a mesh; revoked ones only if `all`.
    pub async fn mesh_members(&self, slug: &str, all: bool) -> Result<Value, Error> {
        let path = mesh_path(slug, "/members");
        let path = path_with_query(&path, &[("all", all.then_some("true"))]);
        self.mesh_get("members", path).await
    }

    pub async fn mesh_rename_member(
        &self,
        slug: &str,
        pubkey: &str,
        name: &str,
    ) -> Result<Value, Error> {
        let path = format!("/members/{}/rename", encode(pubkey.as_bytes()));
        self.mesh_post(
            "member name",
            mesh_path(slug, &path),
            &json!({"name": name}),
        )
        .await
    }

    /// What the member with `pubkey` lets `member` do; `None` is the default.
    pub async fn mesh_set_grants(
        &self,
        slug: &str,
        pubkey: &str,
        member: &str,
        grants: Option<&[String]>,
    ) -> Result<Value, Error> {
        let path = format!("/members/{}/grants", encode(pubkey.as_bytes()));
        let body = json!({"member": member, "grants": grants});
        self.mesh_post("grants", mesh_path(slug, &path), &body)
            .await
    }

    pub async fn mesh_revoke_member(&self, slug: &str, pubkey: &str) -> Result<Value, Error> {
        let path = format!("/members/{}/revoke", encode(pubkey.as_bytes()));
        self.mesh_post("revocation", mesh_path(slug, &path), &json!({}))
            .await
    }

    pub async fn mesh_topics(&self, slug: &str) -> Result<Value, Error> {
        self.mesh_get("topics", mesh_path(slug, "/topics")).await
    }

    /// Lets a topic fill a queue.
    pub async fn mesh_subscribe(
        &self,
        slug: &str,
        topic: &str,
        queue: &str,
    ) -> Result<Value, Error> {
        let body = json!({"topic": topic, "queue": queue});
        self.mesh_post("subscription", mesh_path(slug, "/subscribe"), &body)
            .await
    }

    /// Ends what [`Self::mesh_subscribe`] began.
    pub async fn mesh_unsubscribe(
        &self,
        slug: &str,
        topic: &str,
        queue: &str,
    ) -> Result<Value, Error> {
        let body = json!({"topic": topic, "queue": queue});
        self.mesh_post("subscription", mesh_path(slug, "/unsubscribe"), &body)
            .await
    }

    pub async fn mesh_peers(&self, slug: &str) -> Result<Value, Error> {
        self.mesh_get("connections", mesh_path(slug, "/peers"))
            .await
    }

    /// The latest messages, without bodies.
    pub async fn mesh_messages(&self, slug: &str, limit: Option<u32>) -> Result<Value, Error> {
        let limit = limit.map(|limit| limit.to_string());
        let path = mesh_path(slug, "/messages");
        let path = path_with_query(&path, &[("limit", limit.as_deref())]);
        self.mesh_get("messages", path).await
    }

    /// The items of queues that no worker finished, without bodies.
    pub async fn mesh_dead(&self, slug: &str, limit: Option<u32>) -> Result<Value, Error> {
        let limit = limit.map(|limit| limit.to_string());
        let path = mesh_path(slug, "/dead");
        let path = path_with_query(&path, &[("limit", limit.as_deref())]);
        self.mesh_get("dead items", path).await
    }

    /// Offers a dead item to workers again.
    pub async fn mesh_requeue(&self, slug: &str, id: &str) -> Result<Value, Error> {
        let path = format!("/dead/{}/requeue", encode(id.as_bytes()));
        self.mesh_post("requeue", mesh_path(slug, &path), &json!({}))
            .await
    }

    pub async fn mesh_dedupe(&self, slug: &str) -> Result<Value, Error> {
        self.mesh_get("conflicts", mesh_path(slug, "/dedupe")).await
    }

    /// The response has the text of the key, which is not shown again.
    pub async fn mesh_create_key(&self, slug: &str, key: &Value) -> Result<Value, Error> {
        self.mesh_post("key", mesh_path(slug, "/keys"), key).await
    }

    pub async fn mesh_keys(&self, slug: &str) -> Result<Value, Error> {
        self.mesh_get("keys", mesh_path(slug, "/keys")).await
    }

    pub async fn mesh_revoke_key(&self, slug: &str, id: &str) -> Result<Value, Error> {
        let path = format!("/keys/{}/revoke", encode(id.as_bytes()));
        self.mesh_post("revocation", mesh_path(slug, &path), &json!({}))
            .await
    }

    /// Removes what is past its retention, which may take a while.
    pub async fn mesh_sweep(&self, sweep: &Value) -> Result<Value, Error> {
        self.mesh_upkeep("sweep", "/v1/mesh/sweep", sweep).await
    }

    pub async fn mesh_orphan_check(&self, check: &Value) -> Result<Value, Error> {
        self.mesh_upkeep("orphan check", "/v1/mesh/orphan-check", check)
            .await
    }

    async fn mesh_upkeep(
        &self,
        what: &'static str,
        path: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let call = Call::post(what, path.to_owned()).credential(Credential::Admin);
        self.fetch(call.json(body)?.extra_wait(UPKEEP_WAIT)).await
    }

    /// Joins a mesh with an invite. A refusal is the body of a status 400.
    pub async fn mesh_join(&self, request: &Value) -> Result<crate::Response, Error> {
        let call = Call::post("join", "/join".to_owned()).credential(Credential::None);
        self.respond(call.json(request)?).await
    }

    pub(crate) async fn mesh_get(&self, what: &'static str, path: String) -> Result<Value, Error> {
        self.fetch(Call::get(what, path).credential(Credential::Admin))
            .await
    }

    pub(crate) async fn mesh_post(
        &self,
        what: &'static str,
        path: String,
        body: &Value,
    ) -> Result<Value, Error> {
        let call = Call::post(what, path).credential(Credential::Admin);
        self.fetch(call.json(body)?).await
    }
}

fn mesh_path(slug: &str, rest: &str) -> String {
    format!("/v1/meshes/{}{rest}", encode(slug.as_bytes()))
}
