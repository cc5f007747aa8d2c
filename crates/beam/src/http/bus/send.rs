//! `POST /v1/beam/send`.

use axum::extract::{Request, State};
use axum::response::Response;
use consign_kernel::error::Code;
use http::StatusCode;

use super::{BusCaller, views};
use crate::bus::{NAME_BYTES_MAX, NewMessage, SentMessage};
use crate::http::problem_response::BeamProblemResponse;
use crate::http::{BeamFace, receive};
use crate::text::{BeamObject, BeamValue};

pub(super) async fn send(
    State(face): State<BeamFace>,
    _: BusCaller,
    request: Request,
) -> Result<Response, BeamProblemResponse> {
    let (_, body) = receive::whole(request).await?;
    let message = new_message(&receive::json(&body)?)?;
    Ok(match face.beam.send_message(message).await? {
        SentMessage::New { message, outcome } => {
            let mut body = views::head(&message, views::outcome_word(&outcome));
            body.insert("created_at", views::seconds(message.created_at));
            views::add_outcome(&mut body, &outcome);
            views::respond(StatusCode::CREATED, body)
        }
        SentMessage::Known(message) => {
            let status = crate::lifecycle::state_word(message.state);
            let mut body = views::head(&message, status);
            body.insert("created_at", views::seconds(message.created_at));
            body.insert("retry_count", i64::from(message.retry_count));
            body.insert("deduped", true);
            views::respond(StatusCode::OK, body)
        }
    })
}

fn new_message(body: &BeamValue) -> Result<NewMessage, BeamProblemResponse> {
    let text = |name: &str| body.get(name).and_then(BeamValue::as_str);
    let required = |name: &str| text(name).filter(|text| is_name(text));
    let sender = match body.get("from") {
        Some(from) if !from.is_null() => required("from"),
        _ => required("sender"),
    };
    let (Some(sender), Some(recipient), Some(intent)) =
        (sender, required("to"), required("intent"))
    else {
        return Err(BeamProblemResponse::new(
            Code::MissingRequiredFields,
            "Missing required fields: from, to, intent",
        ));
    };
    let payload = match body.get("payload") {
        None => BeamObject::new(),
        Some(BeamValue::Object(payload)) => payload.clone(),
        Some(_) => {
            let text = "payload must be an object";
            return Err(BeamProblemResponse::new(Code::InvalidPayload, text));
        }
    };
    let nonce = text("nonce").map(str::trim).filter(|nonce| is_name(nonce));
    let trace_id = text("trace_id").filter(|trace_id| is_name(trace_id));
    for (name, given) in [
        ("from", Some(sender)),
        ("to", Some(recipient)),
        ("intent", Some(intent)),
        ("nonce", nonce),
        ("trace_id", trace_id),
    ] {
        if given.is_some_and(|given| given.len() > NAME_BYTES_MAX) {
            let text = format!("{name} is longer than {NAME_BYTES_MAX} bytes");
            return Err(BeamProblemResponse::new(Code::InvalidParam, text));
        }
    }
    Ok(NewMessage {
        sender: sender.to_owned(),
        recipient: recipient.to_owned(),
        intent: intent.to_owned(),
        payload,
        priority: priority(body.get("priority")),
        trace_id: trace_id.map(str::to_owned),
        nonce: nonce.map(str::to_owned),
    })
}

/// A text without control characters, which no ledger and no header could hold.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// A whole number; anything that is no number counts as zero.
#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
fn priority(given: Option<&BeamValue>) -> i32 {
    let number = given.and_then(BeamValue::as_f64).unwrap_or_default();
    number.trunc() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn read(body: &str) -> Result<NewMessage, Code> {
        let body = text::parse(body.as_bytes()).unwrap();
        new_message(&body).map_err(|response| response.problem.code)
    }

    #[test]
    fn be_022_fields_are_checked_before_the_payload() {
        let missing = Code::MissingRequiredFields;
        for body in [
            "null",
            "[]",
            "7",
            r#"{"to":"b","intent":"i"}"#,
            r#"{"from":"","to":"b","intent":"i"}"#,
            r#"{"from":7,"sender":"a","to":"b","intent":"i"}"#,
            r#"{"from":"a","to":["b"],"intent":"i","payload":7}"#,
            r#"{"from":"a","to":"b","intent":{}}"#,
            r#"{"from":"a\u0000","to":"b","intent":"i"}"#,
        ] {
            assert_eq!(read(body).unwrap_err(), missing, "{body}");
        }
        for payload in ["null", "[]", "7", r#""text""#] {
            let body = format!(r#"{{"from":"a","to":"b","intent":"i","payload":{payload}}}"#);
            assert_eq!(read(&body).unwrap_err(), Code::InvalidPayload, "{body}");
        }
        let long = "n".repeat(256);
        let body = format!(r#"{{"from":"a","to":"b","intent":"i","nonce":"{long}"}}"#);
        assert_eq!(read(&body).unwrap_err(), Code::InvalidParam);
    }

    #[test]
    fn optional_fields_have_defaults() {
        let plain = read(r#"{"sender":"a","to":"b","intent":"i","nonce":"  "}"#).unwrap();
        assert_eq!(plain.sender, "a");
        assert_eq!(
            (plain.nonce, plain.trace_id, plain.priority),
            (None, None, 0)
        );
        assert!(plain.payload.is_empty());
        let given =
            r#"{"from":"a","to":"b","intent":"i","nonce":" n ","trace_id":"t","priority":-3.7}"#;
        let given = read(given).unwrap();
        assert_eq!(given.nonce.as_deref(), Some("n"));
        assert_eq!(given.trace_id.as_deref(), Some("t"));
        assert_eq!(given.priority, -3);
    }
}
