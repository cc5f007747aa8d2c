//! Peers with unusable answers: every operation of every rail must report an unknown outcome.

use std::time::Duration;

use consign_transactions::callback;
use consign_transactions::outcome::RailOutcome;
use consign_transactions::rail::http::{self, HttpRail};
use consign_transactions::rail::standard_webhooks;
use consign_transactions::rail::stripe::{self, StripeRail};
use consign_transactions::rail::{ChargesRail, Fenced, Rail, RefundOutcome};

use crate::endpoint::{Answer, Endpoint, reply};
use crate::{PATIENCE, charge};

pub(crate) const ENDPOINT_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn rails(base: &str, timeout: Duration) -> [Box<dyn Rail>; 3] {
    let options = || stripe::Options {
        base: base.to_owned(),
        secret: "sk_test_secret".to_owned(),
        webhook_secrets: callback::StripeSecrets::new([]),
        timeout,
    };
    let stripe = StripeRail::new(options());
    let charges = ChargesRail::new(options());
    let http = HttpRail::new(http::Options {
        base: base.to_owned(),
        secrets: standard_webhooks::WebhookSecrets::new([ENDPOINT_SECRET]).unwrap(),
        timeout,
    });
    [
        Box::new(stripe.unwrap()),
        Box::new(charges.unwrap()),
        Box::new(http.unwrap()),
    ]
}

/// Every call to a rail whose peer answers like this must report an unknown outcome.
async fn nothing_is_known(
    what: &str,
    timeout: Duration,
    answer: impl Fn() -> Answer + Send + Sync + 'static,
) -> Endpoint {
    let endpoint = Endpoint::start(move |_| answer()).await;
    let charge = charge("broken", "pm_1");
    for rail in rails(&endpoint.base(), timeout) {
        let name = rail.name();
        for report in [
            rail.prepare(&charge).await,
            rail.confirm(&charge, Some("pi_1")).await,
            rail.capture(&charge, Some("pi_1")).await,
            rail.look_up(&charge, Some("pi_1")).await,
            rail.look_up(&charge, None).await,
        ] {
            assert_eq!(report.outcome, RailOutcome::Unknown, "{name}: {what}");
        }
        for id in [Some("pi_1"), None] {
            let (fenced, refunded) = (
                rail.cancel(&charge, id).await,
                rail.refund(&charge, id).await,
            );
            assert_eq!(fenced, Fenced::Unknown, "{name}: {what}");
            assert_eq!(refunded, RefundOutcome::Unknown, "{name}: {what}");
        }
    }
    endpoint
}

#[tokio::test]
async fn bytes_that_are_no_http_tell_nothing() {
    for bytes in [
        "",
        "\r\n\r\n",
        "garbage\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n{}",
        "HTTP/1.1 999999 OK\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"status\":\"succeeded\"",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "\u{0}\u{1}\u{2}\u{ff}",
    ] {
        let answer = move || Answer::Bytes(bytes.as_bytes().to_vec());
        nothing_is_known(bytes, PATIENCE, answer).await;
    }
}

#[tokio::test]
async fn bodies_that_say_something_else_tell_nothing() {
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "<html>",
        "\u{feff}{}",
        r#"{"id":1,"status":"requires_capture"}"#,
        r#"{"id":"pi_1","status":"requires_capture"}"#,
        r#"{"id":"pi_1","status":"requires_capture","amount":-1500,"currency":"eur"}"#,
        r#"{"id":"pi_1","status":"requires_capture","amount":1500.5,"currency":"eur"}"#,
        r#"{"status":"paid","amount_cents":1500,"currency":"EUR"}"#,
        r#"{"data":{},"has_more":false}"#,
        &deep,
    ] {
        let (shown, body) = (body.chars().take(60).collect::<String>(), body.to_owned());
        nothing_is_known(&shown, PATIENCE, move || reply("200 OK", &body)).await;
    }
}

#[tokio::test]
async fn a_rail_that_only_says_to_come_back_tells_nothing() {
    // Bodies that would be conclusive with another status.
    let body =
        r#"{"id":"pi_1","status":"succeeded","amount":1500,"currency":"eur","amount_cents":1500}"#;
    let error = r#"{"error":{"type":"api_error","message":"later"}}"#;
    for status in [
        "204 No Content",
        "301 Moved Permanently\r\nlocation: /elsewhere",
        "307 Temporary Redirect\r\nlocation: /elsewhere",
        "401 Unauthorized",
        "403 Forbidden",
        "409 Conflict",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "502 Bad Gateway",
        "503 Service Unavailable",
    ] {
        for body in [body, error] {
            let answer = move || match status {
                "204 No Content" => reply(status, ""),
                _ => reply(status, body),
            };
            let endpoint = nothing_is_known(status, PATIENCE, answer).await;
            let asked = endpoint.asked();
            assert!(
                asked.iter().all(|asked| asked.path != "/elsewhere"),
                "a redirect was followed"
            );
        }
    }
    // Pages of a proxy in front of the rail.
    for status in ["400 Bad Request", "402 Payment Required", "404 Not Found"] {
        nothing_is_known(status, PATIENCE, move || reply(status, "<html>")).await;
    }
}

#[tokio::test]
async fn an_answer_without_end_tells_nothing() {
    let long = format!(r#"{{"pad":"{}"}}"#, "x".repeat(2 * 1024 * 1024));
    nothing_is_known("two mebibytes", PATIENCE, move || reply("200 OK", &long)).await;
    let headers = "x: y\r\n".repeat(10_000);
    let answer = move || {
        let head = format!("HTTP/1.1 200 OK\r\n{headers}\r\n{{}}");
        Answer::Bytes(head.into_bytes())
    };
    nothing_is_known("headers", PATIENCE, answer).await;
}

#[tokio::test]
async fn an_answer_that_comes_too_late_tells_nothing() {
    for begun in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
    ] {
        let answer = move || Answer::Stall(begun.as_bytes().to_vec());
        nothing_is_known("late", Duration::from_millis(30), answer).await;
    }
}

#[tokio::test]
async fn a_rail_that_is_not_there_tells_nothing() {
    // The port was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let charge = charge("gone", "pm_1");
    for rail in rails(&base, PATIENCE) {
        let report = rail.confirm(&charge, Some("pi_1")).await;
        assert_eq!(report.outcome, RailOutcome::Unknown);
        assert_eq!(rail.cancel(&charge, None).await, Fenced::Unknown);
    }
}
