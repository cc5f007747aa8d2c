//! Responses of a server: our client accepts or refuses them, and never panics, hangs or shows its key.
//!
//! Input: a line with the call, then the raw response; of an event stream, its body alone. The response goes over a
//! real socket, because the client has no other input.

use std::net::Ipv4Addr;
use std::time::Duration;

use consign_client::{
    ClaimFilter, ClaimSettlement, Client, Error, ListFilter, Options, Publish, SecretKey,
    StreamEvent,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

const KEY: &str = "tk_a_key_that_must_not_be_shown";
const ID: &str = "01a1dea803707330800005a06ad96f6b";

/// The client's own timeout is far below; reaching this means that it does not work.
const PATIENCE: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(2);

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

/// The maximum number of events per stream.
const EVENTS_MAX: usize = 1_000;

pub(crate) fn run(bytes: &[u8]) {
    let line_end = bytes.iter().position(|byte| *byte == b'\n');
    let Some((call, rest)) = line_end.map(|end| bytes.split_at(end)) else {
        return;
    };
    let answer = &rest[1..];
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the system gives an event queue");
    }
    RUNTIME.with(|runtime| {
        let whole = async {
            if call == b"events" {
                let at_once = stream(&[HEAD, b"\r\n", answer].concat()).await;
                let in_pieces = stream(&chunked(answer)).await;
                assert_eq!(at_once, in_pieces, "where a stream is cut matters");
            } else {
                checked(single(call, answer).await);
            }
        };
        let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, whole).await });
        assert!(done.is_ok(), "the client waits for ever");
    });
}

fn checked<T>(outcome: Result<T, Error>) -> Option<T> {
    let error = match outcome {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let shown = format!("{error} {error:?} {:?}", error.hint());
    assert!(!shown.contains(KEY), "{shown}");
    if let Some(status) = error.status() {
        assert!(status.as_u16() >= 400, "{shown}");
    }
    assert!(!matches!(error, Error::TimedOut { .. }), "{shown}");
    None
}

async fn single(call: &[u8], answer: &[u8]) -> Result<(), Error> {
    let (server, client) = pair().await;
    let asked = async {
        match call {
            b"publish" => {
                let publish = Publish::new("g", &1)?;
                client.publish(&publish, None).await.map(drop)
            }
            b"claim" => {
                let claim = ClaimFilter {
                    max: Some(2),
                    ..ClaimFilter::default()
                };
                client.claim(&claim).await.map(drop)
            }
            b"settle" => {
                let item = ClaimSettlement::Fail {
                    id: ID.to_owned(),
                    claim_token: "t".to_owned(),
                    error: "e".to_owned(),
                    next: consign_client::NextAttempt::Scheduled,
                };
                client.settle(&[item], None).await.map(drop)
            }
            b"extend" => client.extend(ID, "t", 60).await.map(drop),
            b"result" => client.result(ID).await.map(drop),
            b"timeline" => client.timeline(ID).await.map(drop),
            b"list" => client.list(&ListFilter::default()).await.map(drop),
            b"keys" => client.keys().await.map(drop),
            _ => client.status(ID).await.map(drop),
        }
    };
    let (asked, ()) = tokio::join!(asked, serve(&server, answer));
    asked
}

/// The same stream in chunks, split inside of line ends.
fn chunked(body: &[u8]) -> Vec<u8> {
    let mut answer = [HEAD, b"transfer-encoding: chunked\r\n\r\n"].concat();
    for piece in body.split_inclusive(|byte| *byte == b'\r') {
        answer.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        answer.extend_from_slice(piece);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    answer
}

/// The events of a stream, and whether it ended in order.
async fn stream(answer: &[u8]) -> (Vec<StreamEvent>, bool) {
    let (server, client) = pair().await;
    let asked = async {
        let mut seen = Vec::new();
        let Some(mut events) = checked(client.events(None).await) else {
            return (seen, false);
        };
        while seen.len() < EVENTS_MAX {
            match checked(events.next().await) {
                Some(Some(event)) => {
                    assert!(!event.data.contains('\r') && !event.event.is_empty());
                    seen.push(event);
                }
                Some(None) => return (seen, true),
                None => return (seen, false),
            }
        }
        (seen, true)
    };
    let (seen, ()) = tokio::join!(asked, serve(&server, answer));
    seen
}

async fn pair() -> (TcpListener, Client) {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let server = server.expect("there is a free port");
    let address = server.local_addr().expect("a bound socket has an address");
    let client = Client::new(Options {
        server: format!("http://{address}"),
        key: Some(SecretKey::new(KEY)),
        admin_token: Some(SecretKey::new(KEY)),
        timeout: TIMEOUT,
        ..Options::default()
    });
    (server, client.expect("the address is one"))
}

/// Reads one request, sends these bytes and closes the connection.
async fn serve(server: &TcpListener, answer: &[u8]) {
    let Ok((mut socket, _)) = server.accept().await else {
        return;
    };
    read_head(&mut socket).await;
    // A client may close the connection first.
    let _ = socket.write_all(answer).await;
}

async fn read_head(socket: &mut TcpStream) {
    let mut head = vec![0; 4096];
    let _ = socket.read(&mut head).await;
}
