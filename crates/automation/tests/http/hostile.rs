//! Malicious requests.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::world::{ALL, PATIENCE, World, raw, send};

const ECHO: &str = r#"echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins: {echo: {}}
webhooks: {listen: '127.0.0.1:0'}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_queries_and_heads_are_refused_as_json_du_098() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let long = format!("/jobs?plugin={}", "x".repeat(5_000));
    world.get(&long).await.is_refused(400);
    let many = format!("/jobs?{}", "a&".repeat(2_500));
    world.get(&many).await.is_refused(400);
    let huge = format!("/jobs?plugin={}", "x".repeat(70_000));
    let answer = world.get(&huge).await;
    assert!(matches!(answer.status, 414 | 431 | 400), "{answer:?}");
    assert!(answer.json["error"].is_string(), "{answer:?}");
    let answer = raw(world.api, b"nonsense\r\n\r\n").await;
    answer.is_refused(400);
    assert_eq!(world.get("/jobs").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_cannot_make_us_read_a_body_du_098() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    // Only the head is sent: the response does not wait for the body.
    let mut stream = TcpStream::connect(world.api).await.unwrap();
    let head = b"POST /plugin/echo/poll HTTP/1.1\r\nhost: a\r\ncontent-length: 4000000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut first = [0; 12];
    let read = stream.read_exact(&mut first);
    let read = tokio::time::timeout(std::time::Duration::from_secs(5), read).await;
    read.expect("a stranger is answered before its body is waited for")
        .unwrap();
    assert_eq!(&first, b"HTTP/1.1 401");
    let bearer = format!("authorization: Bearer {ALL}");
    let large = vec![b' '; (4 << 20) + 1];
    let answer = send(world.api, "POST", "/plugin/echo/poll", &[&bearer], &large).await;
    answer.is_refused(413);
    assert_eq!(world.get("/jobs").await.json["total"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_stranger_does_not_shut_the_webhooks_for_others_du_109() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let mut silent = Vec::new();
    for _ in 0..128 {
        silent.push(TcpStream::connect(world.hooks).await.unwrap());
    }
    let mut one_more = TcpStream::connect(world.hooks).await.unwrap();
    let mut byte = [0];
    let closed = timeout(PATIENCE, one_more.read(&mut byte)).await.unwrap();
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");

    let elsewhere = TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = elsewhere.connect(world.hooks).await.unwrap();
    let request = b"GET /nothing HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    other.write_all(request).await.unwrap();
    let mut answer = String::new();
    let read = timeout(PATIENCE, other.read_to_string(&mut answer)).await;
    read.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_of_other_protocols_are_no_jobs_du_104() {
    use consign_kernel::command::{Admit, Answer, Command, NewIntent};
    use consign_kernel::profile::ProfileId;

    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let item = NewIntent {
        profile: ProfileId::Intent,
        namespace: "default".to_owned(),
        goal: "private".to_owned(),
        owner: "somebody".to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: 0,
        payload: r#"{"secret":1}"#.to_owned(),
        traceparent: None,
        delay_us: 0,
        ttl_us: 1_000_000_000,
        attempts_max: 1,
        backoff_us: 0,
        once: None,
        ties: consign_kernel::intent::Ties::default(),
        unless: None,
    };
    let admit = Command::Admit(Admit {
        items: vec![item],
        cap: None,
    });
    let Answer::Admitted(admitted) = world.engine.apply(None, admit).await.unwrap() else {
        panic!("it was not admitted");
    };
    let id = admitted[0].id;
    for path in [
        format!("/job/{id}"),
        format!("/job/{id}/tree"),
        format!("/pipeline-run/{id}"),
    ] {
        world.get(&path).await.is_refused(404);
    }
    world
        .post(&format!("/job/{id}/cancel"), "")
        .await
        .is_refused(404);
    world
        .post(&format!("/job/{id}/retry"), "")
        .await
        .is_refused(404);
    assert_eq!(world.get("/jobs").await.json["total"], 0);
}
