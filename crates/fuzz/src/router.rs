//! Requests through the router: every response has the protocol's format and is never a server error.

use std::time::Duration;

use axum::response::Response;
use consign_kernel::error::Code;
use consign_kernel::receipt::{PublicKey, Signer, verify};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::requests::{ScriptRequest, ScriptStep, SeenValues, steps};
use crate::test_server::TestServer;

/// Longer than the longest poll; endless streams are abandoned then.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) fn run(script: &[u8]) {
    statuses(script);
}

fn statuses(script: &[u8]) -> Vec<StatusCode> {
    // Time is paused: when all tasks wait for a timer, it fires at once.
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without IO needs nothing of the system");
    runtime.block_on(play(script))
}

/// Sends the requests one after the other; returns the status of each response.
async fn play(script: &[u8]) -> Vec<StatusCode> {
    let server = TestServer::new();
    let mut statuses = Vec::new();
    let mut seen = SeenValues::default();
    for step in steps(script) {
        let text = match step {
            ScriptStep::Wait { seconds } => {
                server.wait(seconds);
                continue;
            }
            ScriptStep::Send(text) => text,
        };
        let Some(request) = ScriptRequest::read(text, &seen) else {
            continue;
        };
        let asked = format!("{} {}", request.method, request.uri);
        let head_only = request.method == Method::HEAD;
        let response = timeout(PATIENCE, server.send(request)).await;
        let response = response.unwrap_or_else(|_| panic!("{asked} was never answered"));
        let answer = RouterResponse::read(response).await;
        answer.check(&asked, head_only);
        answer.remember(&mut seen);
        statuses.push(answer.status);
    }
    statuses
}

struct RouterResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorObject,
}

#[derive(Deserialize)]
struct ErrorObject {
    code: String,
    message: String,
}

/// The values of a response that later requests can use.
#[derive(Deserialize)]
struct KnownValues {
    id: Option<String>,
    claim_token: Option<String>,
    api_key: Option<String>,
    #[serde(default)]
    intents: Vec<Self>,
}

impl KnownValues {
    fn remember(self, seen: &mut SeenValues) {
        // Receipts have longer ids.
        if let Some(id) = self.id.filter(|id| id.len() == 32) {
            seen.id = id;
        }
        seen.token = self.claim_token.unwrap_or(std::mem::take(&mut seen.token));
        seen.key = self.api_key.unwrap_or(std::mem::take(&mut seen.key));
        for given in self.intents {
            given.remember(seen);
        }
    }
}

impl RouterResponse {
    async fn read(response: Response) -> Self {
        let (parts, mut body) = response.into_parts();
        let mut read = Vec::new();
        while let Ok(Some(frame)) = timeout(PATIENCE, body.frame()).await {
            let frame = frame.expect("a body in seen does not break");
            read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if is(&parts.headers, "text/event-stream") && read.ends_with(b": still here\n\n") {
                break;
            }
        }
        Self {
            status: parts.status,
            headers: parts.headers,
            body: read,
        }
    }

    fn check(&self, asked: &str, head_only: bool) {
        let shown = || {
            format!(
                "{asked}: {} {}",
                self.status,
                String::from_utf8_lossy(&self.body)
            )
        };
        assert!(self.status.as_u16() < 500, "our fault: {}", shown());
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("x-intent-version", "2.1"),
        ] {
            let found: Vec<_> = self.headers.get_all(name).iter().collect();
            assert_eq!(found, [value], "{name}: {}", shown());
        }
        assert_eq!(self.headers.get_all("x-request-id").iter().count(), 1);
        if head_only || self.status == StatusCode::NO_CONTENT {
            assert!(self.body.is_empty(), "{}", shown());
            return;
        }
        let json = is(&self.headers, "application/json");
        if json {
            let whole = serde_json::from_slice::<IgnoredAny>(&self.body);
            assert!(whole.is_ok(), "not JSON: {}", shown());
            assert!(str::from_utf8(&self.body).is_ok());
        }
        if self.status.is_client_error() {
            assert!(json, "a refusal is JSON: {}", shown());
            let refusal: ErrorBody = serde_json::from_slice(&self.body)
                .unwrap_or_else(|error| panic!("{error}: {}", shown()));
            let known = |code: &Code| code.name() == refusal.error.code;
            assert!(Code::ALL.iter().any(known), "{}", shown());
            assert!(!refusal.error.message.is_empty(), "{}", shown());
        }
        let path = asked.split('?').next().unwrap_or_default();
        let is_receipt = path.starts_with("GET /intents/") && path.ends_with("/receipt");
        if self.status.is_success() && is_receipt {
            self.check_receipt(&shown());
        }
    }

    fn check_receipt(&self, shown: &str) {
        let document = str::from_utf8(&self.body).expect("a receipt is text");
        let key: PublicKey = Signer::from_seed(&[9; 32]).public().clone();
        if let Err(error) = verify(document, &[key]) {
            panic!("a receipt of ours does not verify: {error}: {shown}");
        }
    }

    fn remember(&self, seen: &mut SeenValues) {
        let given = serde_json::from_slice::<KnownValues>(&self.body);
        if let (true, Ok(given)) = (self.status.is_success(), given) {
            given.remember(seen);
        }
    }
}

fn is(headers: &HeaderMap, kind: &str) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(kind.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that all fail would test nothing.
    #[test]
    fn the_seeds_pass_authentication() {
        let lifecycle = statuses(include_bytes!("../seeds/router/lifecycle"));
        assert_eq!(lifecycle, [201, 200, 200, 200, 200, 200, 200]);
        let failing = statuses(include_bytes!("../seeds/router/failing"));
        assert_eq!(failing, [201, 200, 200, 200, 200, 200, 200, 200]);
        let batches = statuses(include_bytes!("../seeds/router/batches"));
        assert_eq!(batches, [201, 200, 200, 200]);
        let signed = statuses(include_bytes!("../seeds/router/signed"));
        assert_eq!(signed, [204, 200, 200, 404]);
        let tester = statuses(include_bytes!("../seeds/router/tester"));
        assert_eq!(tester, [201, 201, 200, 200, 403, 200, 401]);
        let events = statuses(include_bytes!("../seeds/router/events"));
        assert_eq!(events, [201, 200, 200]);
    }
}
