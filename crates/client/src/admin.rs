//! The admin routes: keys, users, the audit log, nodes.
//!
//! Invariant: these calls carry the admin token alone, never the API key.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Credential, refused};
use crate::query::{encode, path_with_query};
use crate::{
    ApiKeyInfo, AuditRecords, Client, Error, Events, KeyGrant, KeyOptions, NewApiKey, NodeStatus,
    SecretKey, UserStatus,
};

#[derive(Deserialize)]
struct GeneratedKey {
    api_key: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    grants: Vec<String>,
}

impl From<GeneratedKey> for NewApiKey {
    fn from(made: GeneratedKey) -> Self {
        Self {
            key: SecretKey::new(&made.api_key),
            id: made.id,
            owner: made.owner,
            grants: made.grants,
        }
    }
}

/// Which entries of the audit log to list.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// The end of an earlier page.
    pub after: Option<String>,
    pub limit: u32,
    pub actor: Option<String>,
    pub action: Option<String>,
    /// Unix seconds.
    pub since: Option<i64>,
}

impl Client {
    /// Creates a key that may claim in these reserved namespaces.
    pub async fn generate_key(
        &self,
        owner: Option<&str>,
        grants: &[String],
        options: &KeyOptions,
    ) -> Result<NewApiKey, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            owner: Option<&'a str>,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            grants: &'a [String],
            #[serde(flatten)]
            options: &'a KeyOptions,
        }
        let call = Call::post("generate_key", "/admin/generate_key".to_owned())
            .json(&Body {
                owner,
                grants,
                options,
            })?
            .credential(Credential::Admin);
        let answer: GeneratedKey = self.fetch(call).await?;
        Ok(answer.into())
    }

    /// A key by its id.
    pub async fn key(&self, id: &str) -> Result<ApiKeyInfo, Error> {
        let path = format!("/admin/keys/{}", encode(id.as_bytes()));
        self.fetch(Call::get("key", path).credential(Credential::Admin))
            .await
    }

    /// Changes the settings of a key.
    pub async fn change_key(&self, id: &str, options: &KeyOptions) -> Result<ApiKeyInfo, Error> {
        let path = format!("/admin/keys/{}", encode(id.as_bytes()));
        let call = Call::post("change_key", path).json(options)?;
        self.fetch(call.credential(Credential::Admin)).await
    }

    /// Gives a key a new secret; the present one is accepted for `overlap_s` longer.
    pub async fn rotate_key(&self, id: &str, overlap_s: u64) -> Result<NewApiKey, Error> {
        #[derive(Serialize)]
        struct Body {
            overlap: u64,
        }
        let path = format!("/admin/keys/{}/rotate", encode(id.as_bytes()));
        let body = Body { overlap: overlap_s };
        let call = Call::post("rotate_key", path).json(&body)?;
        let answer: GeneratedKey = self.fetch(call.credential(Credential::Admin)).await?;
        Ok(answer.into())
    }

    pub async fn users(&self) -> Result<Vec<UserStatus>, Error> {
        let call = Call::get("users", "/admin/users".to_owned()).credential(Credential::Admin);
        self.fetch(call).await
    }

    /// Adds a user; without a password the server makes one.
    pub async fn add_user(
        &self,
        name: &str,
        role: &str,
        password: Option<&SecretKey>,
    ) -> Result<UserStatus, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            name: &'a str,
            role: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            password: Option<&'a str>,
        }
        let password = password.map(SecretKey::reveal);
        let body = Body {
            name,
            role,
            password,
        };
        let call = Call::post("add_user", "/admin/users".to_owned()).json(&body)?;
        self.fetch(call.credential(Credential::Admin)).await
    }

    pub async fn set_user_role(&self, name: &str, role: &str) -> Result<UserStatus, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            role: &'a str,
        }
        self.change_user(name, &Body { role }).await
    }

    /// Sets the password of a user; without one the server makes it.
    pub async fn set_user_password(
        &self,
        name: &str,
        password: Option<&SecretKey>,
    ) -> Result<UserStatus, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            password: Option<&'a str>,
            new_password: bool,
        }
        let body = Body {
            password: password.map(SecretKey::reveal),
            new_password: password.is_none(),
        };
        self.change_user(name, &body).await
    }

    async fn change_user(&self, name: &str, body: &impl Serialize) -> Result<UserStatus, Error> {
        let path = format!("/admin/users/{}", encode(name.as_bytes()));
        let call = Call::post("change_user", path).json(body)?;
        self.fetch(call.credential(Credential::Admin)).await
    }

    pub async fn remove_user(&self, name: &str) -> Result<(), Error> {
        let path = format!("/admin/users/{}/remove", encode(name.as_bytes()));
        let call = Call::post("remove_user", path).credential(Credential::Admin);
        self.answer(call).await.map(drop)
    }

    /// A page of the audit log.
    pub async fn audit(&self, filter: &AuditQuery) -> Result<AuditRecords, Error> {
        let (limit, since) = (
            filter.limit.to_string(),
            filter.since.map(|since| since.to_string()),
        );
        let path = path_with_query(
            "/admin/audit",
            &[
                ("action", filter.action.as_deref()),
                ("actor", filter.actor.as_deref()),
                ("after", filter.after.as_deref()),
                ("limit", Some(&limit)),
                ("since", since.as_deref()),
            ],
        );
        self.fetch(Call::get("audit", path).credential(Credential::Admin))
            .await
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
    pub async fn newest_dead_letters(&self) -> Result<Vec<serde_json::Value>, Error> {
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
