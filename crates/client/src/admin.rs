//! The admin routes: creating, listing and revoking keys; listing and draining nodes.
//!
//! Invariant: these calls carry the admin token alone, never the API key.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Credential, refused};
use crate::query::path_with_query;
use crate::{ApiKeyInfo, Client, Error, Events, KeyGrant, NewApiKey, NodeStatus, SecretKey};

impl Client {
    /// Creates a key that may claim in these reserved namespaces.
    pub async fn generate_key(
        &self,
        owner: Option<&str>,
        grants: &[String],
    ) -> Result<NewApiKey, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            owner: Option<&'a str>,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            grants: &'a [String],
        }
        #[derive(Deserialize)]
        struct GeneratedKey {
            api_key: String,
            #[serde(default)]
            owner: String,
            #[serde(default)]
            grants: Vec<String>,
        }
        let call = Call::post("generate_key", "/admin/generate_key".to_owned())
            .json(&Body { owner, grants })?
            .credential(Credential::Admin);
        let answer: GeneratedKey = self.fetch(call).await?;
        Ok(NewApiKey {
            key: SecretKey::new(&answer.api_key),
            owner: answer.owner,
            grants: answer.grants,
        })
    }

    pub async fn revoke_key(&self, key: &SecretKey) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            api_key: &'a str,
        }
        let call = Call::post("revoke_key", "/admin/revoke_key".to_owned())
            .json(&Body {
                api_key: key.reveal(),
            })?
            .credential(Credential::Admin);
        self.answer(call).await.map(drop)
    }

    /// The state of the whole server. One whose ledger cannot be read answers as well, with `healthy` false.
    pub async fn server_status(&self) -> Result<serde_json::Value, Error> {
        let call = Call::get("status", "/admin/status".to_owned()).credential(Credential::Admin);
        let response = self.respond(call).await?;
        let body: Option<serde_json::Value> = serde_json::from_slice(&response.body).ok();
        match body.filter(|body| body["healthy"].is_boolean()) {
            Some(body) => Ok(body),
            None if response.status.as_u16() >= 400 => Err(refused(&response)),
            None => Err(Error::Unreadable {
                what: "status",
                why: "it does not say whether the server is healthy".to_owned(),
            }),
        }
    }

    /// The newest dead letters, as the server reports them.
    pub async fn dead_letters(&self) -> Result<Vec<serde_json::Value>, Error> {
        let call = Call::get("dead letters", "/admin/dead".to_owned());
        self.fetch(call.credential(Credential::Admin)).await
    }

    /// Opens the stream of all facts, from now on or after `last_event_id`.
    pub async fn all_events(
        &self,
        query: &[(&str, Option<&str>)],
        last_event_id: Option<&str>,
    ) -> Result<Events, Error> {
        let path = path_with_query("/admin/events", query);
        self.events_with(&path, last_event_id, Credential::Admin)
            .await
    }

    pub async fn keys(&self) -> Result<Vec<ApiKeyInfo>, Error> {
        let call = Call::get("keys", "/admin/keys".to_owned()).credential(Credential::Admin);
        self.fetch(call).await
    }

    pub async fn grants(&self) -> Result<Vec<KeyGrant>, Error> {
        let call = Call::get("grants", "/admin/grants".to_owned()).credential(Credential::Admin);
        self.fetch(call).await
    }

    /// Lets a key claim in a reserved namespace.
    pub async fn grant(&self, key_id: &str, namespace: &str) -> Result<(), Error> {
        self.change_grant("/admin/grant", key_id, namespace).await
    }

    /// Ends a grant. What the key holds it may still settle.
    pub async fn revoke_grant(&self, key_id: &str, namespace: &str) -> Result<(), Error> {
        self.change_grant("/admin/revoke_grant", key_id, namespace)
            .await
    }

    async fn change_grant(&self, path: &str, key_id: &str, namespace: &str) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            key_id: &'a str,
            namespace: &'a str,
        }
        let call = Call::post("grant", path.to_owned())
            .json(&Body { key_id, namespace })?
            .credential(Credential::Admin);
        self.answer(call).await.map(drop)
    }

    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, Error> {
        let call = Call::get("nodes", "/admin/nodes".to_owned()).credential(Credential::Admin);
        self.fetch(call).await
    }

    /// Stops a node from handing out work, or lets it resume.
    pub async fn drain_node(&self, id: i64, drain: bool) -> Result<NodeStatus, Error> {
        let (operation, wish) = if drain {
            ("drain_node", "drain")
        } else {
            ("resume_node", "resume")
        };
        let call = Call::post(operation, format!("/admin/nodes/{id}/{wish}"));
        self.fetch(call.credential(Credential::Admin)).await
    }
}
