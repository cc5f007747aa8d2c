//! The small key-value store beside the queue.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Call;
use crate::query::encode;
use crate::{Client, Error};

impl Client {
    /// Stores a value for `ttl_s` seconds, or for the server's default time.
    pub async fn set(&self, key: &str, value: &Value, ttl_s: Option<u64>) -> Result<(), Error> {
        #[derive(Serialize)]
        struct Body<'a> {
            value: &'a Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            ttl: Option<u64>,
        }
        let path = format!("/set/{}", encode(key.as_bytes()));
        let call = Call::post("set", path).json(&Body { value, ttl: ttl_s })?;
        self.answer(call).await.map(drop)
    }

    /// The stored value; `None` if there is none or it has expired.
    pub async fn get(&self, key: &str) -> Result<Option<Value>, Error> {
        #[derive(Deserialize)]
        struct Body {
            value: Value,
        }
        let path = format!("/get/{}", encode(key.as_bytes()));
        match self.fetch::<Body>(Call::get("get", path)).await {
            Ok(body) => Ok(Some(body.value)),
            Err(error) if error.status() == Some(http::StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
