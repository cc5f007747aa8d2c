//! The driver over a pipe, with a clock that the test moves.

use std::future::poll_fn;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::super::WAITING_MESSAGES_MAX;
use super::super::channel::{SocketMessages, SocketSender};
use super::super::message_reader::SocketMessage;
use super::super::tests::client::frame;
use super::*;

struct Driven {
    client: DuplexStream,
    sender: SocketSender,
    messages: SocketMessages,
    end: JoinHandle<SocketEnd>,
}

/// A driver whose stream holds `bytes` in each direction.
fn drive(bytes: usize) -> Driven {
    let options = Options::new();
    let (client, stream) = duplex(bytes);
    let (channel, sender, messages) = SocketChannel::new(options);
    let mut driver = SocketDriver::new(stream, channel, &options);
    Driven {
        client,
        sender,
        messages,
        end: tokio::spawn(async move { poll_fn(|cx| driver.poll(cx)).await }),
    }
}

async fn bytes<const N: usize>(client: &mut DuplexStream) -> [u8; N] {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test(start_paused = true)]
async fn a_quiet_client_gets_pings_and_is_closed_after_75_seconds() {
    let mut driven = drive(1024);
    let began = Instant::now();
    for nth in 1..=2 {
        assert_eq!(bytes(&mut driven.client).await, [0x89, 0]);
        assert_eq!(began.elapsed(), nth * Duration::from_secs(30));
    }
    let close: [u8; 22] = bytes(&mut driven.client).await;
    assert_eq!(
        (&close[..2], &close[4..]),
        (&[0x88, 20][..], &b"No answer to pings"[..])
    );
    assert_eq!(began.elapsed(), Duration::from_secs(75));
    assert!(matches!(driven.end.await.unwrap(), SocketEnd::Closed(_)));
    assert_eq!(began.elapsed(), Duration::from_secs(78));
    assert_eq!(driven.messages.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn any_answer_keeps_a_client() {
    let mut driven = drive(1024);
    for _ in 0..20 {
        assert_eq!(bytes(&mut driven.client).await, [0x89, 0]);
        driven.client.write_all(&frame(0x8a, b"")).await.unwrap();
    }
    assert!(!driven.end.is_finished());
    drop(driven.client);
    assert!(matches!(driven.end.await.unwrap(), SocketEnd::Lost));
    assert!(driven.sender.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_is_not_the_silence_of_the_client() {
    let mut driven = drive(64);
    let discard = async |client: &mut DuplexStream| {
        let mut ping = [0; 2];
        let _ = timeout(Duration::ZERO, client.read_exact(&mut ping)).await;
    };
    let mut sent = 0_usize;
    // Until nothing more is read.
    while timeout(
        Duration::from_secs(1),
        driven.client.write_all(&frame(0x81, b"a")),
    )
    .await
    .is_ok()
    {
        sent += 1;
    }
    assert!((WAITING_MESSAGES_MAX..100).contains(&sent), "{sent}");
    for _ in 0..10 {
        sleep(Duration::from_mins(1)).await;
        discard(&mut driven.client).await;
    }
    assert!(!driven.end.is_finished());
    for _ in 0..sent {
        let message = driven.messages.next().await;
        assert_eq!(message, Some(SocketMessage::Text("a".to_owned())));
    }
    sleep(Duration::from_secs(74)).await;
    assert!(!driven.end.is_finished(), "the silence begins now");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_progress_ends_after_30_seconds() {
    let mut driven = drive(64);
    driven.sender.try_send("x".repeat(1000)).unwrap();
    sleep(Duration::from_secs(29)).await;
    let _: [u8; 64] = bytes(&mut driven.client).await;
    sleep(Duration::from_secs(29)).await;
    assert!(!driven.end.is_finished(), "there was progress");
    sleep(Duration::from_secs(2)).await;
    assert!(matches!(driven.end.await.unwrap(), SocketEnd::Stalled));
}

#[tokio::test(start_paused = true)]
async fn a_close_behind_a_blocked_message_ends_in_time() {
    let driven = drive(64);
    driven.sender.try_send("x".repeat(1000)).unwrap();
    driven.sender.close(CloseCode::NORMAL, "");
    let began = Instant::now();
    assert!(matches!(driven.end.await.unwrap(), SocketEnd::Closed(_)));
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn only_the_latest_of_many_pings_is_answered_while_writes_are_blocked() {
    let mut driven = drive(64);
    driven.sender.try_send("x".repeat(100)).unwrap();
    sleep(Duration::from_millis(1)).await;
    for ping in [b"1", b"2", b"3"] {
        driven.client.write_all(&frame(0x89, ping)).await.unwrap();
        sleep(Duration::from_millis(1)).await;
    }
    let message: [u8; 102] = bytes(&mut driven.client).await;
    assert_eq!(message[..2], [0x81, 100]);
    assert_eq!(bytes(&mut driven.client).await, [0x8a, 1, b'3']);
    driven.client.write_all(&frame(0x88, b"")).await.unwrap();
    assert_eq!(bytes(&mut driven.client).await, [0x88, 0]);
    assert!(matches!(driven.end.await.unwrap(), SocketEnd::Closed(_)));
}
