//! The guard around each route of operators: credentials, role, and the audit log.
//!
//! Invariant: a handler behind the guard runs only for a caller with the right of its route, and an action that changes
//! something has an entry in the audit log before it begins.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use consign_engine::{AuditEntry, Engine};
use consign_kernel::error::Code;
use http::header::USER_AGENT;
use http::request::Parts;
use tokio::task::JoinError;

use crate::access_log::ErrorCode;
use crate::operator::{AdminCaller, AdminRight, OperatorCredentials};
use crate::proxy::Origin;
use crate::reject::Reject;
use crate::request_id::RequestId;
use crate::server::Peer;

const USER_AGENT_CHARS_MAX: usize = 100;
const TARGET_CHARS_MAX: usize = 200;

/// What a route of operators needs, and its name in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct AdminAccess {
    right: AdminRight,
    /// Empty for a route that changes nothing.
    action: &'static str,
    /// The path of the route; its parameters are the target of the action.
    path: &'static str,
}

impl AdminAccess {
    pub const fn read(path: &'static str) -> Self {
        Self {
            right: AdminRight::Read,
            action: "",
            path,
        }
    }

    pub const fn action(&self) -> &'static str {
        self.action
    }

    /// A route that changes something.
    pub const fn change(right: AdminRight, action: &'static str, path: &'static str) -> Self {
        Self {
            right,
            action,
            path,
        }
    }
}

/// What an action was done to, if the path does not say so; an extension of the response.
#[derive(Clone, Debug)]
pub struct AuditTarget(pub String);

impl AuditTarget {
    /// The response with this target.
    pub fn of(target: impl Into<String>, mut response: Response) -> Response {
        response.extensions_mut().insert(Self(target.into()));
        response
    }
}

/// Checks requests of operators. Cheap to clone.
#[derive(Clone, Debug)]
pub struct OperatorGuard {
    engine: Engine,
    credentials: Arc<OperatorCredentials>,
    trust_proxy: bool,
}

impl OperatorGuard {
    pub fn new(engine: Engine, credentials: OperatorCredentials, trust_proxy: bool) -> Self {
        Self {
            engine,
            credentials: Arc::new(credentials),
            trust_proxy,
        }
    }

    /// Runs the handler behind the guard, or refuses the request.
    pub async fn run(&self, access: AdminAccess, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let caller = match self.credentials.identify(&self.engine, &parts).await {
            Ok(caller) => caller,
            Err(reject) => return reject.into_response(),
        };
        let refusal = caller.refusal(access.right);
        if access.action.is_empty() {
            if let Some(refusal) = refusal {
                return refusal.into_response();
            }
            parts.extensions.insert(caller);
            return next.run(Request::from_parts(parts, body)).await;
        }
        let entry = self.entry(access, &caller, &parts);
        parts.extensions.insert(caller);
        let request = Request::from_parts(parts, body);
        // The action ends, and its entry gets its outcome, also if the client disconnects.
        let guard = self.clone();
        let task = tokio::spawn(async move { guard.act(entry, refusal, request, next).await });
        match task.await.map_err(JoinError::try_into_panic) {
            Ok(response) => response,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => Reject::new(Code::Internal, "Internal error.").into_response(),
        }
    }

    /// An action between the two writes of its entry.
    async fn act(
        &self,
        entry: AuditEntry,
        refusal: Option<Reject>,
        request: Request,
        next: Next,
    ) -> Response {
        let days = self.credentials.audit_retention_days;
        let open = self.engine.begin_audit(entry, days).await;
        let response = match refusal {
            Some(refusal) => refusal.into_response(),
            None => next.run(request).await,
        };
        let target = response.extensions().get::<AuditTarget>();
        let target = target.map(|AuditTarget(target)| cut(target, TARGET_CHARS_MAX));
        self.engine
            .end_audit(open, outcome(&response), target)
            .await;
        response
    }

    fn entry(&self, access: AdminAccess, caller: &AdminCaller, parts: &Parts) -> AuditEntry {
        let origin = parts.extensions.get::<Peer>();
        let origin = origin.map(|peer| Origin::of(*peer, &parts.headers, self.trust_proxy).client);
        let agent = parts.headers.get(USER_AGENT);
        let agent = agent.map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let id = parts.extensions.get::<RequestId>();
        AuditEntry {
            at: 0,
            actor: caller.actor(),
            address: origin
                .map(|address| address.to_string())
                .unwrap_or_default(),
            user_agent: cut(&agent.unwrap_or_default(), USER_AGENT_CHARS_MAX),
            action: access.action.to_owned(),
            target: cut(&parameters(access.path, parts.uri.path()), TARGET_CHARS_MAX),
            outcome: String::new(),
            request_id: id.map(|id| id.as_str().to_owned()).unwrap_or_default(),
        }
    }
}

/// The operator whom the guard let in. A handler of a route without the guard gets an error.
pub fn admin_caller(parts: &Parts) -> Result<AdminCaller, Reject> {
    let caller = parts.extensions.get::<AdminCaller>().cloned();
    caller.ok_or_else(|| Reject::new(Code::Internal, "Internal error."))
}

fn outcome(response: &Response) -> &'static str {
    match response.extensions().get::<ErrorCode>() {
        Some(ErrorCode(code)) => code.name(),
        None if response.status().is_success() => "done",
        None => "failed",
    }
}

/// The parts of `path` for which the path of a route has parameters.
fn parameters(of_route: &str, path: &str) -> String {
    let pairs = of_route.split('/').zip(path.split('/'));
    let named = pairs.filter(|(name, _)| name.starts_with('{'));
    let shown = |value| if is_secret(value) { "***" } else { value };
    let values: Vec<&str> = named.map(|(_, value)| shown(value)).collect();
    values.join("/")
}

/// Whether a text begins as the secrets do that this server makes. Somebody may send one where an id belongs.
fn is_secret(text: &str) -> bool {
    ["tk_", "ck_", "ca_", "cd_", "cm_", "cu_"]
        .iter()
        .any(|beginning| text.starts_with(beginning))
}

/// Control characters would make a log line look like two.
fn cut(text: &str, chars_max: usize) -> String {
    let plain = text.chars().filter(|character| !character.is_control());
    plain.take(chars_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_what_the_path_names() {
        assert_eq!(parameters("/admin/purge", "/admin/purge"), "");
        assert_eq!(
            parameters("/admin/intents/{id}/cancel", "/admin/intents/abc/cancel"),
            "abc"
        );
        assert_eq!(parameters("/admin/keys/{id}", "/admin/keys/tk_12"), "***");
        assert_eq!(parameters("/v1/{mesh}/x/{member}", "/v1/a/x/b"), "a/b");
    }

    #[test]
    fn texts_of_clients_are_cut_and_have_no_control_characters() {
        assert_eq!(cut("a\nb\u{1b}c", 2), "ab");
    }
}
