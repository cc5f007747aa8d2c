//! Frames of a WebSocket: any bytes in any parts give the same messages within the limits, and a message that was
//! framed by the rules arrives as it was.
//!
//! Input: the length of a part, then the bytes of a client, which are also the content of a message.

use consign_web::websocket::{
    BinaryMessages, CloseReason, MessageReader, Options, Received, SocketMessage,
};

/// Small enough for an input to reach them.
const MESSAGE_BYTES_MAX: usize = 300;
const FRAGMENTS_MAX: usize = 5;
const CONTROL_BYTES_MAX: usize = 125;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const PING: &[u8] = b"ping";

type Event = Result<Received, CloseReason>;

pub(crate) fn run(bytes: &[u8]) {
    let [part, bytes @ ..] = bytes else {
        return;
    };
    let part = usize::from(*part).max(1);
    for binary in [BinaryMessages::Refused, BinaryMessages::Delivered] {
        let whole = events(bytes, bytes.len().max(1), binary);
        assert_eq!(events(bytes, part, binary), whole, "the parts count");
        assert_eq!(events(bytes, 1, binary), whole, "the parts count");
    }
    arrives(bytes, part);
}

/// What a reader makes of the bytes, if they arrive in parts of this length.
fn events(bytes: &[u8], part: usize, binary: BinaryMessages) -> Vec<Event> {
    let mut reader = MessageReader::new(&Options {
        message_bytes_max: MESSAGE_BYTES_MAX,
        fragments_max: FRAGMENTS_MAX,
        binary,
        ..Options::new()
    });
    let mut events = Vec::new();
    let mut has_failed = false;
    for mut input in bytes.chunks(part) {
        loop {
            let next = reader.next(&mut input);
            assert!(reader.held_bytes() <= MESSAGE_BYTES_MAX + CONTROL_BYTES_MAX);
            match next {
                Ok(None) => {
                    assert!(input.is_empty(), "bytes are left");
                    break;
                }
                Ok(Some(received)) => {
                    within_limits(&received, binary);
                    let is_close = matches!(received, Received::Close(_));
                    assert!(is_close || !has_failed, "a message after an error");
                    events.push(Ok(received));
                }
                Err(reason) => {
                    assert!(reason.code.is_some() && !reason.text.is_empty());
                    has_failed = true;
                    events.push(Err(reason));
                    if reader.is_framing_lost() {
                        return events;
                    }
                }
            }
        }
    }
    events
}

fn within_limits(received: &Received, binary: BinaryMessages) {
    match received {
        Received::Message(SocketMessage::Text(text)) => assert!(text.len() <= MESSAGE_BYTES_MAX),
        Received::Message(SocketMessage::Binary(bytes)) => {
            assert_eq!(binary, BinaryMessages::Delivered);
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        }
        Received::Ping(payload) => assert!(payload.len() <= CONTROL_BYTES_MAX),
        Received::Pong => {}
        Received::Close(reason) => assert!(reason.text.len() <= CONTROL_BYTES_MAX),
    }
}

/// Sends the bytes as one message, in frames of `part` bytes with a ping between them.
fn arrives(bytes: &[u8], part: usize) {
    let content = &bytes[..bytes.len().min(MESSAGE_BYTES_MAX)];
    let text = str::from_utf8(content).ok();
    let part = part.max(content.len().div_ceil(FRAGMENTS_MAX)).max(1);
    let mut parts: Vec<&[u8]> = content.chunks(part).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    for (index, payload) in parts.iter().enumerate() {
        let opcode = match (index, text) {
            (0, Some(_)) => 1,
            (0, None) => 2,
            _ => 0,
        };
        let is_last = index + 1 == parts.len();
        push_frame(&mut sent, is_last, opcode, payload);
        if !is_last {
            push_frame(&mut sent, true, 9, PING);
            expected.push(Ok(Received::Ping(PING.to_vec())));
        }
    }
    let message = match text {
        Some(text) => SocketMessage::Text(text.to_owned()),
        None => SocketMessage::Binary(content.to_vec()),
    };
    expected.push(Ok(Received::Message(message)));
    assert_eq!(events(&sent, part, BinaryMessages::Delivered), expected);
}

/// A frame as RFC 6455 describes it, written without the code under test.
fn push_frame(out: &mut Vec<u8>, is_final: bool, opcode: u8, payload: &[u8]) {
    out.push(u8::from(is_final) << 7 | opcode);
    let length = u16::try_from(payload.len()).expect("a message of the allowed length");
    if let Ok(short @ 0..=125) = u8::try_from(length) {
        out.push(0x80 | short);
    } else {
        out.push(0xfe);
        out.extend(length.to_be_bytes());
    }
    out.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    out.extend(masked.map(|(byte, mask)| byte ^ mask));
}
