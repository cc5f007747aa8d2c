//! `RabbitMQ`: durable queues, persistent messages, publisher confirms, one unacknowledged message per consumer.
//!
//! An acknowledgement has no answer in this protocol, so the broker's own sync of it is not waited for.
//! The client, lapin, runs a thread for each connection.

use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use consign_testkit::unprivileged::User;
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, ConnectionProperties, Consumer};

use super::{Environment, Subject, client_version};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Load, RoundResult};
use crate::server::{Server, free_port, output};

/// Not the program on the path: that one requires the packaged service's user and folders.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Not the one on the path, for the same reason.
const CONTROL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

/// The broker, and the name service that the Erlang runtime would otherwise start and leave behind.
#[derive(Debug)]
pub(super) struct Broker {
    server: Server,
    _names: Server,
    folder: PathBuf,
}

pub(super) fn serve(environment: &Environment) -> Result<Broker, Error> {
    let folder = environment.folder("rabbitmq")?;
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
    let names = Server::start(names, names_port, &environment.path.join("epmd.log"))?;
    let server = Server::start(command, port, &environment.path.join("rabbitmq.log"))?;
    Ok(Broker {
        server,
        _names: names,
        folder,
    })
}

pub(super) fn start_quorum(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    start(environment, "quorum")
}

pub(super) fn start_classic(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    start(environment, "classic")
}

fn start(environment: &mut Environment, kind: &'static str) -> Result<Box<dyn Subject>, Error> {
    let broker = environment.rabbitmq()?;
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
        // It writes a secret into its home folder, even though this call does not use it.
        let printed = output(control.arg("version").env("HOME", &self.broker.folder))?;
        let client = client_version("lapin")?;
        Ok(format!("RabbitMQ {}, {client}", printed.trim()))
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

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
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

/// Of a message that is written to disk.
const PERSISTENT: u8 = 2;

impl Queue {
    async fn open(&self) -> Result<(lapin::Connection, Channel), Error> {
        // No heartbeat: a round is shorter than any sensible interval.
        let port = self.port;
        let address = format!("amqp://guest:guest@127.0.0.1:{port}/%2f?heartbeat=0");
        let properties = ConnectionProperties::default();
        let connection = lapin::Connection::connect(&address, properties).await;
        let connection = connection.map_err(Error::client("connecting"))?;
        let channel = connection.create_channel().await;
        let channel = channel.map_err(Error::client("opening a channel"))?;
        Ok((connection, channel))
    }

    fn name(&self) -> ShortString {
        self.name.as_str().into()
    }
}

impl Protocol for Queue {
    type Link = Connection;

    async fn prepare(&self) -> Result<(), Error> {
        let (_connection, channel) = self.open().await?;
        let mut arguments = FieldTable::default();
        let kind = AMQPValue::LongString(self.kind.into());
        arguments.insert("x-queue-type".into(), kind);
        let options = QueueDeclareOptions::durable();
        let queue = channel.queue_declare(self.name(), options, arguments).await;
        queue.map_err(Error::client("declaring the queue"))?;
        Ok(())
    }

    async fn clear(&self) -> Result<(), Error> {
        let (_connection, channel) = self.open().await?;
        let deleted = channel.queue_delete(self.name(), QueueDeleteOptions::default());
        deleted.await.map_err(Error::client("deleting the queue"))?;
        Ok(())
    }

    async fn connect(&self, role: Role) -> Result<Connection, Error> {
        let (connection, channel) = self.open().await?;
        let mut consumer = None;
        if role == Role::Consumer {
            let limited = channel.basic_qos(1, BasicQosOptions::default()).await;
            limited.map_err(Error::client("setting the prefetch"))?;
            let options = BasicConsumeOptions::default();
            let arguments = FieldTable::default();
            let subscribed = channel.basic_consume(self.name(), "".into(), options, arguments);
            consumer = Some(subscribed.await.map_err(Error::client("subscribing"))?);
        } else {
            let select = channel.confirm_select(ConfirmSelectOptions::default());
            select
                .await
                .map_err(Error::client("asking for confirmations"))?;
        }
        Ok(Connection {
            _inner: connection,
            channel,
            queue: self.name(),
            properties: BasicProperties::default().with_delivery_mode(PERSISTENT),
            consumer,
        })
    }
}

struct Connection {
    /// Closed when it is dropped.
    _inner: lapin::Connection,
    channel: Channel,
    queue: ShortString,
    properties: BasicProperties,
    /// The broker sends messages to a consumer; a client that cycles requests each message instead, so that none waits
    /// unused at a client.
    consumer: Option<Consumer>,
}

impl Link for Connection {
    /// The tag of a delivery.
    type Claimed = u64;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        let sent = self.channel.basic_publish(
            "".into(),
            self.queue.clone(),
            BasicPublishOptions::default(),
            body,
            self.properties.clone(),
        );
        let sent = sent.await.map_err(Error::client("publishing"))?;
        match sent.await.map_err(Error::client("a confirmation"))? {
            Confirmation::Ack(None) => Ok(()),
            other @ (Confirmation::Ack(Some(_))
            | Confirmation::Nack(_)
            | Confirmation::NotRequested) => {
                Err(Error::Answer(format!("the broker confirmed by {other:?}")))
            }
        }
    }

    async fn claim(&mut self) -> Result<u64, Error> {
        if let Some(consumer) = &mut self.consumer {
            let delivery = consumer.next().await;
            let delivery =
                delivery.ok_or_else(|| Error::Answer("the subscription ended".to_owned()))?;
            let delivery = delivery.map_err(Error::client("a delivery"))?;
            return Ok(delivery.delivery_tag);
        }
        loop {
            let options = BasicGetOptions::default();
            let message = self.channel.basic_get(self.queue.clone(), options).await;
            if let Some(message) = message.map_err(Error::client("asking for a message"))? {
                return Ok(message.delivery.delivery_tag);
            }
        }
    }

    async fn ack(&mut self, delivery: u64) -> Result<(), Error> {
        let options = BasicAckOptions::default();
        let sent = self.channel.basic_ack(delivery, options).await;
        sent.map_err(Error::client("acknowledging"))
    }
}
