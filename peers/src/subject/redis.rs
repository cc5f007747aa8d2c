//! Redis streams over RESP: XADD, XREADGROUP of one entry, XACK and XDEL in one write.
//!
//! The server is shared with `BullMQ`, which brings its own client.

use std::process::Command;
use std::rc::Rc;

use super::{Subject, Yard};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Done, Load};
use crate::server::{Server, free_port, output};
use crate::wire::{Parsed, Wire, line};

pub(super) const SETTINGS: &str = "redis-server --appendonly yes --appendfsync always --save \"\"";

pub(super) fn serve(yard: &Yard) -> Result<Server, Error> {
    let folder = yard.folder("redis")?;
    let port = free_port()?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--save", "", "--dir"]).arg(&folder);
    Server::start(command, port, &folder.join("server.log"))
}

pub(super) fn version() -> Result<String, Error> {
    let said = output(Command::new("redis-server").arg("--version"))?;
    number_of(&said)
        .map(|number| format!("Redis {number}"))
        .ok_or_else(|| Error::unexpected("a version", said.as_bytes()))
}

/// Of a line such as `Redis server v=7.0.15 sha=00000000:0 ...`.
fn number_of(said: &str) -> Option<&str> {
    said.split_whitespace()
        .find_map(|word| word.strip_prefix("v="))
}

pub(super) fn start(yard: &mut Yard) -> Result<Box<dyn Subject>, Error> {
    let server = yard.redis()?;
    Ok(Box::new(Streams { server }))
}

#[derive(Debug)]
struct Streams {
    server: Rc<Server>,
}

impl Subject for Streams {
    fn version(&self) -> Result<String, Error> {
        version()
    }

    fn connections(&self) -> Connections {
        Connections::To(self.server.port)
    }

    fn settings(&self) -> String {
        format!("{SETTINGS}; XADD, XREADGROUP COUNT 1, XACK+XDEL")
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

struct Stream {
    port: u16,
    name: String,
}

const GROUP: &[u8] = b"workers";

impl Stream {
    async fn call(&self, words: &[&[u8]]) -> Result<(), Error> {
        let mut wire = Wire::connect(self.port).await?;
        let mut request = Vec::new();
        command(&mut request, words);
        wire.send(&request).await?;
        wire.next(value).await?.accepted().map(|_| ())
    }
}

impl Protocol for Stream {
    type Link = Connection;

    async fn prepare(&self) -> Result<(), Error> {
        let name = self.name.as_bytes();
        self.call(&[b"XGROUP", b"CREATE", name, GROUP, b"0", b"MKSTREAM"])
            .await
    }

    async fn clear(&self) -> Result<(), Error> {
        self.call(&[b"DEL", self.name.as_bytes()]).await
    }

    async fn connect(&self, _role: Role) -> Result<Connection, Error> {
        Ok(Connection {
            wire: Wire::connect(self.port).await?,
            stream: self.name.clone().into_bytes(),
            request: Vec::new(),
        })
    }
}

struct Connection {
    wire: Wire,
    stream: Vec<u8>,
    request: Vec<u8>,
}

impl Link for Connection {
    type Claimed = Vec<u8>;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        self.request.clear();
        command(
            &mut self.request,
            &[b"XADD", &self.stream, b"*", b"d", body],
        );
        self.wire.send(&self.request).await?;
        self.wire.next(value).await?.accepted().map(|_| ())
    }

    async fn claim(&mut self) -> Result<Vec<u8>, Error> {
        self.request.clear();
        // The name of the consumer does not matter: an entry is acknowledged by its id alone.
        let words: [&[u8]; 10] = [
            b"XREADGROUP",
            b"GROUP",
            GROUP,
            b"one",
            b"COUNT",
            b"1",
            b"BLOCK",
            b"0",
            b"STREAMS",
            &self.stream,
        ];
        command(&mut self.request, &[&words[..], &[b">"]].concat());
        self.wire.send(&self.request).await?;
        let answer = self.wire.next(value).await?.accepted()?;
        // One stream, its entries, the first of them, its id.
        match answer.at(0).and_then(|stream| stream.at(1)?.at(0)?.at(0)) {
            Some(Value::Bulk(Some(id))) => Ok(id.clone()),
            _ => Err(Error::Answer(format!("expected an entry, got {answer:?}"))),
        }
    }

    async fn ack(&mut self, entry: Vec<u8>) -> Result<(), Error> {
        self.request.clear();
        command(&mut self.request, &[b"XACK", &self.stream, GROUP, &entry]);
        command(&mut self.request, &[b"XDEL", &self.stream, &entry]);
        self.wire.send(&self.request).await?;
        for what in ["acknowledged", "deleted"] {
            let answer = self.wire.next(value).await?.accepted()?;
            if answer != Value::Number(1) {
                return Err(Error::Answer(format!("not {what}: {answer:?}")));
            }
        }
        Ok(())
    }
}

fn command(request: &mut Vec<u8>, words: &[&[u8]]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

/// What RESP 2 can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Simple(Vec<u8>),
    Refusal(Vec<u8>),
    Number(i64),
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Self>>),
}

impl Value {
    fn accepted(self) -> Result<Self, Error> {
        match self {
            Self::Refusal(text) => Err(Error::unexpected("consent", &text)),
            accepted @ (Self::Simple(_) | Self::Number(_) | Self::Bulk(_) | Self::Array(_)) => {
                Ok(accepted)
            }
        }
    }

    fn at(&self, index: usize) -> Option<&Self> {
        match self {
            Self::Array(Some(values)) => values.get(index),
            Self::Array(None)
            | Self::Simple(_)
            | Self::Refusal(_)
            | Self::Number(_)
            | Self::Bulk(_) => None,
        }
    }
}

fn value(bytes: &[u8]) -> Parsed<Value> {
    let Some((head, used)) = line(bytes) else {
        return Ok(None);
    };
    let (kind, rest) = head
        .split_first()
        .ok_or_else(|| Error::unexpected("a type", head))?;
    let number = || -> Result<i64, Error> {
        let text = std::str::from_utf8(rest).ok();
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| Error::unexpected("a number", head))
    };
    match kind {
        b'+' => Ok(Some((Value::Simple(rest.to_vec()), used))),
        b'-' => Ok(Some((Value::Refusal(rest.to_vec()), used))),
        b':' => Ok(Some((Value::Number(number()?), used))),
        b'$' => {
            let Ok(length) = usize::try_from(number()?) else {
                return Ok(Some((Value::Bulk(None), used)));
            };
            let whole = bytes.get(used..used + length + 2);
            Ok(whole.map(|whole| {
                (
                    Value::Bulk(Some(whole[..length].to_vec())),
                    used + length + 2,
                )
            }))
        }
        b'*' => {
            let Ok(count) = usize::try_from(number()?) else {
                return Ok(Some((Value::Array(None), used)));
            };
            let (mut values, mut used) = (Vec::new(), used);
            for _ in 0..count {
                let Some((value, length)) = value(&bytes[used..])? else {
                    return Ok(None);
                };
                values.push(value);
                used += length;
            }
            Ok(Some((Value::Array(Some(values)), used)))
        }
        _ => Err(Error::unexpected("a known type", head)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cut;

    #[test]
    fn values_may_be_cut_anywhere() {
        assert_eq!(
            cut::everywhere(b"+OK\r\n", value),
            Value::Simple(b"OK".to_vec())
        );
        assert_eq!(cut::everywhere(b":-12\r\n", value), Value::Number(-12));
        assert_eq!(cut::everywhere(b"$-1\r\n", value), Value::Bulk(None));
        assert_eq!(cut::everywhere(b"*-1\r\n", value), Value::Array(None));
        let bulk = cut::everywhere(b"$4\r\na\r\nb\r\n", value);
        assert_eq!(bulk, Value::Bulk(Some(b"a\r\nb".to_vec())));
    }

    #[test]
    fn an_entry_is_found_in_its_nest() {
        let frame =
            b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nd\r\n$2\r\nhi\r\n";
        let entry = cut::everywhere(frame, value);
        let id = entry.at(0).and_then(|stream| stream.at(1)?.at(0)?.at(0));
        assert_eq!(id, Some(&Value::Bulk(Some(b"1-0".to_vec()))));
    }

    #[test]
    fn refusals_and_nonsense_are_errors() {
        assert!(cut::everywhere(b"-ERR no\r\n", value).accepted().is_err());
        assert!(value(b"?what\r\n").is_err());
        assert!(value(b":many\r\n").is_err());
        assert!(value(b"\r\n").is_err());
    }

    #[test]
    fn a_command_is_an_array_of_its_words() {
        let mut request = Vec::new();
        command(&mut request, &[b"XDEL", b"s"]);
        assert_eq!(request, b"*2\r\n$4\r\nXDEL\r\n$1\r\ns\r\n");
    }

    #[test]
    fn the_version_is_found_in_what_the_server_says() {
        assert_eq!(
            number_of("Redis server v=7.0.15 sha=0:0 bits=64"),
            Some("7.0.15")
        );
        assert_eq!(number_of("redis"), None);
    }
}
