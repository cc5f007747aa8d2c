//! Guessing of credentials at the HTTP interface of the automation and at its webhooks, which have separate listeners.

use std::io::{BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use consign_testkit::process::{Reply, read_reply};
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use crate::automation_world::{OK, World, until};
use crate::place::{PATIENCE, Place, start, word};

const GUESSER: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub(super) const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SILENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Long enough to be accepted, short enough to be guessed.
const WEAK: &str = "a-secret-somebody-chose";
/// Like the generated secrets.
const STRONG: &str = "0123456789abcdef0123456789abcdef01234567";
const WRONG: &str = "a-wrong-guess-0123456789";
const TOLD: &str = "wrong credentials were sent";

fn world() -> World {
    let world = World::new();
    world.plugin("echo", OK);
    world.config(&format!(
        "plugins: {{echo: {{}}}}\n\
         tokens: [{{name: weak, key: {WEAK}}}, {{name: strong, key: '{STRONG}'}}]\n\
         api:\n  enabled: true\n  listen: '127.0.0.1:0'\n  auth:\n    tokens:\n      - {{token: {WEAK}, scopes: ['*']}}\n      \
         - {{token: '{STRONG}', scopes: ['*']}}\n\
         webhooks:\n  listen: '127.0.0.1:0'\n  endpoints:\n    \
         - {{path: /weak, plugin: echo, secret_ref: weak, signature_header: X-Signature}}\n    \
         - {{path: /strong, plugin: echo, secret_ref: strong, signature_header: X-Signature}}\n"
    ));
    world
}

/// The listeners of a service, from its log.
struct Listeners {
    api: SocketAddr,
    webhooks: SocketAddr,
}

impl Listeners {
    fn of(log: &[Value]) -> Option<Self> {
        let mut lines = log.iter();
        let started = lines.find(|line| line["message"] == "the automation is running")?;
        let address = |name: &str| word(&started[name]).parse().expect("an address");
        Some(Self {
            api: address("api"),
            webhooks: address("webhooks"),
        })
    }
}

/// A connection from one of the addresses of this machine.
pub(super) fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(to).await?.into_std()
    });
    let stream = stream.expect("it listens on all of them");
    stream.set_nonblocking(false).expect("it is a socket");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("it is a socket");
    stream
}

fn ask(from: Ipv4Addr, to: SocketAddr, line: &str, header: &str) -> Reply {
    let stream = connect(from, to);
    let request =
        format!("{line} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: 2\r\n\r\n{{}}");
    (&stream)
        .write_all(request.as_bytes())
        .expect("it is taken");
    read_reply(&mut BufReader::new(&stream)).expect("an answer")
}

/// Lists the jobs with this token.
fn jobs(from: Ipv4Addr, to: SocketAddr, token: &str) -> u16 {
    let header = format!("Authorization: Bearer {token}\r\n");
    ask(from, to, "GET /jobs", &header).status
}

/// A delivery to this path, signed with this secret.
fn delivered(from: Ipv4Addr, to: SocketAddr, path: &str, secret: &str) -> u16 {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length will do");
    mac.update(b"{}");
    let digest = HEXLOWER.encode(&mac.finalize().into_bytes());
    let header = format!("X-Signature: sha256={digest}\r\n");
    ask(from, to, &format!("POST {path}"), &header).status
}

fn guesses_are_throttled(listeners: &Listeners, log: &dyn Fn() -> Vec<String>) {
    let (api, hooks) = (listeners.api, listeners.webhooks);
    let told = || {
        let lines = log().into_iter();
        lines.filter(|line| line.contains(TOLD)).collect::<Vec<_>>()
    };
    // A request without a credential does not count as a guess.
    for _ in 0..15 {
        assert_eq!(ask(SILENT, api, "GET /jobs", "").status, 401);
        assert_eq!(ask(SILENT, hooks, "POST /weak", "").status, 403);
    }
    assert_eq!(jobs(SILENT, api, WEAK), 200);
    assert_eq!(delivered(SILENT, hooks, "/weak", WEAK), 202);
    assert_eq!(told(), Vec::<String>::new());

    let statuses: Vec<u16> = (0..13).map(|_| jobs(GUESSER, api, WRONG)).collect();
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10..], [429; 3]);
    assert_eq!(jobs(OTHER, api, WEAK), 200);
    assert_eq!(jobs(GUESSER, api, STRONG), 200);
    // A correct guess gets the same response as a wrong one, in every encoding.
    assert_eq!(jobs(GUESSER, api, WEAK), 429);
    let encoded: Vec<String> = WEAK.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let encoded = encoded.concat();
    for token in [WEAK, &encoded, WRONG] {
        let line = format!("GET /events?token={token}");
        assert_eq!(ask(GUESSER, api, &line, "").status, 429, "{token}");
    }

    let guess = |_| delivered(GUESSER, hooks, "/weak", WRONG);
    let statuses: Vec<u16> = (0..13).map(guess).collect();
    assert_eq!(statuses[..10], [403; 10]);
    assert_eq!(statuses[10..], [429; 3]);
    assert_eq!(delivered(OTHER, hooks, "/weak", WEAK), 202);
    assert_eq!(delivered(GUESSER, hooks, "/weak", WEAK), 429);
    assert_eq!(delivered(GUESSER, hooks, "/strong", STRONG), 202);

    // One log line per listener, however many guesses.
    let told = told();
    assert_eq!(told.len(), 2, "{told:?}");
    for line in &told {
        assert!(line.contains(r#""failures":11"#), "{line}");
        assert!(line.contains("127.0.0.1"), "{line}");
    }
}

#[test]
fn s14_guesses_at_an_automation_service_are_throttled_per_address() {
    let world = world();
    let service = world.start();
    let listeners = Listeners::of(&service.log()).expect("it was logged");
    guesses_are_throttled(&listeners, &|| service.lines());
}

#[test]
fn s14_guesses_at_the_automation_of_a_server_are_throttled_per_address() {
    let world = world();
    let place = Place::new();
    let config = world.path("config.yaml");
    let server = start(
        &place
            .options()
            .arg("--config")
            .arg(&config.to_string_lossy()),
    );
    let log = || {
        let log = server.stderr();
        log.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let found = || {
        let lines = log().into_iter();
        let lines: Vec<Value> = lines
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect();
        Listeners::of(&lines)
    };
    until("the automation is running", || found().is_some());
    let listeners = found().expect("it was logged");
    guesses_are_throttled(&listeners, &log);
}

#[test]
fn s14_short_tokens_and_webhook_secrets_are_refused_at_the_start() {
    let world = world();
    let text = world.read("config.yaml");
    for (from, what) in [
        (format!("token: {WEAK}"), "the API token"),
        (format!("key: {WEAK}"), "the secret of the webhook /weak"),
    ] {
        let short = from.replace(WEAK, "fifteen-chars-x");
        let text = text.replace(&from, &short);
        std::fs::write(world.path("config.yaml"), text).expect("it is ours");
        let refused = world.refused();
        let said = crate::place::text(&refused.stderr);
        assert!(!refused.status.success(), "{said}");
        assert!(
            said.contains(what) && said.contains("16 characters"),
            "{said}"
        );
        assert!(!said.contains("fifteen"), "{said}");
    }
}
