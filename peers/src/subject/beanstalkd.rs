//! beanstalkd: put, reserve, delete.
//!
//! `-f0` syncs the log before each answer. A reservation is not written: it is lost when the server ends.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use beanstalkd_rs::{DeleteResult, PutResult, ReserveResult};
use tokio::io::BufReader;
use tokio::net::TcpStream;

use super::{Environment, Subject, client_version};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Load, RoundResult};
use crate::server::{Server, free_port, output};

#[derive(Debug)]
struct Beanstalkd {
    folder: PathBuf,
    /// A new one for each round: a tube cannot be emptied by one command, and jobs that are left would be copied in the log.
    server: Option<Server>,
}

pub(super) fn start(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    let mut beanstalkd = Beanstalkd {
        folder: environment.folder("beanstalkd")?,
        server: None,
    };
    beanstalkd.reset()?;
    Ok(Box::new(beanstalkd))
}

impl Subject for Beanstalkd {
    fn version(&self) -> Result<String, Error> {
        let printed = output(Command::new("beanstalkd").arg("-v"))?;
        Ok(format!(
            "{}, {}",
            printed.trim(),
            client_version("beanstalkd-rs")?
        ))
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

    fn reset(&mut self) -> Result<(), Error> {
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

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
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
        let port = self.port;
        let stream = TcpStream::connect(("127.0.0.1", port)).await;
        let stream = stream.map_err(Error::io(format!("connecting to port {port}")))?;
        stream
            .set_nodelay(true)
            .map_err(Error::io("setting TCP_NODELAY"))?;
        let mut connection = beanstalkd_rs::Connection::Tcp(BufReader::new(stream));
        let name = &self.name;
        let used = connection.use_tube(name).await;
        used.map_err(Error::client("use"))?;
        let watched = connection.watch(name).await;
        watched.map_err(Error::client("watch"))?;
        let ignored = connection.ignore("default").await;
        ignored.map_err(Error::client("ignore"))?;
        Ok(Connection(connection))
    }
}

struct Connection(beanstalkd_rs::Connection);

const PRIORITY: u32 = 0;
const DELAY_SECONDS: u32 = 0;
/// Longer than a round: no reservation runs out.
const RESERVED_SECONDS: u32 = 120;

impl Link for Connection {
    type Claimed = u64;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        let put = self.0.put(PRIORITY, DELAY_SECONDS, RESERVED_SECONDS, body);
        match put.await.map_err(Error::client("put"))? {
            PutResult::Inserted(_) => Ok(()),
            PutResult::Buried(job) => Err(Error::Answer(format!("put buried the job {job}"))),
        }
    }

    async fn claim(&mut self) -> Result<u64, Error> {
        match self.0.reserve().await.map_err(Error::client("reserve"))? {
            ReserveResult::Reserved(job) => Ok(job.id),
            other @ (ReserveResult::DeadlineSoon | ReserveResult::TimedOut) => {
                Err(Error::Answer(format!("reserve returned {other:?}")))
            }
        }
    }

    async fn ack(&mut self, job: u64) -> Result<(), Error> {
        match self.0.delete(job).await.map_err(Error::client("delete"))? {
            DeleteResult::Deleted => Ok(()),
            DeleteResult::NotFound => Err(Error::Answer(format!("delete found no job {job}"))),
        }
    }
}
