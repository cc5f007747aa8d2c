//! Parsing of request bodies, with the limits of the protocol.
//!
//! Numbers that the published client can send out of range are clamped; everything else out of range is refused. An
//! explicit null is the same as an absent field.

use consign_kernel::command::{NewIntent, OnceGuard};
use consign_kernel::error::Code;
use consign_kernel::intent::{Outcome, ResultKind, Ties};
use consign_kernel::json::{self, Defect, JsonKind, Object, Raw};
use consign_kernel::limits;
use consign_kernel::once;
use consign_kernel::profile::ProfileId;

use super::exposed::is_reserved;
use consign_web::reject::Reject;

/// The body as one object.
pub(super) fn object(body: &[u8]) -> Result<Object<'_>, Reject> {
    Object::parse(body, limits::JSON_DEPTH_MAX).map_err(|defect| malformed(&defect))
}

pub(super) fn object_or_empty(body: &[u8]) -> Result<Object<'_>, Reject> {
    if body.iter().all(u8::is_ascii_whitespace) {
        object(b"{}")
    } else {
        object(body)
    }
}

fn malformed(defect: &Defect) -> Reject {
    Reject::new(
        Code::InvalidPayload,
        format!("The body must be one JSON object: {defect}."),
    )
}

/// A field that exists and is not null.
pub(super) fn field<'a>(object: &Object<'a>, name: &str) -> Option<Raw<'a>> {
    object.get(name).filter(|raw| !raw.is_null())
}

/// One intent to publish, for `owner`.
pub(super) fn new_intent(
    object: &Object<'_>,
    owner: &str,
    traceparent: Option<&str>,
    once: Option<OnceGuard>,
) -> Result<NewIntent, Reject> {
    let (Some(goal), Some(payload)) = (object.get("goal"), object.get("payload")) else {
        return Err(Reject::new(
            Code::InvalidRequest,
            "Missing required fields: goal and payload.",
        ));
    };
    let namespace = match field(object, "namespace") {
        Some(raw) => namespace(raw.as_str().as_deref())?,
        None => "default".to_owned(),
    };
    if is_reserved(&namespace) {
        return Err(Reject::new(
            Code::Forbidden,
            "Namespaces beginning with beam. or mesh. are reserved.",
        ));
    }
    let goal = self::goal(goal.as_str().as_deref())?;
    let payload = payload.compact();
    if json::utf8_len(&payload) > limits::PAYLOAD_BYTES_MAX {
        return Err(Reject::new(
            Code::PayloadTooLarge,
            "The payload exceeds 7168 bytes of compact JSON.",
        ));
    }
    Ok(NewIntent {
        profile: ProfileId::Intent,
        namespace,
        goal,
        owner: owner.to_owned(),
        public: visibility(object)?,
        target: label(object, "target_worker", Code::InvalidTargetWorker)?,
        capability: label(
            object,
            "required_capability",
            Code::InvalidRequiredCapability,
        )?,
        priority: priority(object)?,
        payload,
        ties: Ties::default(),
        unless: None,
        traceparent: traceparent.map(str::to_owned),
        delay_us: delay_us(object)?,
        ttl_us: limits::INTENT_TTL_US,
        attempts_max: attempts_max(object)?,
        backoff_us: backoff_us(object)?,
        once,
    })
}

/// The once-key of a publish: owner, key and fingerprint of the body.
pub(super) fn once_guard(owner: &str, key: &str, body: &[u8]) -> Result<OnceGuard, Reject> {
    if key.len() > limits::IDEMPOTENCY_KEY_BYTES_MAX {
        return Err(Reject::new(
            Code::InvalidIdempotencyKey,
            "Idempotency-Key exceeds 255 bytes.",
        ));
    }
    let fingerprint = json::fingerprint(body).map_err(|defect| malformed(&defect))?;
    let key = once::OnceKey {
        scope: once::Scope::IntentIdempotency,
        owner: owner.to_owned(),
        key: key.to_owned(),
    };
    Ok(OnceGuard {
        key,
        fingerprint,
        lifetime_us: limits::IDEMPOTENCY_US,
    })
}

pub(super) fn namespace(text: Option<&str>) -> Result<String, Reject> {
    let fits = |text: &&str| {
        (1..=limits::NAMESPACE_CHARS_MAX).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    };
    text.filter(fits).map(str::to_owned).ok_or_else(|| {
        Reject::new(
            Code::InvalidNamespace,
            "namespace must be 1-64 characters of letters, digits, '.', '-', '_'.",
        )
    })
}

pub(super) fn goal(text: Option<&str>) -> Result<String, Reject> {
    let goal = text
        .map(str::trim)
        .filter(|goal| (1..=limits::GOAL_CHARS_MAX).contains(&goal.chars().count()));
    goal.map(str::to_owned).ok_or_else(|| {
        Reject::new(
            Code::InvalidGoal,
            "goal must be a string of 1-256 characters.",
        )
    })
}

fn visibility(object: &Object<'_>) -> Result<bool, Reject> {
    let Some(raw) = field(object, "visibility") else {
        return Ok(false);
    };
    match raw.as_str().as_deref() {
        Some("private") => Ok(false),
        Some("public") => Ok(true),
        _ => Err(Reject::new(
            Code::InvalidVisibility,
            "visibility must be \"private\" or \"public\".",
        )),
    }
}

fn label(object: &Object<'_>, name: &str, code: Code) -> Result<Option<String>, Reject> {
    let Some(raw) = field(object, name) else {
        return Ok(None);
    };
    let fits = |text: &str| {
        (1..=limits::LABEL_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-')
            })
    };
    match raw.as_str() {
        Some(text) if fits(&text) => Ok(Some(text.into_owned())),
        _ => Err(Reject::new(
            code,
            format!("{name} must be 1-64 characters of letters, digits, '_', '.', ':', '-'."),
        )),
    }
}

fn priority(object: &Object<'_>) -> Result<i32, Reject> {
    let Some(raw) = field(object, "priority") else {
        return Ok(limits::PRIORITY_DEFAULT);
    };
    raw.as_i64()
        .filter(|priority| (0..=limits::PRIORITY_MAX).contains(priority))
        .and_then(|priority| i32::try_from(priority).ok())
        .ok_or_else(|| {
            Reject::new(
                Code::InvalidPriority,
                "priority must be an integer from 0 to 1000.",
            )
        })
}

fn delay_us(object: &Object<'_>) -> Result<i64, Reject> {
    let Some(raw) = field(object, "delay") else {
        return Ok(0);
    };
    match raw.as_f64() {
        // Compared in microseconds: a delay that rounds up to the end of the intent's life would never become
        // claimable.
        Some(delay_s) if delay_s >= 0.0 && micros(delay_s) < limits::INTENT_TTL_US => {
            Ok(micros(delay_s))
        }
        _ => Err(Reject::new(
            Code::InvalidDelay,
            "delay must be a number of seconds from 0 to less than 86400, the life of an intent.",
        )),
    }
}

fn attempts_max(object: &Object<'_>) -> Result<u32, Reject> {
    let wrong = || {
        Reject::new(
            Code::InvalidMaxAttempts,
            "max_attempts must be an integer (1-20).",
        )
    };
    let Some(raw) = field(object, "max_attempts") else {
        return Ok(limits::ATTEMPTS_DEFAULT);
    };
    let attempts = clamped(&raw, 1, i64::from(limits::ATTEMPTS_MAX)).ok_or_else(wrong)?;
    u32::try_from(attempts).map_err(|_| wrong())
}

fn backoff_us(object: &Object<'_>) -> Result<i64, Reject> {
    let base_s = match field(object, "backoff_base") {
        Some(raw) => raw.as_f64().ok_or_else(|| {
            Reject::new(
                Code::InvalidBackoffBase,
                "backoff_base must be a number of seconds (1-3600).",
            )
        })?,
        None => limits::BACKOFF_BASE_DEFAULT_S,
    };
    Ok(micros(base_s.clamp(
        limits::BACKOFF_BASE_MIN_S,
        limits::BACKOFF_BASE_MAX_S,
    )))
}

/// An integer, clamped to its bounds; `None` if it is no integer.
pub(super) fn clamped(raw: &Raw<'_>, min: i64, max: i64) -> Option<i64> {
    if let Some(integer) = raw.as_i64() {
        return Some(integer.clamp(min, max));
    }
    // An integer beyond 64 bits is still an integer, even if no double can represent it.
    let digits = raw.text().strip_prefix('-').unwrap_or(raw.text());
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let huge = raw
        .as_f64()
        .is_some_and(|value| value.abs() >= 2_f64.powi(63));
    (plain || huge).then(|| {
        if raw.text().starts_with('-') {
            min
        } else {
            max
        }
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a float cast saturates, and the callers or the rules bound it"
)]
pub(super) fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

/// The result of a worker; `None` if it has none.
pub(super) fn outcome(object: &Object<'_>) -> Result<Option<Outcome>, Reject> {
    let text = match field(object, "result_type")
        .map(|raw| raw.as_str().map(std::borrow::Cow::into_owned))
    {
        None => false,
        Some(Some(kind)) if kind == "json" => false,
        Some(Some(kind)) if kind == "text" => true,
        Some(_) => {
            return Err(Reject::new(
                Code::InvalidResultType,
                "result_type must be \"json\" or \"text\".",
            ));
        }
    };
    let Some(raw) = field(object, "result") else {
        return Ok(None);
    };
    let outcome = if text {
        let body = raw
            .as_str()
            .filter(|_| raw.kind() == JsonKind::String)
            .ok_or_else(|| {
                Reject::new(
                    Code::InvalidResult,
                    "result must be a string when result_type is \"text\".",
                )
            })?;
        Outcome {
            kind: ResultKind::Text,
            body: body.into_owned(),
        }
    } else {
        Outcome {
            kind: ResultKind::Json,
            body: raw.compact(),
        }
    };
    let length = match outcome.kind {
        ResultKind::Json => json::utf8_len(&outcome.body),
        ResultKind::Text => outcome.body.len(),
    };
    if length > limits::RESULT_BYTES_MAX {
        return Err(Reject::new(
            Code::ResultTooLarge,
            "The result exceeds 7168 bytes.",
        ));
    }
    Ok(Some(outcome))
}
