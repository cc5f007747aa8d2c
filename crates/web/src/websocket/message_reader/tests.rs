//! Frames of a client, whole, in pieces, and broken.

use proptest::prelude::*;

use super::super::close::CONTROL_BYTES_MAX;
use super::super::tests::client::frame;
use super::*;

const TEXT: u8 = 0x81;
const BINARY: u8 = 0x82;
const TEXT_BEGIN: u8 = 0x01;
const CONTINUE: u8 = 0x00;
const CONTINUE_END: u8 = 0x80;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

fn options() -> Options {
    Options {
        message_bytes_max: 100,
        fragments_max: 4,
        ..Options::new()
    }
}

fn text(text: &str) -> Received {
    Received::Message(SocketMessage::Text(text.to_owned()))
}

/// What is received until the input ends, or the code of the error.
fn read_by(
    reader: &mut MessageReader,
    mut input: &[u8],
) -> (Vec<Received>, Option<(Option<CloseCode>, bool)>) {
    let mut received = Vec::new();
    loop {
        match reader.next(&mut input) {
            Ok(Some(next)) => received.push(next),
            Ok(None) => return (received, None),
            Err(close) => return (received, Some((close.code, reader.is_framing_lost()))),
        }
    }
}

fn read(frames: &[(u8, &[u8])]) -> (Vec<Received>, Option<(Option<CloseCode>, bool)>) {
    let bytes: Vec<u8> = frames
        .iter()
        .flat_map(|(first, payload)| frame(*first, payload))
        .collect();
    read_by(&mut MessageReader::new(&options()), &bytes)
}

#[test]
fn control_frames_come_between_the_fragments_of_a_message() {
    let (received, error) = read(&[
        (TEXT_BEGIN, b"one "),
        (PING, b"p"),
        (CONTINUE, "zw\u{f6}".as_bytes()),
        (PONG, b""),
        (CONTINUE_END, b"lf"),
        (TEXT, b""),
        (CLOSE, b""),
    ]);
    let expected = [
        Received::Ping(b"p".to_vec()),
        Received::Pong,
        text("one zw\u{f6}lf"),
        text(""),
        Received::Close(CloseReason::default()),
    ];
    assert_eq!((&received[..], error), (&expected[..], None));
}

#[test]
fn each_broken_rule_has_its_code() {
    let long = [b'x'; 101];
    let half = [b'x'; 51];
    let too_big = CloseCode::MESSAGE_TOO_BIG;
    let protocol = CloseCode::PROTOCOL_ERROR;
    for (frames, code) in [
        (&[(TEXT, &long[..])][..], too_big),
        (&[(TEXT_BEGIN, &half), (CONTINUE_END, &half)], too_big),
        (&[(CONTINUE_END, b"x")], protocol),
        (&[(TEXT_BEGIN, b"x"), (TEXT, b"y")], protocol),
        (&[(BINARY, b"x")], CloseCode::UNSUPPORTED_DATA),
        (&[(TEXT, b"\xff")], CloseCode::INVALID_DATA),
        (
            &[
                (TEXT_BEGIN, b""),
                (CONTINUE, b""),
                (CONTINUE, b""),
                (CONTINUE, b""),
                (CONTINUE, b""),
            ],
            CloseCode::POLICY_VIOLATION,
        ),
    ] {
        let (received, error) = read(frames);
        assert_eq!(
            (received, error),
            (vec![], Some((Some(code), false))),
            "{frames:?}"
        );
    }
    assert_eq!(read(&[(0xc1, b"x")]).1, Some((Some(protocol), true)));
}

#[test]
fn after_an_error_only_the_closing_frame_is_looked_for() {
    let bytes = [
        frame(TEXT, &[b'x'; 5000]),
        frame(PING, b"p"),
        frame(TEXT, b"later"),
        frame(CLOSE, &1000_u16.to_be_bytes()),
    ]
    .concat();
    let mut reader = MessageReader::new(&options());
    let mut input = &bytes[..];
    assert!(reader.next(&mut input).is_err());
    let (received, error) = read_by(&mut reader, input);
    let close = CloseReason::new(CloseCode::NORMAL, "");
    assert_eq!((received, error), (vec![Received::Close(close)], None));
    assert_eq!(
        reader.control.capacity() + reader.message.map_or(0, |_| 1),
        0
    );
}

#[test]
fn an_announced_length_reserves_no_memory() {
    let mut reader = MessageReader::new(&Options::new());
    let bytes = frame(TEXT, &vec![b'x'; 60_000]);
    assert_eq!(reader.next(&mut &bytes[..10]), Ok(None));
    assert!(reader.message.unwrap().bytes.capacity() < 100);
}

proptest! {
    #[test]
    fn messages_arrive_alike_however_they_are_cut(
        words in prop::collection::vec("[a-z\u{fc}]{0,9}", 1..4),
        pings in prop::collection::vec(any::<bool>(), 3),
        cut in 1_usize..40,
    ) {
        let mut bytes = Vec::new();
        for (nth, word) in words.iter().enumerate() {
            let begin = if nth == 0 { TEXT_BEGIN } else { CONTINUE };
            let fin = if nth + 1 == words.len() { 0x80 } else { 0 };
            bytes.extend(frame(begin | fin, word.as_bytes()));
            if pings[nth] {
                bytes.extend(frame(PING, word.as_bytes()));
            }
        }
        let mut reader = MessageReader::new(&options());
        let mut received = Vec::new();
        for part in bytes.chunks(cut) {
            let (more, error) = read_by(&mut reader, part);
            prop_assert_eq!(error, None);
            received.extend(more);
        }
        prop_assert!(received.contains(&text(&words.concat())));
        let pings = pings[..words.len()].iter().filter(|ping| **ping).count();
        prop_assert_eq!(received.len(), 1 + pings);
    }

    #[test]
    fn any_bytes_end_in_messages_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut reader = MessageReader::new(&options());
        let (_, error) = read_by(&mut reader, &bytes);
        if error.is_some() {
            let _ = read_by(&mut reader, &bytes);
        }
        prop_assert!(reader.control.len() <= CONTROL_BYTES_MAX);
        prop_assert!(reader.message.is_none_or(|message| message.bytes.len() <= 100));
    }
}
