//! NATS `JetStream`: a work-queue stream in files, pulled one message at a time, each acknowledgement confirmed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Subject, Yard};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Done, Load};
use crate::server::{Server, free_port, output};
use crate::wire::{Parsed, Wire, line};

#[derive(Debug)]
struct Nats {
    program: PathBuf,
    server: Server,
}

pub(super) fn start(yard: &mut Yard) -> Result<Box<dyn Subject>, Error> {
    let folder = yard.folder("nats")?;
    let port = free_port()?;
    let settings = folder.join("server.conf");
    let store = serde_json::to_string(&folder.join("store"))?;
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{\n  store_dir: {store}\n  sync_interval: always\n}}\n"
    );
    fs::write(&settings, text).map_err(Error::io(settings.display().to_string()))?;
    let mut command = Command::new(&yard.tools.nats);
    command.arg("-c").arg(&settings);
    let server = Server::start(command, port, &folder.join("server.log"))?;
    let program = yard.tools.nats.clone();
    Ok(Box::new(Nats { program, server }))
}

impl Subject for Nats {
    fn version(&self) -> Result<String, Error> {
        let said = output(Command::new(&self.program).arg("--version"))?;
        Ok(said.trim().to_owned())
    }

    fn connections(&self) -> Connections {
        Connections::To(self.server.port)
    }

    fn settings(&self) -> String {
        "nats-server, JetStream file store, work-queue stream, sync_interval: always; publish with reply, pull 1, AckSync"
            .to_owned()
    }

    fn server(&self) -> Option<u32> {
        Some(self.server.id())
    }

    fn round(&mut self, load: &Load) -> Result<Done, Error> {
        let stream = Stream {
            port: self.server.port,
            name: load.queue(),
        };
        generate::run(&stream, load)
    }
}

static INBOXES: AtomicU64 = AtomicU64::new(0);

struct Stream {
    port: u16,
    name: String,
}

impl Protocol for Stream {
    type Link = Connection;

    async fn prepare(&self) -> Result<(), Error> {
        let mut connection = self.connect(Role::Both).await?;
        let name = &self.name;
        let stream = format!(
            r#"{{"name":"{name}","subjects":["{name}"],"retention":"workqueue","storage":"file","num_replicas":1}}"#
        );
        let consumer = format!(
            r#"{{"stream_name":"{name}","config":{{"durable_name":"workers","ack_policy":"explicit"}}}}"#
        );
        let calls = [
            (format!("$JS.API.STREAM.CREATE.{name}"), stream),
            (
                format!("$JS.API.CONSUMER.DURABLE.CREATE.{name}.workers"),
                consumer,
            ),
        ];
        for (subject, body) in calls {
            let answer = connection.call(&subject, body.as_bytes()).await?;
            refuse_errors(&answer)?;
        }
        Ok(())
    }

    async fn clear(&self) -> Result<(), Error> {
        let mut connection = self.connect(Role::Both).await?;
        let subject = format!("$JS.API.STREAM.DELETE.{}", self.name);
        let answer = connection.call(&subject, b"").await?;
        refuse_errors(&answer)
    }

    async fn connect(&self, _role: Role) -> Result<Connection, Error> {
        let mut wire = Wire::connect(self.port).await?;
        // Inboxes are seen by the whole server, so each connection needs one that nobody else has.
        let inbox = format!("_INBOX.{}", INBOXES.fetch_add(1, Ordering::Relaxed));
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}}\r\nSUB {inbox} 1\r\nPING\r\n"
        );
        wire.send(hello.as_bytes()).await?;
        while wire.next(frame).await? != Frame::Pong {}
        Ok(Connection {
            wire,
            inbox,
            next: format!("$JS.API.CONSUMER.MSG.NEXT.{}.workers", self.name),
            subject: self.name.clone(),
            request: Vec::new(),
        })
    }
}

struct Connection {
    wire: Wire,
    inbox: String,
    next: String,
    subject: String,
    request: Vec<u8>,
}

impl Connection {
    /// Publishes with our inbox as the reply subject and waits for the first message there.
    async fn call(&mut self, subject: &str, body: &[u8]) -> Result<Message, Error> {
        self.request.clear();
        let head = format!("PUB {subject} {} {}\r\n", self.inbox, body.len());
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.request.extend_from_slice(b"\r\n");
        self.wire.send(&self.request).await?;
        loop {
            match self.wire.next(frame).await? {
                Frame::Message(message) => return Ok(message),
                Frame::Ping => self.wire.send(b"PONG\r\n").await?,
                Frame::Pong | Frame::Info => {}
                Frame::Refusal(text) => return Err(Error::unexpected("a message", &text)),
            }
        }
    }
}

impl Link for Connection {
    type Claimed = String;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        let subject = self.subject.clone();
        let answer = self.call(&subject, body).await?;
        refuse_errors(&answer)
    }

    async fn claim(&mut self) -> Result<String, Error> {
        let next = self.next.clone();
        // Longer than a round: a request that expired would have to be told from a job.
        let message = self
            .call(&next, br#"{"batch":1,"expires":120000000000}"#)
            .await?;
        match message.reply {
            Some(reply) if message.status.is_none() => Ok(reply),
            _ => Err(Error::Answer(format!("expected a job, got {message:?}"))),
        }
    }

    async fn ack(&mut self, reply: String) -> Result<(), Error> {
        let answer = self.call(&reply, b"+ACK").await?;
        match answer.status {
            None => Ok(()),
            Some(status) => Err(Error::Answer(format!("not acknowledged: {status}"))),
        }
    }
}

fn refuse_errors(answer: &Message) -> Result<(), Error> {
    let has_error = answer.body.windows(8).any(|bytes| bytes == b"\"error\":");
    if has_error || answer.status.is_some() || answer.body.is_empty() {
        return Err(Error::unexpected("consent", &answer.body));
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Frame {
    Info,
    Ping,
    Pong,
    Refusal(Vec<u8>),
    Message(Message),
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    reply: Option<String>,
    /// Of a message without a job, such as `408 Request Timeout`.
    status: Option<String>,
    body: Vec<u8>,
}

fn frame(bytes: &[u8]) -> Parsed<Frame> {
    let Some((head, used)) = line(bytes) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(head);
    let words: Vec<&str> = text.split_whitespace().collect();
    let simple = |frame| Ok(Some((frame, used)));
    match words.as_slice() {
        ["PING"] => simple(Frame::Ping),
        ["PONG"] => simple(Frame::Pong),
        ["INFO", ..] => simple(Frame::Info),
        ["-ERR", ..] => simple(Frame::Refusal(head.to_vec())),
        ["MSG", _, _, rest @ .., length] => message(bytes, used, rest, "0", length),
        ["HMSG", _, _, rest @ .., headers, length] => message(bytes, used, rest, headers, length),
        _ => Err(Error::unexpected("a frame", head)),
    }
}

/// The part after the line: headers and body together take `length` bytes.
fn message(bytes: &[u8], used: usize, rest: &[&str], headers: &str, length: &str) -> Parsed<Frame> {
    let number = |word: &str| -> Result<usize, Error> {
        word.parse()
            .map_err(|_| Error::unexpected("a length", word.as_bytes()))
    };
    let (headers, length) = (number(headers)?, number(length)?);
    let Some(whole) = bytes.get(used..used + length + 2) else {
        return Ok(None);
    };
    let Some((headers, body)) = whole[..length].split_at_checked(headers) else {
        return Err(Error::unexpected("headers within the message", whole));
    };
    let status = line(headers).and_then(|(first, _)| first.strip_prefix(b"NATS/1.0 "));
    let message = Message {
        reply: rest.first().map(|reply| (*reply).to_owned()),
        status: status.map(|status| String::from_utf8_lossy(status).into_owned()),
        body: body.to_vec(),
    };
    Ok(Some((Frame::Message(message), used + length + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cut;

    #[test]
    fn frames_may_be_cut_anywhere() {
        assert_eq!(cut::everywhere(b"PING\r\n", frame), Frame::Ping);
        assert_eq!(cut::everywhere(b"INFO {\"a\":1}\r\n", frame), Frame::Info);
        let job = Message {
            reply: Some("$JS.ACK.1".to_owned()),
            status: None,
            body: b"a\r\nb".to_vec(),
        };
        let whole = cut::everywhere(b"MSG in 1 $JS.ACK.1 4\r\na\r\nb\r\n", frame);
        assert_eq!(whole, Frame::Message(job));
        let empty = cut::everywhere(b"MSG in 1 0\r\n\r\n", frame);
        assert!(matches!(empty, Frame::Message(message) if message.reply.is_none()));
    }

    #[test]
    fn a_status_is_told_from_a_job() {
        let text = b"HMSG in 1 28 28\r\nNATS/1.0 408 Timed Out\r\n\r\n  \r\n";
        let Frame::Message(message) = cut::everywhere(text, frame) else {
            panic!("not a message");
        };
        assert_eq!(message.status.as_deref(), Some("408 Timed Out"));
        let text = b"HMSG in 1 ack 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n";
        let Frame::Message(message) = cut::everywhere(text, frame) else {
            panic!("not a message");
        };
        assert_eq!((message.status, message.body), (None, b"hi".to_vec()));
    }

    #[test]
    fn refusals_and_nonsense_are_errors() {
        assert!(matches!(
            cut::everywhere(b"-ERR 'no'\r\n", frame),
            Frame::Refusal(_)
        ));
        assert!(frame(b"WHAT\r\n").is_err());
        assert!(frame(b"MSG in 1 many\r\n").is_err());
        let refused = Message {
            reply: None,
            status: None,
            body: br#"{"error":{"code":503}}"#.to_vec(),
        };
        assert!(refuse_errors(&refused).is_err());
    }
}
