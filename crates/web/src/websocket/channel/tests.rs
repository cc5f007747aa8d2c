//! The limits of both queues.

use super::*;

fn channel() -> (Arc<SocketChannel>, SocketSender, SocketMessages) {
    SocketChannel::new(Options {
        queue_messages_max: 3,
        queue_bytes_max: 10,
        waiting_messages_max: 2,
        message_bytes_max: 10,
        ..Options::new()
    })
}

#[test]
fn a_queue_is_limited_by_messages_and_by_bytes() {
    let (channel, sender, _messages) = channel();
    for _ in 0..3 {
        assert_eq!(sender.try_send("a"), Ok(()));
    }
    assert_eq!(sender.try_send("a"), Err(SendRefusal::Full));
    // A message counts until it is written.
    assert_eq!(channel.front().unwrap().as_bytes(), b"a");
    assert_eq!(sender.try_send("a"), Err(SendRefusal::Full));
    channel.written();
    assert_eq!(sender.try_send("123456789"), Err(SendRefusal::Full));
    assert_eq!(sender.try_send_binary([1; 8]), Ok(()));
    for _ in 0..3 {
        channel.written();
    }
    assert!(channel.front().is_none());
    assert_eq!(
        sender.try_send("x".repeat(99)),
        Ok(()),
        "the queue is empty"
    );
    assert_eq!(sender.try_send("a"), Err(SendRefusal::Full));

    let text: Arc<str> = "shared".into();
    channel.written();
    sender.try_send(Arc::clone(&text)).unwrap();
    assert_eq!(Arc::strong_count(&text), 2, "not copied");
}

#[tokio::test]
async fn a_close_is_seen_once_and_ends_sending() {
    let (channel, sender, mut messages) = channel();
    sender.try_send("a").unwrap();
    let waiting = tokio::spawn({
        let sender = sender.clone();
        async move { sender.closed().await }
    });
    tokio::task::yield_now().await;
    sender.close_now(CloseCode::POLICY_VIOLATION, "Too slow");
    sender.close(CloseCode::NORMAL, "");
    assert_eq!(sender.try_send("b"), Err(SendRefusal::Closed));
    assert!(sender.is_closed() && channel.front().is_none());
    waiting.await.unwrap();
    sender.closed().await;
    let expected = CloseReason::new(CloseCode::POLICY_VIOLATION, "Too slow");
    assert_eq!(channel.watch(Waker::noop()), Some(expected));
    assert_eq!(channel.watch(Waker::noop()), None);
    channel.end();
    assert_eq!(messages.next().await, None);
}

#[tokio::test]
async fn received_messages_wait_up_to_their_limit_and_beyond_the_end() {
    let (channel, _sender, mut messages) = channel();
    let text = |text: &str| SocketMessage::Text(text.to_owned());
    channel.deliver(text("1234567890"));
    assert!(!channel.has_room(), "bytes");
    assert_eq!(messages.next().await, Some(text("1234567890")));
    assert!(channel.has_room());
    for _ in 0..2 {
        channel.deliver(text(""));
    }
    assert!(!channel.has_room(), "messages");
    channel.begin_close();
    channel.deliver(text("late"));
    assert_eq!(messages.next().await, Some(text("")));
    assert_eq!(messages.next().await, Some(text("")));
    assert_eq!(messages.next().await, None);
}

#[test]
fn messages_that_no_handler_takes_are_discarded() {
    let (channel, _sender, messages) = channel();
    drop(messages);
    channel.deliver(SocketMessage::Text("x".repeat(99)));
    assert!(channel.has_room());
}

#[test]
fn an_empty_queue_gives_its_memory_back() {
    let (channel, _sender, _messages) = SocketChannel::new(Options::new());
    let sender = SocketSender(Arc::clone(&channel));
    for _ in 0..200 {
        sender.try_send("a").unwrap();
    }
    for _ in 0..200 {
        channel.written();
    }
    assert!(channel.lock().queue.capacity() <= PLACES_KEPT);
}
