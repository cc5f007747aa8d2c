//! Clients that break a limit or a rule of the protocol.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::client::frame;
use super::*;

const TEXT: u8 = 0x81;

/// Sends `bytes` to an echo server; returns how it closes.
async fn closed_by(options: Options, bytes: &[u8]) -> (u16, String) {
    let running = serve_echo(options);
    let mut client = RawClient::connect(running.addr).await;
    assert!(client.head.starts_with("HTTP/1.1 101"), "{}", client.head);
    client.stream.write_all(bytes).await.unwrap();
    client.closed().await
}

#[tokio::test]
async fn a_message_that_is_too_long_closes_with_1009() {
    let long = vec![b'x'; MESSAGE_BYTES_MAX + 1];
    let expected = (1009, "The message is too long".to_owned());
    assert_eq!(
        closed_by(Options::new(), &frame(TEXT, &long)).await,
        expected
    );
    // In fragments, and of a client that sends much more before it looks.
    let half = vec![b'x'; MESSAGE_BYTES_MAX / 2 + 1];
    let mut bytes = [frame(0x01, &half), frame(0x80, &half)].concat();
    bytes.extend(frame(TEXT, &vec![b'y'; 4 << 20]));
    assert_eq!(closed_by(Options::new(), &bytes).await, expected);
    let small = Options {
        message_bytes_max: 10,
        ..Options::new()
    };
    assert_eq!(
        closed_by(small, &frame(TEXT, b"12345678901")).await,
        expected
    );
}

#[tokio::test]
async fn broken_frames_close_with_the_code_of_their_rule() {
    let mut unmasked = vec![TEXT, 2];
    unmasked.extend(b"hi");
    // What a client would send if compression had been negotiated.
    let compressed = frame(0xc1, &[0xca, 0xc8, 0x04, 0x00]);
    for (bytes, code, reason) in [
        (frame(0x82, b"x"), 1003, "Binary messages are not accepted"),
        (compressed, 1002, "Reserved bits are set"),
        (frame(0xa1, b""), 1002, "Reserved bits are set"),
        (unmasked, 1002, "A frame is not masked"),
        (frame(0x83, b""), 1002, "Unknown opcode"),
        (frame(TEXT, b"\xc3\x28"), 1007, "The text is not UTF-8"),
        (frame(0x88, &[3]), 1002, "Half a close code"),
    ] {
        let closed = closed_by(Options::new(), &bytes).await;
        assert_eq!(closed, (code, reason.to_owned()));
    }
}

#[tokio::test]
async fn floods_of_fragments_and_control_frames_close_with_1008() {
    let fragments = frame(0x01, b"x")
        .into_iter()
        .chain(frame(0x00, b"").repeat(FRAGMENTS_MAX));
    let closed = closed_by(Options::new(), &fragments.collect::<Vec<u8>>()).await;
    assert_eq!(closed, (1008, "Too many fragments".to_owned()));
    for first in [0x89, 0x8a] {
        let frames = frame(first, b"x").repeat(CONTROL_FRAMES_MAX + 1);
        let closed = closed_by(Options::new(), &frames).await;
        assert_eq!(closed, (1008, "Too many control frames".to_owned()));
    }

    let allowed = [
        frame(0x01, b"x"),
        frame(0x00, b"y").repeat(FRAGMENTS_MAX - 2),
        frame(0x80, b"z"),
    ];
    let running = serve_echo(Options::new());
    let mut client = RawClient::connect(running.addr).await;
    client.stream.write_all(&allowed.concat()).await.unwrap();
    let (first, payload) = client.next().await.unwrap();
    assert_eq!((first, payload.len()), (TEXT, FRAGMENTS_MAX));
}

#[tokio::test]
async fn a_client_that_closes_gets_its_code_back() {
    let payload = [&4001_u16.to_be_bytes()[..], b"done"].concat();
    let closed = closed_by(Options::new(), &frame(0x88, &payload)).await;
    assert_eq!(closed, (4001, "done".to_owned()));
}

#[tokio::test]
async fn a_slow_reader_is_refused_and_closed_by_its_owner() {
    let (report, mut reports) = mpsc::channel(1);
    let running = serve(listen(), Options::new(), async move |sender, _messages| {
        let message: Arc<str> = "x".repeat(32 << 10).into();
        let mut sent = 0_usize;
        while sender.try_send(Arc::clone(&message)).is_ok() {
            sent += 1;
            tokio::task::yield_now().await;
        }
        report
            .send((sent, Arc::strong_count(&message)))
            .await
            .unwrap();
        sender.close_now(CloseCode::TRY_AGAIN_LATER, "Slow reader");
        sender.closed().await;
    });
    let mut client = RawClient::connect_narrow(running.addr).await;
    let (sent, held) = timeout(PATIENCE, reports.recv()).await.unwrap().unwrap();
    // Beyond what the kernel took, the queue holds its limit: eight messages, and one that is being written.
    assert!(
        sent >= 8 && held <= 2 + QUEUE_BYTES_MAX / (32 << 10),
        "{sent} {held}"
    );
    assert_eq!(client.closed().await, (1013, "Slow reader".to_owned()));
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let (ended, mut ends) = mpsc::channel(1);
    let options = Options {
        write_timeout: Duration::from_millis(200),
        queue_bytes_max: 64 << 20,
        ..Options::new()
    };
    let running = serve(listen(), options, async move |sender, mut messages| {
        sender.try_send("x".repeat(32 << 20)).unwrap();
        assert_eq!(messages.next().await, None);
        ended.send(()).await.unwrap();
    });
    let client = RawClient::connect_narrow(running.addr).await;
    timeout(PATIENCE, ends.recv()).await.unwrap().unwrap();
    drop(client);
}

#[tokio::test]
async fn a_client_that_answers_pings_stays_and_a_silent_one_is_closed() {
    let options = Options {
        ping_interval: Duration::from_millis(50),
        silence_timeout: Duration::from_millis(400),
        ..Options::new()
    };
    let running = serve_echo(options);
    let mut alive = RawClient::connect(running.addr).await;
    let mut silent = RawClient::connect(running.addr).await;
    let began = Instant::now();
    while began.elapsed() < 2 * options.silence_timeout {
        assert_eq!(alive.next().await, Some((0x89, Vec::new())));
        alive.send(0x8a, b"").await;
    }
    let expected = (1008, "No answer to pings".to_owned());
    assert_eq!(silent.closing().await, expected);
    alive.send(TEXT, b"still here").await;
    while alive.next().await.unwrap().0 != TEXT {}
}

#[tokio::test]
async fn the_time_limits_of_requests_do_not_apply_to_a_socket() {
    let short = Duration::from_millis(50);
    let listen = server::Options {
        head_timeout: short,
        first_head_timeout: short,
        stall_timeout: short,
        ..listen()
    };
    let running = serve(listen, Options::new(), echo);
    let mut client = RawClient::connect(running.addr).await;
    for _ in 0..3 {
        sleep(4 * short).await;
        client.echo("quiet").await;
    }
}
