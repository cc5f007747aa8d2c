//! The event stream.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{ALL, PATIENCE, World};

const ECHO: &str = r#"echo '{"status":"ok","result":"done"}'"#;
const CONFIG: &str = "
plugins: {echo: {}}
webhooks: {listen: '127.0.0.1:0'}
";

struct Reader {
    stream: TcpStream,
    text: String,
}

impl Reader {
    async fn open(world: &World, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(world.api).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reader = Self {
            stream,
            text: String::new(),
        };
        reader.until("\r\n\r\n").await;
        reader
    }

    /// Reads until this has come.
    async fn until(&mut self, wanted: &str) {
        let mut bytes = [0; 4096];
        while !self.text.contains(wanted) {
            let read = timeout(PATIENCE, self.stream.read(&mut bytes)).await;
            let read = read.unwrap_or_else(|_| panic!("no {wanted} in {}", self.text));
            let read = read.unwrap();
            assert!(read > 0, "no {wanted} in {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }

    fn events(&self) -> Vec<(u64, String, Value)> {
        let mut events = Vec::new();
        for block in self.text.split("\n\n") {
            let field = |name: &str| {
                block
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::to_owned)
            };
            let (id, kind, data) = (field("id: "), field("event: "), field("data: "));
            if let (Some(id), Some(kind), Some(data)) = (id, kind, data) {
                events.push((
                    id.parse().unwrap(),
                    kind,
                    serde_json::from_str(&data).unwrap(),
                ));
            }
        }
        events
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_life_of_a_job_is_told_and_told_again_du_108() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    world
        .ended(&world.begin("/plugin/echo/poll", "").await)
        .await;
    let mut reader = Reader::open(&world, "/events", "authorization: Bearer listener\r\n").await;
    assert!(reader.text.starts_with("HTTP/1.1 200"), "{}", reader.text);
    assert!(reader.text.contains("content-type: text/event-stream"));
    reader.until(": connected").await;
    let id = world.begin("/plugin/echo/poll", "").await;
    reader.until("event: job.completed").await;
    reader.until("\"duration_ms\"").await;
    reader.until("}\n\n").await;
    let events = reader.events();
    let of_job: Vec<&str> = events.iter().map(|(_, kind, _)| kind.as_str()).collect();
    assert_eq!(of_job[0], "job.enqueued", "nothing from before: {events:?}");
    assert!(of_job.contains(&"job.started"), "{of_job:?}");
    for (_, kind, data) in &events {
        assert_eq!(data["type"], kind.as_str());
        assert_eq!(data["data"]["job_id"], id.as_str());
        assert!(
            data["at"]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .is_ok()
        );
    }
    // Who comes back goes on behind what it saw; the token may stand in the query here.
    let first = events[0].0;
    let path = format!("/events?token={ALL}");
    let mut again = Reader::open(&world, &path, &format!("last-event-id: {first}\r\n")).await;
    again.until("event: job.completed").await;
    again.until("\"duration_ms\"").await;
    again.until("}\n\n").await;
    let repeated = again.events();
    assert_eq!(repeated[0].0, first + 1);
    assert_eq!(repeated, events[1..]);
    // A number from another life of the server, or of no server: all that is kept is new.
    for foreign in ["3", "9999999999999999"] {
        let headers = format!("authorization: Bearer {ALL}\r\nlast-event-id: {foreign}\r\n");
        let mut stranger = Reader::open(&world, "/events", &headers).await;
        stranger.until("event: job.enqueued").await;
        stranger.until("}\n\n").await;
        assert!(stranger.events()[0].0 < first, "{foreign}");
    }

    let refused = Reader::open(&world, "/events?token=wrong", "").await;
    assert!(refused.text.starts_with("HTTP/1.1 401"), "{}", refused.text);
    let twice = format!("/events?token={ALL}&token={ALL}");
    let refused = Reader::open(&world, &twice, "").await;
    assert!(refused.text.starts_with("HTTP/1.1 401"), "{}", refused.text);
    let refused = Reader::open(&world, "/events", "authorization: Bearer job-writer\r\n").await;
    assert!(refused.text.starts_with("HTTP/1.1 403"), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_limited_and_end_with_their_token_or_the_server_du_108() {
    let world = World::start(&[("echo", ECHO)], CONFIG).await;
    let mut readers = Vec::new();
    for _ in 0..10 {
        let reader = Reader::open(&world, "/events", "authorization: Bearer listener\r\n").await;
        assert!(reader.text.starts_with("HTTP/1.1 200"), "{}", reader.text);
        readers.push(reader);
    }
    let open = "authorization: Bearer listener\r\n";
    let refused = Reader::open(&world, "/events", open).await;
    assert!(refused.text.starts_with("HTTP/1.1 503"), "{}", refused.text);
    // One token's streams leave room for those of others.
    let all = format!("authorization: Bearer {ALL}\r\n");
    let other = Reader::open(&world, "/events", &all).await;
    assert!(other.text.starts_with("HTTP/1.1 200"), "{}", other.text);
    // A place is free again when its reader has left.
    readers.pop();
    let began = std::time::Instant::now();
    let mut last = loop {
        let reader = Reader::open(&world, "/events", open).await;
        if reader.text.starts_with("HTTP/1.1 200") {
            break reader;
        }
        assert!(began.elapsed() < PATIENCE, "the place is lost");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    last.until(": connected").await;
    // Without its token a stream ends at the next event.
    let text = std::fs::read_to_string(world.path("config.yaml")).unwrap();
    world.adopt_text(&text.replace("token: listener", "token: another"));
    readers.clear();
    let mut kept = loop {
        let reader = Reader::open(&world, "/events", &all).await;
        if reader.text.starts_with("HTTP/1.1 200") {
            break reader;
        }
        assert!(began.elapsed() < PATIENCE, "the places are lost");
    };
    world.begin("/plugin/echo/poll", "").await;
    kept.until("event: job.enqueued").await;
    let mut rest = Vec::new();
    timeout(PATIENCE, last.stream.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("job."));
    world.draining.send_replace(true);
    timeout(PATIENCE, kept.stream.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
}
