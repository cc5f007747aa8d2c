//! Requests to the server before and after a measurement.

use anyhow::{Context, anyhow};
use consign_client::{Bytes, Client, HeaderMap, Method};
use serde_json::Value;

/// The JSON of a successful response.
pub(super) async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    headers: HeaderMap,
    body: Bytes,
) -> anyhow::Result<Value> {
    let answer = client.request(method, path, headers, body).await?;
    if !answer.status.is_success() {
        let said = String::from_utf8_lossy(&answer.body);
        return Err(anyhow!("{path} was refused: {} {said}", answer.status));
    }
    serde_json::from_slice(&answer.body).with_context(|| format!("{path} answered no JSON"))
}
