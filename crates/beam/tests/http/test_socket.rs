//! A WebSocket of a client.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::identity::Identity;

/// A connected client.
pub(crate) struct TestSocket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl TestSocket {
    pub(crate) fn new(stream: WebSocketStream<MaybeTlsStream<TcpStream>>) -> Self {
        Self { stream }
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_text(message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: String) {
        self.stream.send(Message::text(text)).await.unwrap();
    }

    /// Sends without reading. False if the server no longer takes it.
    pub(crate) async fn try_send_text(&mut self, text: String) -> bool {
        let sent = self.stream.send(Message::text(text));
        let sent = tokio::time::timeout(Duration::from_secs(1), sent).await;
        matches!(sent, Ok(Ok(())))
    }

    /// The next text message; `None` when the socket is closed. Fails after ten seconds.
    pub(crate) async fn next_json(&mut self) -> Option<Value> {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(10), self.stream.next());
            match next.await.expect("a message arrives within ten seconds") {
                Some(Ok(Message::Text(text))) => {
                    return Some(serde_json::from_str(&text).unwrap());
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The code and the reason of the closing frame.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(10), self.stream.next());
            match next.await.expect("the socket is closed within ten seconds") {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Answers the next intent with this payload, and returns its frame.
    pub(crate) async fn answer(&mut self, identity: &Identity, payload: &Value) -> Value {
        let message = self.next_json().await.unwrap();
        assert_eq!(message["type"], "intent", "{message}");
        let frame = message["frame"].clone();
        let nonce = frame["nonce"].as_str().unwrap();
        self.send(&identity.result(nonce, payload)).await;
        frame
    }
}
