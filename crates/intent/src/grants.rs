//! The operator's routes for grants, which let keys claim in reserved namespaces.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use consign_kernel::error::Code;
use consign_kernel::json::{Object, Raw};

use super::exposed::unknown_queue;
use super::{IntentFace, ignored, wire};
use consign_web::json_out::{Json, array, json_response};
use consign_web::operator_guard::AuditTarget;
use consign_web::reject::Reject;

/// Grants that one request may ask for.
pub(super) const GRANTS_PER_REQUEST_MAX: usize = 100;

pub(super) async fn grant(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, body) = face.authenticate_operator(request).await?;
    ignored::GRANT.refuse_unknown(&uri)?;
    let object = wire::object_or_empty(&body)?;
    let key = key(&object)?;
    let namespace = face.grantable(wire::field(&object, "namespace").as_ref())?;
    if !face.engine.grant(operator, &key, &namespace).await? {
        return Err(Reject::new(Code::NotFound, "There is no such key."));
    }
    let id = face.engine.resolve_key_id(&key).await?;
    let target = format!("{id} {namespace}");
    let response = changed(&id, &namespace).into_response();
    Ok(AuditTarget::of(target, response))
}

pub(super) async fn revoke(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, body) = face.authenticate_operator(request).await?;
    ignored::GRANT.refuse_unknown(&uri)?;
    let object = wire::object_or_empty(&body)?;
    let key = key(&object)?;
    // Not checked further: a grant of an earlier version can be revoked.
    let namespace = wire::field(&object, "namespace");
    let namespace = wire::namespace(namespace.and_then(|raw| raw.as_str()).as_deref())?;
    let revoke = face.engine.revoke_grant(operator, &key, &namespace);
    if !revoke.await? {
        return Err(Reject::new(Code::NotFound, "There is no such grant."));
    }
    let id = face.engine.resolve_key_id(&key).await?;
    let target = format!("{id} {namespace}");
    let response = changed(&id, &namespace).into_response();
    Ok(AuditTarget::of(target, response))
}

pub(super) async fn list(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let uri = request.uri().clone();
    let (operator, _) = face.authenticate_operator(request).await?;
    ignored::GRANT.refuse_unknown(&uri)?;
    let grants = face.engine.grants(operator).await?;
    Ok(json_response(array(grants.iter().map(|grant| {
        let mut out = Json::object();
        out.text("key_id", &grant.key_id)
            .text("namespace", &grant.namespace)
            .seconds("granted_at", Some(grant.granted_at));
        out.finish()
    }))))
}

impl IntentFace {
    /// The namespaces that a new key is granted.
    pub(super) fn grants_of_new_key(&self, object: &Object<'_>) -> Result<Vec<String>, Reject> {
        let Some(raw) = wire::field(object, "grants") else {
            return Ok(Vec::new());
        };
        let listed = raw
            .items()
            .filter(|items| items.len() <= GRANTS_PER_REQUEST_MAX);
        let listed = listed.ok_or_else(|| {
            let text = format!("grants must be an array of at most {GRANTS_PER_REQUEST_MAX}.");
            Reject::new(Code::InvalidRequest, text)
        })?;
        listed.iter().map(|raw| self.grantable(Some(raw))).collect()
    }

    /// A namespace in which claims need a grant.
    fn grantable(&self, raw: Option<&Raw<'_>>) -> Result<String, Reject> {
        let namespace = wire::namespace(raw.and_then(Raw::as_str).as_deref())?;
        match self.exposed_queue(&namespace) {
            Ok(_) => Ok(namespace),
            Err(error) => Err(unknown_queue(&error)),
        }
    }
}

/// A key or a key id.
fn key(object: &Object<'_>) -> Result<String, Reject> {
    let key = wire::field(object, "key_id")
        .and_then(|raw| raw.as_str().map(std::borrow::Cow::into_owned))
        .filter(|key| !key.is_empty());
    key.ok_or_else(|| Reject::new(Code::InvalidRequest, "Missing required field: key_id."))
}

fn changed(key_id: &str, namespace: &str) -> Json {
    let mut body = Json::object();
    body.bool("ok", true)
        .text("key_id", key_id)
        .text("namespace", namespace);
    body
}
