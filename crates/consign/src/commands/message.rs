//! Messages between agents: signed intents, and the message bus.

mod ack;
mod history;
mod poll;
mod requeue;
mod send;
mod trace;

use clap::Subcommand;

use crate::failure::Exit;

/// The words that a status may be.
const STATES: [&str; 8] = [
    "received",
    "validated",
    "queued",
    "dispatched",
    "delivered",
    "acked",
    "failed",
    "dead_letter",
];

#[derive(Debug, Subcommand)]
pub(crate) enum MessageSubcommand {
    /// Send a signed intent and print the result, or send a message over the bus
    Send(Box<send::Args>),
    /// List the messages of the bus that wait for an agent
    Poll(Box<poll::Args>),
    /// Acknowledge a message of the bus
    Ack(Box<ack::Args>),
    /// List messages of the bus, newest first
    History(Box<history::Args>),
    /// Attempt a dead letter or a failed message again
    Requeue(Box<requeue::Args>),
    /// Show how an intent or a message came to its state
    Trace(Box<trace::Args>),
}

impl MessageSubcommand {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Send(args) => args.run().await,
            Self::Poll(args) => args.run().await,
            Self::Ack(args) => args.run().await,
            Self::History(args) => args.run().await,
            Self::Requeue(args) => args.run().await,
            Self::Trace(args) => args.run().await,
        }
    }
}
