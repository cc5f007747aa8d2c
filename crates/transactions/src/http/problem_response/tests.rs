//! Names, statuses and bodies as clients see them.

use std::collections::HashSet;

use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use consign_kernel::profile::Face;

use super::*;
use crate::problem::ExpiredReason;

fn unmet(actual: Option<AtpState>) -> Unmet {
    Unmet {
        intent_id: "int_x".into(),
        actual,
    }
}

#[test]
fn the_body_has_name_message_and_extras() {
    let at = Micros(1_779_710_401_000_000);
    let body = |problem: Problem| serde_json::to_string(&ProblemResponse(problem)).unwrap();
    assert_eq!(
        body(Problem::NonceConsumed {
            first_consumed_at: at
        }),
        r#"{"ok":false,"error":"nonce_consumed","message":"the nonce has already been used","first_consumed_at":"2026-05-25T12:00:01.000Z"}"#
    );
    assert_eq!(
        body(Problem::field("scope.actions", "is empty")),
        r#"{"ok":false,"error":"invalid_request","message":"scope.actions: is empty","field":"scope.actions"}"#
    );
    assert_eq!(
        body(Problem::IntentExpired {
            expires_at: at,
            reason: ExpiredReason::Cancelled
        }),
        r#"{"ok":false,"error":"intent_expired","message":"the intent has ended: cancelled","expires_at":"2026-05-25T12:00:01.000Z","reason":"cancelled"}"#
    );
    assert_eq!(
        body(Problem::InvalidState {
            state: AtpState::Executing
        }),
        r#"{"ok":false,"error":"invalid_state","message":"this is not possible while executing","state":"executing"}"#
    );
}

#[test]
fn a_precondition_is_worth_waiting_for_unless_one_can_never_hold() {
    for (states, status) in [
        (vec![Some(AtpState::Created), Some(AtpState::Executed)], 425),
        (
            vec![Some(AtpState::Executing), Some(AtpState::Expired)],
            412,
        ),
        (vec![Some(AtpState::Compensated)], 412),
        (vec![None], 412),
    ] {
        let problem = ProblemResponse(Problem::PreconditionFailed {
            unmet: states.into_iter().map(unmet).collect(),
        });
        assert_eq!(problem.status(), status);
        assert_eq!(problem.retry_after_s().is_some(), status == 425);
        assert_eq!(problem.name(), "precondition_failed");
    }
    let problem = ProblemResponse(Problem::PreconditionFailed {
        unmet: vec![unmet(None)],
    });
    let body = serde_json::to_value(&problem).unwrap();
    assert_eq!(
        body["unmet"],
        json!([{"intent_id": "int_x", "required": "settled", "actual": "unknown"}])
    );
    assert_eq!(body["retryable"], json!(false));
}

#[test]
fn whatever_asks_for_patience_says_for_how_long() {
    for (problem, wait) in [
        (Problem::RateLimited { retry_after_s: 7 }, Some(7)),
        (Problem::QuotaExceeded { retry_after_s: 60 }, Some(60)),
        (
            Problem::TooManyOpen {
                of_one: true,
                limit: 9,
            },
            Some(60),
        ),
        (Problem::StoreUnavailable, Some(1)),
        (Problem::StoreUnsure, Some(1)),
        (Problem::NotPrimary, Some(1)),
        (Problem::Maintenance, Some(30)),
        (Problem::IntentConflict, None),
        (Problem::InternalError, None),
    ] {
        let response = ProblemResponse(problem);
        assert_eq!(response.retry_after_s(), wait, "{response:?}");
    }
}

/// One of each, with everything that clients may rely on.
#[test]
fn every_problem_has_the_status_and_name_of_the_protocol() {
    let at = Micros(0);
    let reason = "x";
    let problems = [
        (Problem::field("a", "b"), 400, "invalid_request"),
        (
            Problem::IdempotencyKeyRequired,
            400,
            "idempotency_key_required",
        ),
        (
            Problem::IdempotencyKeyInvalid { reason },
            400,
            "idempotency_key_invalid",
        ),
        (
            Problem::CallbackRefused { reason },
            400,
            "invalid_signature",
        ),
        (
            Problem::InvalidSignature { reason },
            401,
            "invalid_signature",
        ),
        (Problem::UnknownAgentKey, 401, "unknown_agent_key"),
        (
            Problem::TimestampOutOfWindow { window_s: 300 },
            401,
            "timestamp_out_of_window",
        ),
        (Problem::Unauthorized, 401, "unauthorized"),
        (Problem::Forbidden, 403, "forbidden"),
        (
            Problem::RailMismatch {
                named: "a".to_owned(),
                rail: "b".to_owned(),
            },
            422,
            "rail_mismatch",
        ),
        (Problem::CrossSite, 403, "forbidden"),
        (Problem::ForeignHost, 403, "forbidden"),
        (Problem::TokenRefused { reason }, 403, "forbidden"),
        (
            Problem::IllegalMove {
                from: "pending",
                to: "settled",
            },
            409,
            "invalid_state",
        ),
        (Problem::Expired, 409, "expired"),
        (Problem::SiteMismatch, 403, "site_mismatch"),
        (
            Problem::ScopeViolation {
                action: "pay".into(),
            },
            403,
            "scope_violation",
        ),
        (Problem::IntentNotFound, 404, "intent_not_found"),
        (Problem::NotFound { what: "receipt" }, 404, "not_found"),
        (
            Problem::NonceConsumed {
                first_consumed_at: at,
            },
            409,
            "nonce_consumed",
        ),
        (Problem::NotAuthorized, 409, "not_authorized"),
        (
            Problem::InvalidState {
                state: AtpState::Created,
            },
            409,
            "invalid_state",
        ),
        (
            Problem::ExecutionLimitReached,
            409,
            "execution_limit_reached",
        ),
        (Problem::SpendCapExceeded, 409, "spend_cap_exceeded"),
        (
            Problem::DuplicateAction {
                first_seen_at: at,
                window_s: 60,
            },
            409,
            "duplicate_action",
        ),
        (Problem::AlreadyCompensated, 409, "already_compensated"),
        (Problem::IntentConflict, 409, "intent_conflict"),
        (
            Problem::IntentExpired {
                expires_at: at,
                reason: ExpiredReason::Time,
            },
            410,
            "intent_expired",
        ),
        (
            Problem::PreconditionFailed {
                unmet: vec![unmet(None)],
            },
            412,
            "precondition_failed",
        ),
        (
            Problem::PayloadTooLarge { max_bytes: 1 },
            413,
            "payload_too_large",
        ),
        (Problem::IdempotencyMismatch, 422, "idempotency_mismatch"),
        (Problem::NonceMismatch, 422, "nonce_mismatch"),
        (Problem::CurrencyMismatch, 422, "currency_mismatch"),
        (
            Problem::PartialCompensationUnsupported,
            422,
            "partial_compensation_unsupported",
        ),
        (
            Problem::TooManyOpen {
                of_one: true,
                limit: 9,
            },
            429,
            "too_many_open",
        ),
        (
            Problem::TooManyOpen {
                of_one: false,
                limit: 9,
            },
            503,
            "too_many_open",
        ),
        (
            Problem::RateLimited { retry_after_s: 1 },
            429,
            "rate_limited",
        ),
        (
            Problem::QuotaExceeded { retry_after_s: 1 },
            429,
            "quota_exceeded",
        ),
        (Problem::InternalError, 500, "internal_error"),
        (Problem::StoreUnavailable, 503, "store_unavailable"),
        (Problem::StoreUnsure, 503, "store_unavailable"),
        (Problem::NotPrimary, 503, "not_primary"),
        (Problem::Maintenance, 503, "maintenance"),
        (Problem::HttpsRequired, 403, "https_required"),
        (Problem::RequestTimeout, 408, "request_timeout"),
    ];
    // The method is refused by the router, and a precondition has its own test.
    let mut used = HashSet::from([Code::MethodNotAllowed, Code::PreconditionPending]);
    for (problem, status, name) in problems {
        used.insert(problem.code());
        let problem = ProblemResponse(problem);
        assert_eq!((problem.status(), problem.name()), (status, name));
        let body = serde_json::to_value(&problem).unwrap();
        assert_eq!((&body["ok"], &body["error"]), (&json!(false), &json!(name)));
        assert!(!body["message"].as_str().unwrap().is_empty());
    }
    assert_eq!(used, Code::of_face(Face::Transaction).collect());
}
