//! Authentication: the checks that every request passes, in the protocol's order.
//!
//! HTTPS, cleanup when due, maintenance, API key, a rate limit that is known to be exhausted, body, signature; then
//! the ledger's gate (nonce, rate limit) in the same commit as the work. A request that fails its own validation
//! passes the gate all the same: its nonce is burnt and it counts.

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use consign_engine::{Authenticated, Caller, Error, Operator};
use consign_kernel::command::{Answer, Command, Gate};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::ids::SECOND_US;
use consign_kernel::limits;
use consign_kernel::profile::Face;
use consign_kernel::record::KeyScope;
use http::HeaderMap;
use http::request::Parts;

use super::IntentFace;
use super::signature::{self, SignedRequest};
use consign_web::body::{self, ReceivedBody};
use consign_web::body_budget::BodySender;
use consign_web::operator::{AdminCaller, AdminRight};
use consign_web::operator_guard::admin_caller;
use consign_web::reject::Reject;

/// A request whose sender is authenticated.
#[derive(Debug)]
pub(super) struct AuthedRequest {
    pub(super) face: IntentFace,
    pub(super) caller: Caller,
    pub(super) parts: Parts,
    pub(super) body: ReceivedBody,
    nonce: Option<String>,
    cost: u32,
}

impl IntentFace {
    /// Authenticates a client that has the needed scope, or returns the protocol's error. `None`: any valid key.
    pub(super) async fn authenticate(
        &self,
        request: Request,
        body_max: usize,
        needed: Option<KeyScope>,
    ) -> Result<AuthedRequest, Reject> {
        let (parts, body) = request.into_parts();
        self.check_transport(&parts).await?;
        self.check_maintenance()?;
        let key = presented_key(&parts.headers)?.to_owned();
        let caller = self.authenticate_key(&key).await?;
        let body = self.receive_body(&caller, body, body_max).await?;
        let nonce = if self.options.require_signatures || signature::is_signed(&parts.headers) {
            Some(self.verify_signature(&parts, &body, &key)?)
        } else {
            None
        };
        let request = AuthedRequest {
            face: self.clone(),
            caller,
            parts,
            body,
            nonce,
            cost: 1,
        };
        match needed.filter(|scope| !request.caller.may(*scope)) {
            None => Ok(request),
            Some(scope) => {
                let missing = Err(Reject::missing_scope(scope));
                request.charge_then_reject(missing).await
            }
        }
    }

    async fn authenticate_key(&self, key: &str) -> Result<Caller, Reject> {
        match self.engine.authenticate(key).await? {
            Authenticated::Caller(caller) => Ok(caller),
            Authenticated::Expired(end) => Err(Reject::expired_key(end)),
            Authenticated::Unknown => Err(Reject::wrong_key(key)),
        }
    }

    /// Reads the body, unless the ledger would refuse the request in any case.
    async fn receive_body(
        &self,
        caller: &Caller,
        body: Body,
        max: usize,
    ) -> Result<ReceivedBody, Reject> {
        let has_body = !body.is_end_stream();
        if has_body
            && !caller.is_main()
            && let Some(rest_us) = self
                .rate_limited_keys
                .rest_us(caller.id(), self.engine.now())
        {
            // The table lets a key go up to a second before its window ends, so that no request is lost.
            let rest_s = (rest_us + SECOND_US - 1) / SECOND_US + 1;
            return Err(Reject::rate_limited(caller, rest_s));
        }
        let holder = if caller.is_main() {
            BodySender::Trusted
        } else {
            BodySender::Key(caller.id().to_owned())
        };
        Ok(body::receive(body, max, body::DEADLINE_DEFAULT, holder).await?)
    }

    /// A request for an unknown path or method: the sender is authenticated and charged like any other. A body is not
    /// read, because it is not used.
    pub(super) async fn reject_unknown(&self, request: Request) -> Result<(), Reject> {
        if request.uri().path().starts_with("/admin/") {
            let (parts, _) = request.into_parts();
            self.check_transport(&parts).await?;
            self.options
                .operators
                .require(&self.engine, &parts, AdminRight::Read)
                .await?;
            return Ok(());
        }
        if matches!(
            request.uri().path(),
            "/" | "/health" | "/metrics" | "/.well-known/jwks.json" | "/receipts/verify"
        ) {
            return Ok(());
        }
        if request.body().is_end_stream() {
            let request = self.authenticate(request, 0, None).await?;
            return request.pass().await;
        }
        let (parts, unread) = request.into_parts();
        self.check_transport(&parts).await?;
        self.check_maintenance()?;
        let caller = self
            .authenticate_key(presented_key(&parts.headers)?)
            .await?;
        if unread.size_hint().lower() > limits::BODY_BYTES_MAX as u64 {
            return Err(body::BodyError::TooLarge.into());
        }
        if self.options.require_signatures && !signature::is_signed(&parts.headers) {
            let missing = signature::SignatureError::MissingHeaders.message();
            return Err(Reject::new(Code::InvalidSignature, missing));
        }
        Ok(self.engine.pass(caller.gate(None, 1)).await?)
    }

    /// The operator whom the guard of the route let in, and the body.
    pub(super) async fn authenticate_operator(
        &self,
        request: Request,
    ) -> Result<(Operator, ReceivedBody), Reject> {
        let (caller, body) = self.admin_caller(request).await?;
        Ok((caller.operator, body))
    }

    /// The same with the role.
    pub(super) async fn admin_caller(
        &self,
        request: Request,
    ) -> Result<(AdminCaller, ReceivedBody), Reject> {
        let (parts, body) = request.into_parts();
        let caller = admin_caller(&parts)?;
        let (max, deadline) = (limits::BODY_BYTES_MAX, body::DEADLINE_DEFAULT);
        let body = body::receive(body, max, deadline, BodySender::Trusted).await?;
        Ok((caller, body))
    }

    /// Checks HTTPS where it is enforced, and starts a cleanup pass that is due.
    pub(super) async fn check_transport(&self, parts: &Parts) -> Result<(), Reject> {
        self.options
            .policy()
            .check_transport(&parts.headers, &parts.extensions)?;
        // A request for a cleanup pass returns what the pass did, so no other pass may run first.
        if self.engine.cleanup_is_due() && parts.uri.path() != "/admin/cleanup" {
            self.engine.cleanup_if_due(Face::Intent).await;
        }
        Ok(())
    }

    pub(super) fn check_maintenance(&self) -> Result<(), Reject> {
        Ok(self.options.policy().check_open()?)
    }

    fn verify_signature(&self, parts: &Parts, body: &[u8], key: &str) -> Result<String, Reject> {
        let signed = SignedRequest::new(parts, body);
        let nonce =
            signature::verify(&signed, key, self.engine.wall().seconds()).map_err(|error| {
                let reject = Reject::new(Code::InvalidSignature, error.message());
                if error == signature::SignatureError::BadSignature {
                    reject.of_wrong_credential()
                } else {
                    reject
                }
            })?;
        if nonce.0.len() > limits::NONCE_BYTES_MAX {
            return Err(Reject::new(
                Code::InvalidSignature,
                "X-Nonce is too long; 255 bytes are enough.",
            ));
        }
        Ok(nonce.0)
    }
}

fn presented_key(headers: &HeaderMap) -> Result<&str, Reject> {
    let missing = || Reject::new(Code::Unauthorized, "Missing API key.");
    let key = headers.get("x-api-key").ok_or_else(missing)?;
    let key = key
        .to_str()
        .map_err(|_| Reject::new(Code::Unauthorized, "Invalid API key.").of_wrong_credential())?;
    if key.is_empty() {
        Err(missing())
    } else {
        Ok(key)
    }
}

impl AuthedRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    }

    /// A batch counts as many requests as it has items.
    pub(super) fn costs(&mut self, items: usize) {
        self.cost = u32::try_from(items.max(1)).unwrap_or(u32::MAX);
    }

    /// The gate of this request; it is used once.
    pub(super) fn gate(&self) -> Option<Gate> {
        self.caller.gate(self.nonce.clone(), self.cost)
    }

    /// Executes one command behind the gate.
    pub(super) async fn apply(&self, command: Command) -> Result<Answer, Reject> {
        self.record_outcome(self.face.engine.apply(self.gate(), command).await)
    }

    pub(super) async fn execute(
        &self,
        steps: Vec<Command>,
    ) -> Result<Vec<Result<Answer, Refusal>>, Reject> {
        self.record_outcome(self.face.engine.execute(self.gate(), steps).await)
    }

    /// The gate alone, for requests that only read.
    pub(super) async fn pass(&self) -> Result<(), Reject> {
        self.record_outcome(self.face.engine.pass(self.gate()).await)
    }

    /// Converts an engine result, and remembers a key that has exhausted its rate limit. A batch that exceeds the
    /// limit proves nothing, because some of the limit may be left.
    pub(super) fn record_outcome<T>(&self, outcome: Result<T, Error>) -> Result<T, Reject> {
        if let Err(Error::Refused(Refusal::RateLimited { retry_after_s })) = &outcome
            && self.cost == 1
        {
            let (key, now) = (self.caller.id(), self.face.engine.now());
            self.face.rate_limited_keys.record(key, now, *retry_after_s);
        }
        outcome.map_err(|error| {
            if let Error::Refused(Refusal::RateLimited { retry_after_s }) = &error {
                Reject::rate_limited(&self.caller, *retry_after_s)
            } else {
                error.into()
            }
        })
    }

    /// Refuses a namespace that the key is not for. Reserved namespaces need a grant instead.
    pub(super) fn check_namespace(&self, namespace: &str) -> Result<(), Reject> {
        if self.caller.may_use_namespace(namespace) {
            Ok(())
        } else {
            Err(Reject::foreign_namespace(namespace))
        }
    }

    /// Passes a parsed value on. A parse error is returned only after the gate was passed, so the request is charged
    /// and its nonce burnt.
    pub(super) async fn charge_then_reject<T>(
        &self,
        parsed: Result<T, Reject>,
    ) -> Result<T, Reject> {
        match parsed {
            Ok(parsed) => Ok(parsed),
            Err(reject) => {
                self.pass().await?;
                Err(reject)
            }
        }
    }
}
