//! A socket whose client is in the same process: for the simulation, which decides when a message arrives.

use std::sync::Arc;

use super::Options;
use super::channel::{SocketChannel, SocketMessages, SocketSender};
use super::message_reader::SocketMessage;
use super::outgoing::Payload;

/// The client, in the place of the driver and the network. Dropping it disconnects it.
#[derive(Debug)]
pub struct InMemoryClient(Arc<SocketChannel>);

impl InMemoryClient {
    /// An open socket, with the two halves that its handler gets.
    pub fn connect(options: Options) -> (Self, SocketSender, SocketMessages) {
        let (channel, sender, messages) = SocketChannel::new(options);
        (Self(channel), sender, messages)
    }

    /// The next text message that the server has queued.
    pub fn take_text(&self) -> Option<Arc<str>> {
        loop {
            let payload = self.0.front()?;
            self.0.written();
            if let Payload::Text(text) = payload {
                return Some(text);
            }
        }
    }

    /// Whether the server has begun to close the socket.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Sends a text message, which arrives at once.
    pub fn send_text(&self, text: String) {
        self.0.deliver(SocketMessage::Text(text));
    }
}

impl Drop for InMemoryClient {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_in_memory_receives_sends_and_disconnects() {
        let (client, sender, mut messages) = InMemoryClient::connect(Options::new());
        sender.try_send("first").unwrap();
        sender.try_send("second").unwrap();
        assert_eq!(client.take_text().as_deref(), Some("first"));
        assert_eq!(client.take_text().as_deref(), Some("second"));
        assert_eq!(client.take_text(), None);
        client.send_text("reply".to_owned());
        let received = messages.next().await;
        assert!(matches!(received, Some(SocketMessage::Text(text)) if text == "reply"));
        assert!(!client.is_closed());
        drop(client);
        assert!(sender.is_closed());
        assert!(messages.next().await.is_none());
    }
}
