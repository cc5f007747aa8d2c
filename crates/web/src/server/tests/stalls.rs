//! Clients that stop reading, and clients that are only slow.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use tokio::io::AsyncWrite;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;

const STALL: Duration = Duration::from_millis(200);

fn impatient() -> Options {
    Options {
        stall_timeout: STALL,
        connections_max: 1,
        ..options()
    }
}

/// A client whose kernel takes little ahead of what it reads.
async fn connect_narrow(running: &RunningServer) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    socket.connect(running.addr).await.unwrap()
}

/// Answers long enough that a socket fills with them, and not with the cost of many small packets.
fn long_hello() -> Router {
    let answer = get(async || format!("{}hello", "x".repeat(64 << 10)));
    Router::new().route("/", answer)
}

/// Sends requests and reads nothing until the server has had enough of it.
async fn pipeline_until_dropped(stream: &mut (impl AsyncWrite + Unpin)) {
    let requests = GET.repeat(100);
    let sending = async { while stream.write_all(&requests).await.is_ok() {} };
    timeout(PATIENCE, sending).await.expect("dropped in time");
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_place() {
    let running = start(impatient(), long_hello());
    let mut deaf = connect(&running).await;
    pipeline_until_dropped(&mut deaf).await;

    let mut next = connect(&running).await;
    next.write_all(GET).await.unwrap();
    read_until(&mut next, "hello").await;
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_place_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = tls::CertificateFiles {
        certificates: directory.path().join("chain.pem"),
        key: directory.path().join("key.pem"),
    };
    write_pair(&files);
    let options = Options {
        tls: Some(files.clone()),
        ..impatient()
    };
    let running = start(options, long_hello());
    let mut deaf = connect_tls(&running, &files.certificates).await.unwrap();
    pipeline_until_dropped(&mut deaf).await;

    let mut next = connect_tls(&running, &files.certificates).await.unwrap();
    next.write_all(GET).await.unwrap();
    read_until(&mut next, "hello").await;
}

/// Reads a little at a time for much longer than a stall may last, then the rest, until `end`.
async fn read_slowly(stream: &mut (impl AsyncRead + Unpin), end: &str) -> usize {
    let begun = Instant::now();
    let mut text = vec![0; 4 << 10];
    let mut length = 0;
    while begun.elapsed() < 8 * STALL {
        length += stream.read_exact(&mut text).await.unwrap();
        sleep(STALL / 20).await;
    }
    let rest = read_until(stream, end).await;
    assert!(rest.ends_with(end), "cut after {} more", rest.len());
    length + rest.len()
}

#[tokio::test]
async fn a_slow_reader_gets_the_whole_of_a_large_answer() {
    const BYTES: usize = 16 << 20;
    let large = get(async || format!("{}end", "x".repeat(BYTES)));
    let running = start(impatient(), Router::new().route("/", large));
    let mut slow = connect_narrow(&running).await;
    slow.write_all(GET).await.unwrap();
    assert!(read_slowly(&mut slow, "xend").await > BYTES);

    slow.write_all(GET).await.unwrap();
    assert!(read_slowly(&mut slow, "xend").await > BYTES, "once more");
}

#[tokio::test]
async fn a_slow_reader_of_an_event_stream_is_kept_while_the_stream_is_quiet() {
    const BYTES: usize = 8 << 20;
    let quiet_is_over = Arc::new(Notify::new());
    let signal = Arc::clone(&quiet_is_over);
    let events = get(async move || {
        let (pages, body) = mpsc::channel(1);
        tokio::spawn(async move {
            let page = format!("data: {}\n\n", "x".repeat(BYTES));
            pages.send(Bytes::from(page)).await.unwrap();
            signal.notified().await;
            let late = Bytes::from_static(b"data: late\n\n");
            pages.send(late).await.unwrap();
        });
        Body::new(TestBody(body))
    });
    let running = start(impatient(), Router::new().route("/", events));
    let mut slow = connect_narrow(&running).await;
    slow.write_all(GET).await.unwrap();
    assert!(read_slowly(&mut slow, "x\n\n\r\n").await > BYTES);
    sleep(3 * STALL).await;
    quiet_is_over.notify_one();
    let late = read_until(&mut slow, "\r\n0\r\n\r\n").await;
    assert!(late.contains("data: late\n\n"), "{late}");
}

struct TestBody(mpsc::Receiver<Bytes>);

impl HttpBody for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let page = self.0.poll_recv(cx);
        page.map(|page| page.map(|page| Ok(Frame::data(page))))
    }
}
