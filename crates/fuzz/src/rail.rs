//! Responses of payment rails: only a response about exactly the requested amount counts as a payment.
//!
//! Input: a line with the rail, the call and the status, then the body of the response, which every call gets. It
//! goes over a real socket, because a rail has no other input.

use std::net::Ipv4Addr;
use std::time::Duration;

use consign_transactions::callback;
use consign_transactions::intent::Capture;
use consign_transactions::key::RailReference;
use consign_transactions::money::{Cents, Currency};
use consign_transactions::outcome::RailOutcome;
use consign_transactions::rail::standard_webhooks::WebhookSecrets;
use consign_transactions::rail::{
    Charge, ChargesRail, Fenced, HttpRail, Rail, RailReport, RefundOutcome, StripeRail, http,
    stripe,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

const TIMEOUT: Duration = Duration::from_secs(2);
/// A rail's own timeout is far below; reaching this means that it does not work.
const PATIENCE: Duration = Duration::from_secs(8);

const AMOUNT_CENTS: u64 = 1_500;
const REFERENCE: &str = "atp_0123456789012345678901234567890123456789";
const PAYMENT: &str = "pi_1";

/// The maximum length of a stored rail message.
const CODE_CHARS_MAX: usize = 100;
const MESSAGE_CHARS_MAX: usize = 500;
const ID_CHARS_MAX: usize = 255;

pub(crate) fn run(bytes: &[u8]) {
    let Some(input) = Input::read(bytes) else {
        return;
    };
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system gives an event queue");
    }
    RUNTIME.with(|runtime| {
        let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, asked(&input)).await });
        assert!(done.is_ok(), "the rail waits for ever");
    });
}

struct Input<'a> {
    rail: &'a str,
    call: &'a str,
    status: u16,
    body: &'a [u8],
}

impl<'a> Input<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let mut words = str::from_utf8(&bytes[..end]).ok()?.split(' ');
        let (rail, call, status) = (words.next()?, words.next()?, words.next()?);
        Some(Self {
            rail,
            call,
            status: status
                .parse()
                .ok()
                .filter(|status| (200..600).contains(status))?,
            body: &bytes[end + 1..],
        })
    }

    /// Whether the response can be about our payment at all: it contains the amount and the currency. Searched in the
    /// bytes, because the rest may be anything, such as invalid UTF-8; a currency can also be written with escapes.
    fn tells_the_amount(&self) -> bool {
        let amount = AMOUNT_CENTS.to_string();
        let has = |text: &str| {
            let mut windows = self.body.windows(text.len());
            windows.any(|window| window.eq_ignore_ascii_case(text.as_bytes()))
        };
        (200..300).contains(&self.status) && has(&amount) && (has("eur") || has("\\u"))
    }
}

fn charge() -> Charge {
    Charge {
        intent_id: "int_1".to_owned(),
        transaction_id: "tx_1".to_owned(),
        reference: RailReference::stored(REFERENCE),
        amount: Cents::new(AMOUNT_CENTS).expect("a small amount"),
        currency: Currency::EUR,
        action: None,
        summary: None,
        payment_method: Some("pm_card_visa".to_owned()),
        capture: Capture::Automatic,
        refunds_refused: 0,
    }
}

async fn asked(input: &Input<'_>) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let server = server.expect("there is a free port");
    let address = server.local_addr().expect("a bound socket has an address");
    let rail = rail(input.rail, format!("http://{address}"));
    tokio::select! {
        () = ask(&*rail, input) => {}
        () = serve(&server, input) => {}
    }
}

fn rail(name: &str, base: String) -> Box<dyn Rail> {
    let stripe = stripe::Options {
        base: base.clone(),
        secret: "sk_test".to_owned(),
        webhook_secrets: callback::StripeSecrets::new([]),
        timeout: TIMEOUT,
    };
    let usable = "an address as it should be";
    match name {
        "stripe" => Box::new(StripeRail::new(stripe).expect(usable)),
        "charges" => Box::new(ChargesRail::new(stripe).expect(usable)),
        _ => {
            let secrets = WebhookSecrets::new(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]);
            let options = http::Options {
                base,
                secrets: secrets.expect("a secret as it should be"),
                timeout: TIMEOUT,
            };
            Box::new(HttpRail::new(options).expect(usable))
        }
    }
}

async fn ask(rail: &dyn Rail, input: &Input<'_>) {
    let charge = charge();
    let report = match input.call {
        "prepare" => rail.prepare(&charge).await,
        "confirm" => rail.confirm(&charge, Some(PAYMENT)).await,
        "capture" => rail.capture(&charge, Some(PAYMENT)).await,
        "find" => rail.look_up(&charge, None).await,
        "cancel" => {
            let fenced = rail.cancel(&charge, Some(PAYMENT)).await;
            let is_told = (200..300).contains(&input.status) || input.status == 404;
            assert!(is_told || fenced == Fenced::Unknown, "{fenced:?}");
            return;
        }
        "refund" => {
            let refunded = rail.refund(&charge, Some(PAYMENT)).await;
            return check_refund(&refunded, input);
        }
        _ => rail.look_up(&charge, Some(PAYMENT)).await,
    };
    check(&report, input);
}

fn check(report: &RailReport, input: &Input<'_>) {
    let moves = matches!(
        report.outcome,
        RailOutcome::Succeeded | RailOutcome::Held | RailOutcome::Processing
    );
    assert!(!moves || input.tells_the_amount(), "{report:?}");
    if let Some(failure) = &report.failure {
        assert!(failure.code.chars().count() <= CODE_CHARS_MAX, "{report:?}");
        assert!(
            failure.message.chars().count() <= MESSAGE_CHARS_MAX,
            "{report:?}"
        );
    }
    if let Some(id) = &report.payment_id {
        check_id(id);
    }
}

fn check_refund(refunded: &RefundOutcome, input: &Input<'_>) {
    match refunded {
        RefundOutcome::Done { refund_id } => {
            assert!((200..300).contains(&input.status), "{refunded:?}");
            if let Some(id) = refund_id {
                check_id(id);
            }
        }
        RefundOutcome::Refused(failure) => {
            assert!(failure.code.chars().count() <= CODE_CHARS_MAX);
            assert!(failure.message.chars().count() <= MESSAGE_CHARS_MAX);
        }
        RefundOutcome::Pending | RefundOutcome::Unknown => {}
        RefundOutcome::Lost => panic!("a rail over HTTP can be asked again"),
    }
}

/// It becomes part of a record key and of receipts.
fn check_id(id: &str) {
    assert!((1..=ID_CHARS_MAX).contains(&id.chars().count()), "{id:?}");
    assert!(!id.chars().any(char::is_control), "{id:?}");
}

/// Sends the same response to every request.
async fn serve(server: &TcpListener, input: &Input<'_>) {
    let head = format!(
        "HTTP/1.1 {} Told\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        input.status,
        input.body.len()
    );
    let answer = [head.as_bytes(), input.body].concat();
    while let Ok((mut socket, _)) = server.accept().await {
        if read_whole(&mut socket).await.is_some() {
            // A client may close the connection first.
            let _ = socket.write_all(&answer).await;
        }
    }
}

/// Closing a connection during a request would sometimes reset it.
async fn read_whole(socket: &mut TcpStream) -> Option<()> {
    let mut request = Vec::new();
    loop {
        if let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n")
            && request.len() >= head + 4 + content_length(&request[..head])
        {
            return Some(());
        }
        if socket.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let length = head.split("\r\ncontent-length:").nth(1);
    let length = length.and_then(|rest| rest.lines().next());
    length
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
