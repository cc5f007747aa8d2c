//! Messages between agents: signed intents, and the message bus.

mod ack;
mod errors;
mod history;
mod list;
mod overview;
mod poll;
mod requeue;
mod send;
mod stats;
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
    /// Count the messages of the bus by state and by agent
    Stats(Box<stats::Args>),
    /// List intents of the directory, newest first
    List(Box<list::Args>),
    /// Show figures of the intents of the last hours
    Overview(Box<overview::Args>),
    /// Show the errors of the intents of the last hours
    Errors(Box<errors::Args>),
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
            Self::Stats(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Overview(args) => args.run().await,
            Self::Errors(args) => args.run().await,
            Self::Trace(args) => args.run().await,
        }
    }
}
