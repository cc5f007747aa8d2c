//! NATS `JetStream`: a work-queue stream in files, pulled one message at a time, each acknowledgement confirmed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{self, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Subscriber};
use futures_util::StreamExt;

use super::{Environment, Subject, client_version};
use crate::connections::Connections;
use crate::error::Error;
use crate::generate::{self, Link, Protocol, Role};
use crate::load::{Load, RoundResult};
use crate::server::{Server, free_port, output};

#[derive(Debug)]
struct Nats {
    program: PathBuf,
    server: Server,
}

pub(super) fn start(environment: &mut Environment) -> Result<Box<dyn Subject>, Error> {
    let folder = environment.folder("nats")?;
    let port = free_port()?;
    let settings = folder.join("server.conf");
    let store = serde_json::to_string(&folder.join("store"))?;
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{\n  store_dir: {store}\n  sync_interval: always\n}}\n"
    );
    fs::write(&settings, text).map_err(Error::io(settings.display().to_string()))?;
    let mut command = Command::new(&environment.tools.nats);
    command.arg("-c").arg(&settings);
    let server = Server::start(command, port, &folder.join("server.log"))?;
    let program = environment.tools.nats.clone();
    Ok(Box::new(Nats { program, server }))
}

impl Subject for Nats {
    fn version(&self) -> Result<String, Error> {
        let printed = output(Command::new(&self.program).arg("--version"))?;
        Ok(format!(
            "{}, {}",
            printed.trim(),
            client_version("async-nats")?
        ))
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

    fn round(&mut self, load: &Load) -> Result<RoundResult, Error> {
        let stream = Stream {
            port: self.server.port,
            name: load.queue(),
        };
        generate::run(&stream, load)
    }
}

/// Longer than a round, so that neither a pull nor a call ends before the round does.
const WAIT_MAX: Duration = Duration::from_mins(2);
/// Requests one message; the request is valid for [`WAIT_MAX`].
const PULL: &str = r#"{"batch":1,"expires":120000000000}"#;
const CONSUMER: &str = "workers";

struct Stream {
    port: u16,
    name: String,
}

impl Stream {
    async fn open(&self) -> Result<Client, Error> {
        let options = ConnectOptions::new().request_timeout(Some(WAIT_MAX));
        let client = options.connect(format!("127.0.0.1:{}", self.port)).await;
        client.map_err(Error::client("connecting"))
    }
}

fn jetstream(client: Client) -> Context {
    let mut context = jetstream::new(client);
    context.set_timeout(WAIT_MAX);
    context
}

impl Protocol for Stream {
    type Link = Connection;

    async fn prepare(&self) -> Result<(), Error> {
        let config = stream::Config {
            name: self.name.clone(),
            subjects: vec![self.name.clone()],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            num_replicas: 1,
            ..stream::Config::default()
        };
        let stream = jetstream(self.open().await?).create_stream(config).await;
        let stream = stream.map_err(Error::client("making a stream"))?;
        let config = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await;
        consumer.map_err(Error::client("making a consumer"))?;
        Ok(())
    }

    async fn clear(&self) -> Result<(), Error> {
        let context = jetstream(self.open().await?);
        let deleted = context.delete_stream(&self.name).await;
        deleted.map_err(Error::client("deleting the stream"))?;
        Ok(())
    }

    async fn connect(&self, _role: Role) -> Result<Connection, Error> {
        let client = self.open().await?;
        let inbox = client.new_inbox();
        let messages = client.subscribe(inbox.clone()).await;
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{CONSUMER}", self.name);
        Ok(Connection {
            jetstream: jetstream(client.clone()),
            client,
            next: next.into(),
            inbox: inbox.into(),
            messages: messages.map_err(Error::client("subscribing"))?,
            subject: self.name.clone().into(),
        })
    }
}

/// Pulls by a plain request to one inbox, and acknowledges by a plain request with a reply. The client's own pull of one
/// message and its confirmed acknowledgement subscribe to a new inbox each time, which is more work for every job than the
/// protocol needs.
struct Connection {
    client: Client,
    jetstream: Context,
    next: async_nats::Subject,
    inbox: async_nats::Subject,
    /// The messages that arrive in the inbox.
    messages: Subscriber,
    subject: async_nats::Subject,
}

impl Link for Connection {
    /// The subject to which the acknowledgement is sent.
    type Claimed = async_nats::Subject;

    async fn publish(&mut self, body: &[u8]) -> Result<(), Error> {
        let body = body.to_vec().into();
        let sent = self.jetstream.publish(self.subject.clone(), body).await;
        let stored = sent.map_err(Error::client("publishing"))?.await;
        stored.map(|_| ()).map_err(Error::client("publishing"))
    }

    async fn claim(&mut self) -> Result<async_nats::Subject, Error> {
        let (next, inbox) = (self.next.clone(), self.inbox.clone());
        let asked = self.client.publish_with_reply(next, inbox, PULL.into());
        asked.await.map_err(Error::client("pulling"))?;
        let message = self.messages.next().await;
        let message = message.ok_or_else(|| Error::Answer("the connection ended".to_owned()))?;
        match (message.status, message.reply) {
            (None, Some(reply)) => Ok(reply),
            (status, _) => Err(Error::Answer(format!("expected a job, got {status:?}"))),
        }
    }

    async fn ack(&mut self, reply: async_nats::Subject) -> Result<(), Error> {
        let answer = self.client.request(reply, "+ACK".into()).await;
        match answer.map_err(Error::client("acknowledging"))?.status {
            None => Ok(()),
            Some(status) => Err(Error::Answer(format!("not acknowledged: {status}"))),
        }
    }
}
