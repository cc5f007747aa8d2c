//! beanstalkd: a text protocol of lines, with the job's bytes after some of them.
//!
//! `-f0` syncs the log before each answer. A reservation is not written at all: it dies with the server.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Subject, Yard};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Done, Load};
use crate::server::{Server, free_port, output};
use crate::wire::{Parsed, Wire, line, number};

#[derive(Debug)]
struct Beanstalkd {
    folder: PathBuf,
    /// A new one for each round: a tube cannot be emptied in one go, and jobs left over would be copied along in the log.
    server: Option<Server>,
}

pub(super) fn start(yard: &mut Yard) -> Result<Box<dyn Subject>, Error> {
    let mut beanstalkd = Beanstalkd {
        folder: yard.folder("beanstalkd")?,
        server: None,
    };
    beanstalkd.renew()?;
    Ok(Box::new(beanstalkd))
}

impl Subject for Beanstalkd {
    fn version(&self) -> Result<String, Error> {
        let said = output(Command::new("beanstalkd").arg("-v"))?;
        Ok(said.trim().to_owned())
    }

    fn caveat(&self) -> Option<&'static str> {
        Some(
            "a reservation is not written to its log, only put and delete are, so ours does one durable step more in each cycle",
        )
    }

    fn connections(&self) -> Connections {
        let server = self.server.as_ref();
        server.map_or(Connections::None, |server| Connections::To(server.port))
    }

    fn settings(&self) -> String {
        "beanstalkd -b DIR -f0; put, reserve, delete".to_owned()
    }

    fn renew(&mut self) -> Result<(), Error> {
        self.server = None;
        let jobs = self.folder.join("jobs");
        if jobs.exists() {
            fs::remove_dir_all(&jobs).map_err(Error::io("removing old jobs"))?;
        }
        fs::create_dir(&jobs).map_err(Error::io("making a folder for jobs"))?;
        let port = free_port()?;
        let mut command = Command::new("beanstalkd");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-f0", "-b"]);
        command.arg(&jobs);
        let log = self.folder.join("server.log");
        self.server = Some(Server::start(command, port, &log)?);
        Ok(())
    }

    fn server(&self) -> Option<u32> {
        self.server.as_ref().map(Server::id)
    }

    fn round(&mut self, load: &Load) -> Result<Done, Error> {
        let server = self.server.as_ref();
        let server = server.ok_or_else(|| Error::Program("it is not running".to_owned()))?;
        let tube = Tube {
            port: server.port,
            name: load.queue(),
        };
        generate::run(&tube, load)
    }
}

struct Tube {
    port: u16,
    name: String,
}

impl Protocol for Tube {
    type Link = Connection;

    async fn prepare(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn clear(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn connect(&self, _role: Role) -> Result<Connection, Error> {
        let mut wire = Wire::connect(self.port).await?;
        let name = &self.name;
        let hello = format!("use {name}\r\nwatch {name}\r\nignore default\r\n");
        wire.send(hello.as_bytes()).await?;
        for wanted in ["USING", "WATCHING", "WATCHING"] {
            wire.next(reply).await?.expect_word(wanted)?;
        }
        Ok(Connection {
            wire,
            request: Vec::new(),
        })
    }
}

struct Connection {
    wire: Wire,
    request: Vec<u8>,
}

impl Link for Connection {
    type Claimed = usize;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        self.request.clear();
        let head = format!("put 0 0 120 {}\r\n", body.len());
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.request.extend_from_slice(b"\r\n");
        self.wire.send(&self.request).await?;
        self.wire.next(reply).await?.expect_word("INSERTED")
    }

    async fn claim(&mut self) -> Result<usize, Error> {
        self.wire.send(b"reserve\r\n").await?;
        let reply = self.wire.next(reply).await?;
        reply.expect_word("RESERVED")?;
        number(&reply.line, 1)
    }

    async fn ack(&mut self, job: usize) -> Result<(), Error> {
        self.wire
            .send(format!("delete {job}\r\n").as_bytes())
            .await?;
        self.wire.next(reply).await?.expect_word("DELETED")
    }
}

/// One answer: its line, and the bytes of the job if it brings one.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    line: Vec<u8>,
    body: Vec<u8>,
}

impl Reply {
    fn expect_word(&self, wanted: &str) -> Result<(), Error> {
        if self.line.split(|byte| *byte == b' ').next() == Some(wanted.as_bytes()) {
            Ok(())
        } else {
            Err(Error::unexpected(wanted, &self.line))
        }
    }
}

fn reply(bytes: &[u8]) -> Parsed<Reply> {
    let Some((head, used)) = line(bytes) else {
        return Ok(None);
    };
    let (body, used) = if head.starts_with(b"RESERVED ") {
        let length = number(head, 2)?;
        let Some(body) = bytes.get(used..used + length + 2) else {
            return Ok(None);
        };
        (&body[..length], used + length + 2)
    } else {
        (&[][..], used)
    };
    let reply = Reply {
        line: head.to_vec(),
        body: body.to_vec(),
    };
    Ok(Some((reply, used)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cut;

    #[test]
    fn replies_may_be_cut_anywhere() {
        let inserted = cut::everywhere(b"INSERTED 42\r\n", reply);
        inserted.expect_word("INSERTED").unwrap();
        assert_eq!(number(&inserted.line, 1).unwrap(), 42);
        let reserved = cut::everywhere(b"RESERVED 7 6\r\na\r\nb\r\n\r\n", reply);
        assert_eq!(reserved.body, b"a\r\nb\r\n");
    }

    #[test]
    fn a_refusal_is_not_taken_for_consent() {
        let refused = cut::everywhere(b"OUT_OF_MEMORY\r\n", reply);
        assert!(refused.expect_word("INSERTED").is_err());
        assert!(reply(b"RESERVED seven\r\n").is_err());
    }
}
