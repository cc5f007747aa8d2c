//! Who may call the local interface, and how much at once.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::local_http::{self, EventReader, Extra};
use crate::sending::connected;
use crate::world::{Daemon, Home, NO_BROKER};

fn with<'a>(headers: &'a [(&'a str, &'a str)]) -> Extra<'a> {
    Extra { headers, body: b"" }
}

async fn unix(daemon: &Daemon, target: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let answer = local_http::unix(&daemon.sock(), "GET", target, with(headers)).await;
    (answer.status, answer.json())
}

async fn tcp(daemon: &Daemon, target: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let answer = daemon.tcp("GET", target, with(headers)).await;
    (answer.status, answer.json())
}

fn error(text: &str) -> Value {
    json!({"error": text})
}

#[tokio::test]
async fn cm_023_cm_027_cm_028_cm_029_the_socket_is_open_and_loopback_needs_the_token() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let token = daemon.token();
    assert_eq!(token.len(), 43);
    let bearer = format!("Bearer {token}");
    for target in ["/v1/health", "/v1/version", "/v1/metrics", "/v1/nothing"] {
        let missing = tcp(&daemon, target, &[]).await;
        assert_eq!(missing, (401, error("missing bearer token")), "{target}");
        let wrong = tcp(&daemon, target, &[("Authorization", "Bearer no")]).await;
        assert_eq!(wrong, (401, error("invalid bearer token")), "{target}");
    }
    assert_eq!(
        tcp(&daemon, "/v1/health", &[("Authorization", &bearer)])
            .await
            .0,
        200
    );
    assert_eq!(unix(&daemon, "/v1/health", &[]).await.0, 200);
    assert_eq!(
        unix(&daemon, "/v1/nothing", &[]).await,
        (404, error("not found"))
    );
    let log = serde_json::to_string(&home.log()).unwrap();
    assert!(!log.contains(&token));
    // The listener is on loopback alone.
    let port = format!("{:04X}", daemon.port());
    let listening = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let own: Vec<&str> = listening
        .lines()
        .filter(|line| line.contains(&format!(":{port} 00000000:0000")))
        .collect();
    assert!(own.iter().all(|line| line.contains("0100007F:")), "{own:?}");
    assert_eq!(own.len(), 1);
    daemon.down().await;
}

#[tokio::test]
async fn cm_027_a_public_health_check_opens_nothing_else() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[ipc]\npublic_health_check = true\n");
    let daemon = home.up().await;
    assert_eq!(tcp(&daemon, "/v1/health", &[]).await.0, 200);
    assert_eq!(tcp(&daemon, "/v1/version", &[]).await.0, 401);
    daemon.down().await;
}

#[tokio::test]
async fn cm_024_a_token_in_the_query_is_refused_before_everything_else() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let refusal = (
        400,
        error("token must be in Authorization header, not query string"),
    );
    let foreign = [("Host", "evil.example"), ("Origin", "https://evil.example")];
    assert_eq!(unix(&daemon, "/v1/health?token=x", &foreign).await, refusal);
    assert_eq!(
        tcp(&daemon, "/v1/nothing?a=b&token=", &foreign).await,
        refusal
    );
    let logged = home.logged("ipc_token_in_query_string_rejected");
    assert_eq!(logged.len(), 2);
    assert_eq!(logged[0]["security"], true);
    daemon.down().await;
}

#[tokio::test]
async fn cm_025_cm_026_foreign_hosts_and_origins_are_refused() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[ipc]\norigin_allowlist = [\"https://ours.example\"]\n");
    let daemon = home.up().await;
    for host in ["localhost", "localhost:47823", "127.0.0.1", "[::1]:1", ""] {
        assert_eq!(
            unix(&daemon, "/v1/health", &[("Host", host)]).await.0,
            200,
            "{host}"
        );
    }
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1"] {
        let answer = unix(&daemon, "/v1/health", &[("Host", host)]).await;
        assert_eq!(answer, (403, error("forbidden host")), "{host}");
    }
    let foreign = unix(&daemon, "/v1/health", &[("Origin", "https://evil.example")]).await;
    assert_eq!(foreign, (403, error("forbidden origin")));
    let ours = [("Origin", "https://ours.example")];
    let answer = local_http::unix(&daemon.sock(), "GET", "/v1/health", with(&ours)).await;
    assert_eq!(answer.status, 200);
    assert!(
        !answer.head.to_lowercase().contains("access-control"),
        "{}",
        answer.head
    );
    let preflight = local_http::unix(&daemon.sock(), "OPTIONS", "/v1/send", with(&[])).await;
    assert_eq!(
        (preflight.status, preflight.json()),
        (403, error("forbidden origin"))
    );
    daemon.down().await;
}

#[tokio::test]
async fn cm_030_a_container_serves_the_socket_alone() {
    let home = Home::new(1, NO_BROKER);
    let mut options = home.options();
    options.environment.is_contained = true;
    let daemon = home.up_with(options).await;
    assert!(!home.folder().join("http.port").exists());
    daemon.down().await;
}

#[tokio::test]
async fn cm_031_a_body_that_is_too_long_or_no_json_is_refused() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let large = daemon
        .post_text("/v1/send", &vec![b' '; (1 << 20) + 1])
        .await;
    assert_eq!(
        (large.status, large.json()),
        (413, error("payload_too_large"))
    );
    for text in ["", "{", "[]", "\"text\""] {
        let answer = daemon.post_text("/v1/send", text.as_bytes()).await;
        assert_eq!(
            (answer.status, answer.json()),
            (400, error("invalid_json")),
            "{text}"
        );
    }
    daemon.down().await;
}

#[tokio::test]
async fn cm_032_a_token_has_a_burst_and_then_429() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[ipc]\nrate_per_s = 1\nrate_burst = 3\n");
    let daemon = home.up().await;
    let bearer = format!("Bearer {}", daemon.token());
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(
            tcp(&daemon, "/v1/compat", &[("Authorization", &bearer)])
                .await
                .0,
        );
    }
    assert_eq!(statuses[..3], [200, 200, 200]);
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    let refused = tcp(&daemon, "/v1/compat", &[("Authorization", &bearer)]).await;
    assert_eq!(refused, (429, error("rate_limited")));
    // The socket file has no token.
    assert_eq!(unix(&daemon, "/v1/compat", &[]).await.0, 200);
    daemon.down().await;
}

#[tokio::test]
async fn cm_005_more_requests_at_once_than_allowed_are_daemon_busy() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut stream = UnixStream::connect(daemon.sock()).await.unwrap();
        let head = b"POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
        stream.write_all(head).await.unwrap();
        open.push(stream);
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let answer = unix(&daemon, "/v1/compat", &[]).await;
        if answer == (429, error("daemon_busy")) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(open);
    loop {
        if unix(&daemon, "/v1/compat", &[]).await.0 == 200 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    daemon.down().await;
}

#[tokio::test]
async fn cm_006_the_33rd_stream_is_refused_and_a_closed_one_makes_room() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(EventReader::open(&daemon.sock()).await);
    }
    let refused = unix(&daemon, "/v1/events", &[]).await;
    assert_eq!(refused, (429, error("too_many_streams")));
    streams.pop();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let mut stream = UnixStream::connect(daemon.sock()).await.unwrap();
        let head = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut answer = [0; 64];
        let read = stream.read(&mut answer).await.unwrap();
        if answer[..read].starts_with(b"HTTP/1.1 200") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline);
    }
    daemon.down().await;
}

#[tokio::test]
async fn cm_037_parts_that_are_off_say_so() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    for (target, capability) in [
        ("/v1/state", "state"),
        ("/v1/memory/recall", "memory"),
        ("/v1/vector/search", "vector"),
        ("/v1/graph/query", "graph"),
        ("/v1/tasks", "tasks"),
        ("/v1/scheduling", "scheduling"),
        ("/v1/mcp_host", "mcp_host"),
        ("/v1/skill_share", "skill_share"),
        ("/v1/inbox/search?q=x", "inbox_fts"),
    ] {
        let expected = json!({"error": "capability_disabled", "capability": capability});
        assert_eq!(
            unix(&daemon, target, &[]).await,
            (404, expected),
            "{target}"
        );
    }
    daemon.down().await;
}

#[tokio::test]
async fn cm_126_a_replaced_token_works_for_a_while() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let old = format!("Bearer {}", daemon.token());
    let rotated = daemon.post("/v1/token/rotate", &json!({})).await;
    assert_eq!(rotated.status, 200);
    let new = format!("Bearer {}", daemon.token());
    assert_ne!(old, new);
    assert!(!rotated.text.contains(&daemon.token()));
    for bearer in [&old, &new] {
        assert_eq!(
            tcp(&daemon, "/v1/health", &[("Authorization", bearer)])
                .await
                .0,
            200
        );
    }
    daemon.down().await;
}

#[tokio::test]
async fn the_daemon_ends_over_its_socket_and_not_over_loopback() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    let bearer = format!("Bearer {}", daemon.token());
    let headers = [("Authorization", bearer.as_str())];
    let refused = daemon.tcp("POST", "/v1/shutdown", with(&headers)).await;
    assert_eq!(refused.status, 403);
    assert_eq!(daemon.post("/v1/shutdown", &json!({})).await.status, 200);
    assert_eq!(daemon.ended().await.status(), 0);
}

#[tokio::test]
async fn cm_121_settings_are_read_again_and_wrong_ones_are_refused() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    home.configure("[outbox]\nmax_queue_size = 1\n");
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 200);
    assert_eq!(daemon.send("c-1", "*", "hi").await.status, 202);
    assert_eq!(daemon.send("c-2", "*", "hi").await.status, 507);
    home.configure("[outbox]\nmax_queue = 1\n");
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 400);
    daemon.down().await;
}

#[tokio::test]
async fn cm_121_a_reload_keeps_the_connection() {
    let (home, broker, daemon) = connected().await;
    home.configure("[daemon]\nlog_level = \"debug\"\n[outbox]\nmax_queue_size = 5\n");
    assert_eq!(daemon.post("/v1/reload", &json!({})).await.status, 200);
    daemon.send("c-1", "*", "hi").await;
    daemon.until_status("c-1", "done").await;
    assert_eq!(broker.of_type("hello").len(), 1);
    assert!(broker.closes().is_empty());
    // It was read: lines of this level were not written before.
    assert_eq!(home.logged("message_accepted").len(), 1);
    daemon.down().await;
}

#[tokio::test]
async fn cm_140_choices_that_are_less_secure_than_the_default_are_warned_of() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[ipc]\ntcp_enabled = true\n[hooks]\nenabled = true\n");
    let choices = [
        "ipc_tcp_enabled_against_default",
        "hooks_enabled_against_default",
    ];
    home.up().await.down().await;
    for choice in choices {
        assert!(home.logged(choice).is_empty(), "here it is the default");
    }
    let mut options = home.options();
    options.environment.is_ci = true;
    let daemon = home.up_with(options).await;
    assert!(daemon.port() > 0);
    for choice in choices {
        let logged = home.logged(choice);
        assert_eq!(logged.len(), 1, "{choice}");
        assert_eq!(logged[0]["level"], "warn");
    }
    daemon.down().await;
}

#[tokio::test]
async fn a_listener_for_other_machines_has_a_token_of_its_own() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[ipc]\nhttp_bind = \"0.0.0.0\"\nhttp_external_auth = \"external\"\n");
    let missing = home.start(home.options()).ended().await;
    assert_eq!(missing.status(), 3);
    let message = missing.message.unwrap();
    assert!(message.contains("http_external_auth"), "{message}");
    let text = "A".repeat(43);
    let file = home.folder().join("external");
    std::fs::write(&file, &text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = home.up().await;
    let external = format!("Bearer {text}");
    let local = format!("Bearer {}", daemon.token());
    let at = async |address: &str, headers: &[(&str, &str)]| {
        let stream = TcpStream::connect((address, daemon.port())).await.unwrap();
        let answer = local_http::over(stream, "GET", "/v1/health", with(headers)).await;
        answer.status
    };
    for bearer in [&external, &local] {
        let headers = [("Authorization", bearer.as_str())];
        assert_eq!(at("127.0.0.1", &headers).await, 200);
    }
    assert_eq!(at("127.0.0.1", &[]).await, 401);
    // Where this machine has another address, a caller from there needs the external token.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    if let Ok(address) = address.map(|address| address.ip().to_string()) {
        let host = [("Host", address.as_str()), ("Authorization", &external)];
        assert_eq!(at(&address, &host).await, 200);
        let host = [("Host", address.as_str()), ("Authorization", &local)];
        assert_eq!(at(&address, &host).await, 401);
        let host = [("Host", "evil.example"), ("Authorization", &external)];
        assert_eq!(at(&address, &host).await, 403);
    }
    daemon.down().await;
}

#[tokio::test]
async fn the_mode_of_the_socket_is_that_of_the_settings() {
    let home = Home::new(1, NO_BROKER);
    for (settings, expected) in [("", 0o600), ("[ipc]\nuds_mode = \"0700\"\n", 0o700)] {
        home.configure(settings);
        let daemon = home.up().await;
        let mode = std::fs::metadata(daemon.sock())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, expected);
        daemon.down().await;
    }
}

#[tokio::test]
async fn cm_033_what_needs_the_broker_says_that_it_is_not_there() {
    let home = Home::new(1, NO_BROKER);
    let daemon = home.up().await;
    for (method, target, body) in [
        ("GET", "/v1/peers", json!({})),
        ("GET", "/v1/topic/list", json!({})),
        ("POST", "/v1/topic/subscribe", json!({"topic": "a"})),
        ("POST", "/v1/topic/unsubscribe", json!({"topic": "a"})),
        ("POST", "/v1/profile", json!({"summary": "s"})),
    ] {
        let body = body.to_string();
        let extra = Extra {
            headers: &[],
            body: body.as_bytes(),
        };
        let answer = local_http::unix(&daemon.sock(), method, target, extra).await;
        let refused = answer.json();
        assert_eq!(
            (answer.status, &refused["error"]),
            (503, &json!("broker_unreachable")),
            "{target}"
        );
        assert!(refused["message"].is_string(), "{refused}");
    }
    assert_eq!(
        daemon.post("/v1/heartbeat", &json!({})).await.json(),
        json!({"ok": true})
    );
    daemon.down().await;
}

/// Sends a request whose body does not come, and returns the first line of its answer.
async fn without_its_body(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    authorization: &str,
) -> String {
    let head = format!(
        "POST /v1/send HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\nContent-Length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 512];
    let reading = stream.read(&mut answer);
    let read = timeout(Duration::from_secs(10), reading).await;
    let read = read
        .expect("the answer does not wait for the body")
        .unwrap();
    let text = String::from_utf8_lossy(&answer[..read]).into_owned();
    text.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn cm_023_cm_103_a_token_that_no_hook_holds_is_refused_before_anything_is_read_or_counted() {
    let home = Home::new(1, NO_BROKER);
    home.configure("[ipc]\nmax_inflight = 1\nmax_sse = 1\n");
    let daemon = home.up().await;
    let mut open: (Vec<UnixStream>, Vec<TcpStream>) = Default::default();
    for authorization in ["Capability garbage", "capability garbage", "Capability"] {
        let mut stream = UnixStream::connect(daemon.sock()).await.unwrap();
        let refused = without_its_body(&mut stream, authorization).await;
        assert_eq!(refused, "HTTP/1.1 401 Unauthorized", "{authorization}");
        open.0.push(stream);
        let address = ("127.0.0.1", daemon.port());
        let mut stream = TcpStream::connect(address).await.unwrap();
        let refused = without_its_body(&mut stream, authorization).await;
        assert_eq!(refused, "HTTP/1.1 401 Unauthorized", "{authorization}");
        open.1.push(stream);
        let headers = [("Authorization", authorization)];
        for target in ["/v1/health", "/v1/events", "/v1/nothing"] {
            let refused = (401, error("invalid capability token"));
            assert_eq!(unix(&daemon, target, &headers).await, refused, "{target}");
            assert_eq!(tcp(&daemon, target, &headers).await, refused, "{target}");
        }
    }
    // None of them has the only place.
    assert_eq!(unix(&daemon, "/v1/compat", &[]).await.0, 200);
    EventReader::open(&daemon.sock()).await;
    let logged = home.logged("ipc_request_rejected");
    assert_eq!(logged[0]["credential"], "Capability ***");
    daemon.down().await;
}
