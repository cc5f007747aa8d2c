//! The control socket: its token permits every operation, and without it every request is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use consign_automation::http::listeners::{Serving, control};
use consign_web::credentials::SecretDigest;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::unix::UnixSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::world::{Answer, PATIENCE, World, loader, parse};

const ECHO: &str = r#"echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins: {echo: {}}
webhooks: {listen: '127.0.0.1:0'}
";

const TOKEN: &str = "ct_0123456789";
const BEARER: &str = "authorization: Bearer ct_0123456789\r\n";

async fn ask(path: &Path, line: &str) -> Answer {
    ask_with(path, line, BEARER).await
}

async fn ask_with(path: &Path, line: &str, headers: &str) -> Answer {
    let mut stream = UnixStream::connect(path).await.unwrap();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}content-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    parse(&answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_the_token_may_do_everything_there_and_nobody_else_anything_du_098() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let path = world.path("control.sock");
    fs::write(&path, "left by a crash").unwrap();
    let socket = UnixSocket::bind(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!world.path("control.sock.new").exists());
    let serving = Serving {
        draining: world.draining.subscribe(),
        binary_path: None,
        loader: loader(world.path("config.yaml")),
        throttles: false,
        request_id_seed: 1,
        // The socket belongs to the operator.
        policy: ListenerPolicy {
            maintenance: true,
            ..ListenerPolicy::default()
        },
    };
    let runtime = world.runtime.clone();
    let token = SecretDigest::new(TOKEN.to_owned());
    let served = tokio::spawn(async move { control(socket, runtime, &serving, token).await });
    for line in [
        "GET /healthz",
        "GET /config/view",
        "GET /system/status",
        "GET /jobs",
    ] {
        assert_eq!(ask(&path, line).await.status, 200, "{line}");
    }
    for headers in [
        "",
        "authorization: Bearer ct_012345678\r\n",
        "authorization: Bearer ct_01234567890\r\n",
        "authorization: Bearer \r\n",
        "authorization: Basic ct_0123456789\r\n",
        "authorization: Bearer one\r\nauthorization: Bearer ct_0123456789\r\n",
        // A token of the configuration is not valid on this socket.
        "authorization: Bearer token-of-an-operator\r\n",
    ] {
        for line in [
            "GET /healthz",
            "GET /",
            "OPTIONS /jobs",
            "GET /config/view",
            "GET /events?token=ct_0123456789",
            "GET /nothing",
            "PUT /jobs",
            "POST /plugin/echo/work",
            "POST /system/reload",
        ] {
            let answer = ask_with(&path, line, headers).await;
            assert_eq!(answer.status, 401, "{line} {headers:?}");
        }
    }
    let answer = ask(&path, "POST /plugin/echo/work").await;
    assert_eq!(answer.status, 202, "{answer:?}");
    ask(&path, "GET /nothing").await.is_refused(404);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream
        .write_all(format!("GET /events HTTP/1.1\r\nhost: a\r\n{BEARER}\r\n").as_bytes())
        .await
        .unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    world.draining.send_replace(true);
    timeout(Duration::from_secs(5), served)
        .await
        .unwrap()
        .unwrap();
    assert!(!path.exists());
}
