//! `RabbitMQ`: durable queues, persistent messages, publisher confirms, one unacknowledged message per consumer.
//!
//! An acknowledgement has no answer in this protocol, so the broker's own sync of it is not waited for.

use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use consign_testkit::unprivileged::User;

use super::amqp::{self, Arguments, Fields, Frame, Method};
use super::{Subject, Yard};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Done, Load};
use crate::server::{Server, free_port, output};
use crate::wire::Wire;

/// Not the program on the path: that one insists on the packaged service's own user and folders.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Nor this one, for the same reason.
const CONTROL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

/// The broker, and the name service that the Erlang runtime would otherwise start and leave behind.
#[derive(Debug)]
pub(super) struct Broker {
    server: Server,
    _names: Server,
    folder: PathBuf,
}

pub(super) fn serve(yard: &Yard) -> Result<Broker, Error> {
    let folder = yard.folder("rabbitmq")?;
    let user = User::find().map_err(Error::io("looking for a user"))?;
    let owned = user.owns(&folder);
    owned.map_err(Error::io(folder.display().to_string()))?;
    let [port, names_port, peers_port] = [free_port()?, free_port()?, free_port()?];
    let mut command = user.command(PROGRAM);
    command
        .current_dir(&folder)
        .env("HOME", &folder)
        .env(
            "RABBITMQ_NODENAME",
            format!("consign-peers-{port}@localhost"),
        )
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", peers_port.to_string())
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.join("log"))
        .env("RABBITMQ_CONFIG_FILE", folder.join("none"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
        .env("ERL_EPMD_PORT", names_port.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1");
    let mut names = user.command("epmd");
    names.args(["-address", "127.0.0.1", "-port", &names_port.to_string()]);
    let names = Server::start(names, names_port, &yard.path.join("epmd.log"))?;
    let server = Server::start(command, port, &yard.path.join("rabbitmq.log"))?;
    Ok(Broker {
        server,
        _names: names,
        folder,
    })
}

pub(super) fn start_quorum(yard: &mut Yard) -> Result<Box<dyn Subject>, Error> {
    start(yard, "quorum")
}

pub(super) fn start_classic(yard: &mut Yard) -> Result<Box<dyn Subject>, Error> {
    start(yard, "classic")
}

fn start(yard: &mut Yard, kind: &'static str) -> Result<Box<dyn Subject>, Error> {
    let broker = yard.rabbitmq()?;
    Ok(Box::new(Rabbitmq { broker, kind }))
}

#[derive(Debug)]
struct Rabbitmq {
    broker: Rc<Broker>,
    kind: &'static str,
}

impl Subject for Rabbitmq {
    fn version(&self) -> Result<String, Error> {
        let mut control = Command::new(CONTROL);
        // It writes a secret into its home, and asks nobody with it.
        let said = output(control.arg("version").env("HOME", &self.broker.folder))?;
        Ok(format!("RabbitMQ {}", said.trim()))
    }

    fn connections(&self) -> Connections {
        Connections::To(self.broker.server.port)
    }

    fn settings(&self) -> String {
        format!(
            "rabbitmq-server, durable {} queue, persistent messages, publisher confirms, prefetch 1 (acks are not confirmed)",
            self.kind
        )
    }

    fn server(&self) -> Option<u32> {
        Some(self.broker.server.id())
    }

    fn round(&mut self, load: &Load) -> Result<Done, Error> {
        let queue = Queue {
            port: self.broker.server.port,
            name: load.queue(),
            kind: self.kind,
        };
        generate::run(&queue, load)
    }
}

struct Queue {
    port: u16,
    name: String,
    kind: &'static str,
}

const CHANNEL: u16 = 1;
const DURABLE: u8 = 2;

impl Protocol for Queue {
    type Link = Connection;

    async fn prepare(&self) -> Result<(), Error> {
        let mut connection = Connection::open(self).await?;
        let declare = Arguments::default()
            .short(0)
            .text(&self.name)
            .octet(DURABLE)
            .table(&[("x-queue-type", self.kind)]);
        connection
            .call(amqp::QUEUE_DECLARE, &declare, amqp::QUEUE_DECLARE_OK)
            .await?;
        Ok(())
    }

    async fn clear(&self) -> Result<(), Error> {
        let mut connection = Connection::open(self).await?;
        let delete = Arguments::default().short(0).text(&self.name).octet(0);
        connection
            .call(amqp::QUEUE_DELETE, &delete, amqp::QUEUE_DELETE_OK)
            .await?;
        Ok(())
    }

    async fn connect(&self, role: Role) -> Result<Connection, Error> {
        let mut connection = Connection::open(self).await?;
        if role != Role::Consumer {
            let select = Arguments::default().octet(0);
            connection
                .call(amqp::CONFIRM_SELECT, &select, amqp::CONFIRM_SELECT_OK)
                .await?;
        }
        if role == Role::Consumer {
            let qos = Arguments::default().long(0).short(1).octet(0);
            connection
                .call(amqp::BASIC_QOS, &qos, amqp::BASIC_QOS_OK)
                .await?;
            let consume = Arguments::default()
                .short(0)
                .text(&self.name)
                .text("")
                .octet(0)
                .table(&[]);
            connection
                .call(amqp::BASIC_CONSUME, &consume, amqp::BASIC_CONSUME_OK)
                .await?;
        }
        connection.subscribed = role == Role::Consumer;
        Ok(connection)
    }
}

struct Connection {
    wire: Wire,
    queue: String,
    /// Messages come by themselves; otherwise each is asked for, so that none lies unused with a client that cycles.
    subscribed: bool,
    request: Vec<u8>,
}

impl Connection {
    async fn open(queue: &Queue) -> Result<Self, Error> {
        let mut connection = Self {
            wire: Wire::connect(queue.port).await?,
            queue: queue.name.clone(),
            subscribed: false,
            request: Vec::new(),
        };
        connection.wire.send(amqp::GREETING).await?;
        connection.expect(amqp::CONNECTION_START).await?;
        let start = Arguments::default()
            .table(&[])
            .text("PLAIN")
            .long_bytes(b"\0guest\0guest")
            .text("en_US");
        connection
            .send(0, amqp::CONNECTION_START_OK, &start)
            .await?;
        let tune = connection.expect(amqp::CONNECTION_TUNE).await?;
        let mut tune = Fields(&tune);
        // No heartbeat: a round is shorter than any sensible interval.
        let agreed = Arguments::default()
            .short(tune.short()?)
            .long(tune.long()?)
            .short(0);
        connection
            .send(0, amqp::CONNECTION_TUNE_OK, &agreed)
            .await?;
        let host = Arguments::default().text("/").text("").octet(0);
        connection.send(0, amqp::CONNECTION_OPEN, &host).await?;
        connection.expect(amqp::CONNECTION_OPEN_OK).await?;
        let channel = Arguments::default().text("");
        connection
            .call(amqp::CHANNEL_OPEN, &channel, amqp::CHANNEL_OPEN_OK)
            .await?;
        Ok(connection)
    }

    async fn send(
        &mut self,
        channel: u16,
        method: Method,
        arguments: &Arguments,
    ) -> Result<(), Error> {
        self.request.clear();
        amqp::method(&mut self.request, channel, method, arguments);
        self.wire.send(&self.request).await
    }

    async fn call(
        &mut self,
        method: Method,
        arguments: &Arguments,
        answer: Method,
    ) -> Result<Vec<u8>, Error> {
        self.send(CHANNEL, method, arguments).await?;
        self.expect(answer).await
    }

    async fn expect(&mut self, wanted: Method) -> Result<Vec<u8>, Error> {
        let (method, arguments) = self.method().await?;
        if method == wanted {
            Ok(arguments)
        } else {
            let wanted = format!("{wanted:?}, not {method:?}");
            Err(Error::unexpected(&wanted, &arguments))
        }
    }

    async fn method(&mut self) -> Result<(Method, Vec<u8>), Error> {
        loop {
            match self.wire.next(amqp::frame).await? {
                Frame::Method(method, arguments) => return Ok((method, arguments)),
                Frame::Heartbeat => {}
                other @ (Frame::Header(_) | Frame::Body(_)) => {
                    return Err(Error::Answer(format!("expected a method, got {other:?}")));
                }
            }
        }
    }

    /// The header and the body that follow a delivery.
    async fn content(&mut self) -> Result<(), Error> {
        let Frame::Header(size) = self.wire.next(amqp::frame).await? else {
            return Err(Error::Answer("expected a header".to_owned()));
        };
        let mut received = 0;
        while received < size {
            let Frame::Body(part) = self.wire.next(amqp::frame).await? else {
                return Err(Error::Answer("expected a body".to_owned()));
            };
            received += part.len() as u64;
        }
        Ok(())
    }
}

impl Link for Connection {
    type Claimed = u64;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        self.request.clear();
        amqp::publish(&mut self.request, CHANNEL, &self.queue, body);
        self.wire.send(&self.request).await?;
        self.expect(amqp::BASIC_ACK).await.map(|_| ())
    }

    async fn claim(&mut self) -> Result<u64, Error> {
        if self.subscribed {
            let delivery = self.expect(amqp::BASIC_DELIVER).await?;
            self.content().await?;
            let mut fields = Fields(&delivery);
            fields.skip_text()?;
            return fields.longlong();
        }
        let get = Arguments::default().short(0).text(&self.queue).octet(0);
        loop {
            self.send(CHANNEL, amqp::BASIC_GET, &get).await?;
            match self.method().await? {
                (amqp::BASIC_GET_EMPTY, _) => {}
                (amqp::BASIC_GET_OK, arguments) => {
                    self.content().await?;
                    return Fields(&arguments).longlong();
                }
                (_, arguments) => return Err(Error::unexpected("a message", &arguments)),
            }
        }
    }

    async fn ack(&mut self, delivery: u64) -> Result<(), Error> {
        let ack = Arguments::default().longlong(delivery).octet(0);
        self.send(CHANNEL, amqp::BASIC_ACK, &ack).await
    }
}
