//! The control socket: whoever may open its file may do everything.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use consign_faces::automation::listeners::{Serving, control};
use consign_faces::web::door::Door;
use consign_faces::web::unix::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::world::{Answer, PATIENCE, World, loader, parse};

const ECHO: &str = r#"echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins: {echo: {}}
webhooks: {listen: '127.0.0.1:0'}
";

async fn ask(path: &Path, line: &str) -> Answer {
    let mut stream = UnixStream::connect(path).await.unwrap();
    let request =
        format!("{line} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    parse(&answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_of_the_process_may_do_everything_there_du_098() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let path = world.path("control.sock");
    fs::write(&path, "left by a crash").unwrap();
    let socket = Socket::bind(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!world.path("control.sock.new").exists());
    let serving = Serving {
        draining: world.draining.subscribe(),
        binary_path: None,
        loader: loader(world.path("config.yaml")),
        throttles: false,
        request_id_seed: 1,
        // The socket is the operator's.
        door: Door {
            maintenance: true,
            ..Door::default()
        },
    };
    let runtime = world.runtime.clone();
    let served = tokio::spawn(async move { control(socket, runtime, &serving).await });
    for line in [
        "GET /healthz",
        "GET /config/view",
        "GET /system/status",
        "GET /jobs",
    ] {
        assert_eq!(ask(&path, line).await.status, 200, "{line}");
    }
    let answer = ask(&path, "POST /plugin/echo/work").await;
    assert_eq!(answer.status, 202, "{answer:?}");
    ask(&path, "GET /nothing").await.is_refused(404);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    stream
        .write_all(b"GET /events HTTP/1.1\r\nhost: a\r\n\r\n")
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
