//! What operators find and change: searches across owners and protocols, single rows, dead letters, bulk jobs.
//!
//! Invariant: these calls carry the admin token alone, never the API key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call::{Call, Credential};
use crate::query::{encode, path_with_query};
use crate::{Client, Error};

/// Which rows to find, and where to continue.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    pub filter: String,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// A row that a search found, without its payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundIntent {
    pub id: String,
    pub face: String,
    pub state: String,
    pub namespace: String,
    pub goal: String,
    pub owner: String,
    #[serde(default)]
    pub claimed_by: Option<String>,
    #[serde(default)]
    pub worker: Option<String>,
    #[serde(default)]
    pub priority: i64,
    pub attempts: u32,
    pub max_attempts: u32,
    #[serde(default)]
    pub last_error: Option<String>,
    /// Seconds.
    pub age: f64,
    pub created_at: f64,
    #[serde(default)]
    pub run_at: Option<f64>,
    #[serde(default)]
    pub claimed_at: Option<f64>,
    #[serde(default)]
    pub settled_at: Option<f64>,
    #[serde(default)]
    pub expires_at: Option<f64>,
}

/// One page of a search.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundPage {
    pub intents: Vec<FoundIntent>,
    #[serde(default)]
    pub cursor: Option<String>,
    #[serde(default)]
    pub examined: u64,
}

/// How many of the examined rows match.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundCount {
    pub count: u64,
    pub examined: u64,
    #[serde(default)]
    pub cursor: Option<String>,
}

/// All that an operator sees of an intent.
#[derive(Debug, Clone, Deserialize)]
pub struct InspectedIntent {
    pub payload: Box<RawValue>,
    pub publisher: String,
    #[serde(default)]
    pub claimed_by: Option<String>,
    pub max_attempts: u32,
    #[serde(default)]
    pub backoff_base: f64,
    #[serde(default)]
    pub last_error: Option<String>,
    pub created_at: f64,
    #[serde(default)]
    pub expires_at: Option<f64>,
    #[serde(default)]
    pub claimed_at: Option<f64>,
    #[serde(default)]
    pub failed_at: Option<f64>,
}

/// A dead letter; its payload and publisher only if it was asked for alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeadLetter {
    pub intent_id: String,
    pub namespace: String,
    pub goal: String,
    pub attempts: u32,
    #[serde(default)]
    pub reason: String,
    /// When it died, in Unix seconds.
    #[serde(default)]
    pub created_at: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<String>,
}

/// One page of dead letters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeadPage {
    pub dead: Vec<DeadLetter>,
    #[serde(default)]
    pub cursor: Option<String>,
}

/// The new state of a row that an operator changed.
#[derive(Debug, Clone, Deserialize)]
pub struct OperatedIntent {
    #[serde(default)]
    pub status: String,
}

impl Client {
    pub async fn search(&self, request: &SearchRequest) -> Result<FoundPage, Error> {
        let path = searched("/admin/intents", request);
        self.fetch(Call::get("search", path).credential(Credential::Admin))
            .await
    }

    /// Counts the rows that match, from a cursor on.
    pub async fn count(&self, request: &SearchRequest) -> Result<FoundCount, Error> {
        let path = searched("/admin/intents/count", request);
        self.fetch(Call::get("count", path).credential(Credential::Admin))
            .await
    }

    pub async fn inspect(&self, id: &str) -> Result<InspectedIntent, Error> {
        let path = format!("/admin/intents/{}", encode(id.as_bytes()));
        self.fetch(Call::get("inspect", path).credential(Credential::Admin))
            .await
    }

    pub async fn retry_intent(&self, id: &str, force: bool) -> Result<OperatedIntent, Error> {
        self.operate(id, "retry", force).await
    }

    pub async fn cancel_intent(&self, id: &str, force: bool) -> Result<OperatedIntent, Error> {
        self.operate(id, "cancel", force).await
    }

    async fn operate(
        &self,
        id: &str,
        action: &'static str,
        force: bool,
    ) -> Result<OperatedIntent, Error> {
        #[derive(Serialize)]
        struct Body {
            force: bool,
        }
        let path = format!("/admin/intents/{}/{action}", encode(id.as_bytes()));
        let call = Call::post(action, path).json(&Body { force })?;
        self.fetch(call.credential(Credential::Admin)).await
    }

    pub async fn delete_intent(&self, id: &str) -> Result<(), Error> {
        let path = format!("/admin/intents/{}", encode(id.as_bytes()));
        let call = Call::delete("delete", path).credential(Credential::Admin);
        self.answer(call).await.map(drop)
    }

    pub async fn dead_letters(&self, request: &SearchRequest) -> Result<DeadPage, Error> {
        let request = SearchRequest {
            // Without a parameter the answer is the list that the protocol defines.
            limit: Some(request.limit.unwrap_or(100)),
            ..request.clone()
        };
        let path = searched("/admin/dead", &request);
        self.fetch(Call::get("dead letters", path).credential(Credential::Admin))
            .await
    }

    pub async fn dead_letter(&self, id: &str) -> Result<DeadLetter, Error> {
        let path = format!("/admin/dead/{}", encode(id.as_bytes()));
        self.fetch(Call::get("dead letter", path).credential(Credential::Admin))
            .await
    }
}

/// A row that a bulk job did not change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RefusedRow {
    pub id: String,
    pub code: String,
}

/// An operator's step on all rows that match, and how far it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BulkProgress {
    pub id: String,
    pub action: String,
    pub filter: String,
    pub state: String,
    #[serde(default)]
    pub matching: Option<u64>,
    pub examined: u64,
    pub done: u64,
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    #[serde(default)]
    pub refusals: Vec<RefusedRow>,
    pub created_at: f64,
    #[serde(default)]
    pub ended_at: Option<f64>,
}

impl BulkProgress {
    /// How many rows it could not change.
    pub fn refused_count(&self) -> u64 {
        self.refused.values().sum()
    }
}

impl Client {
    pub async fn start_bulk(&self, action: &str, filter: &str) -> Result<BulkProgress, Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            action: &'a str,
            filter: &'a str,
            confirm: bool,
        }
        let call = Call::post("bulk job", "/admin/bulk".to_owned()).json(&Body {
            action,
            filter,
            confirm: true,
        })?;
        self.fetch(call.credential(Credential::Admin)).await
    }

    pub async fn bulk_jobs(&self) -> Result<Vec<BulkProgress>, Error> {
        let call = Call::get("bulk jobs", "/admin/bulk".to_owned());
        self.fetch(call.credential(Credential::Admin)).await
    }

    pub async fn bulk_job(&self, id: &str) -> Result<BulkProgress, Error> {
        let path = format!("/admin/bulk/{}", encode(id.as_bytes()));
        self.fetch(Call::get("bulk job", path).credential(Credential::Admin))
            .await
    }

    pub async fn cancel_bulk(&self, id: &str) -> Result<BulkProgress, Error> {
        let path = format!("/admin/bulk/{}/cancel", encode(id.as_bytes()));
        self.fetch(Call::post("bulk job", path).credential(Credential::Admin))
            .await
    }
}

fn searched(path: &str, request: &SearchRequest) -> String {
    let limit = request.limit.map(|limit| limit.to_string());
    let filter = Some(request.filter.as_str()).filter(|filter| !filter.is_empty());
    path_with_query(
        path,
        &[
            ("cursor", request.cursor.as_deref()),
            ("filter", filter),
            ("limit", limit.as_deref()),
        ],
    )
}
