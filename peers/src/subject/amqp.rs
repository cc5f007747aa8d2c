//! AMQP 0-9-1 frames, as far as a publisher and a consumer need them.
//!
//! Writing appends to a buffer, so that a method, its header and its body leave in one write.

use crate::error::Error;
use crate::wire::Parsed;

pub(super) const GREETING: &[u8] = b"AMQP\x00\x00\x09\x01";
const END: u8 = 0xCE;

/// Class and method.
pub(super) type Method = (u16, u16);
pub(super) const CONNECTION_START: Method = (10, 10);
pub(super) const CONNECTION_START_OK: Method = (10, 11);
pub(super) const CONNECTION_TUNE: Method = (10, 30);
pub(super) const CONNECTION_TUNE_OK: Method = (10, 31);
pub(super) const CONNECTION_OPEN: Method = (10, 40);
pub(super) const CONNECTION_OPEN_OK: Method = (10, 41);
pub(super) const CHANNEL_OPEN: Method = (20, 10);
pub(super) const CHANNEL_OPEN_OK: Method = (20, 11);
pub(super) const QUEUE_DECLARE: Method = (50, 10);
pub(super) const QUEUE_DECLARE_OK: Method = (50, 11);
pub(super) const QUEUE_DELETE: Method = (50, 40);
pub(super) const QUEUE_DELETE_OK: Method = (50, 41);
pub(super) const BASIC_QOS: Method = (60, 10);
pub(super) const BASIC_QOS_OK: Method = (60, 11);
pub(super) const BASIC_CONSUME: Method = (60, 20);
pub(super) const BASIC_CONSUME_OK: Method = (60, 21);
pub(super) const BASIC_PUBLISH: Method = (60, 40);
pub(super) const BASIC_DELIVER: Method = (60, 60);
pub(super) const BASIC_GET: Method = (60, 70);
pub(super) const BASIC_GET_OK: Method = (60, 71);
pub(super) const BASIC_GET_EMPTY: Method = (60, 72);
pub(super) const BASIC_ACK: Method = (60, 80);
pub(super) const CONFIRM_SELECT: Method = (85, 10);
pub(super) const CONFIRM_SELECT_OK: Method = (85, 11);

const BASIC: u16 = 60;
/// In the flags of a header: the delivery mode follows.
const HAS_DELIVERY_MODE: u16 = 1 << 12;
const PERSISTENT: u8 = 2;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Method(Method, Vec<u8>),
    /// Size of the body that follows in one or more frames.
    Header(u64),
    Body(Vec<u8>),
    Heartbeat,
}

pub(super) fn frame(bytes: &[u8]) -> Parsed<Frame> {
    let Some((head, rest)) = bytes.split_at_checked(7) else {
        return Ok(None);
    };
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    let size = usize::try_from(size).map_err(|_| Error::unexpected("a frame that fits", head))?;
    let Some(end) = rest.get(size) else {
        return Ok(None);
    };
    let payload = &rest[..size];
    if *end != END {
        return Err(Error::unexpected("the end of a frame", payload));
    }
    let frame = match head[0] {
        1 => {
            let mut fields = Fields(payload);
            let method = (fields.short()?, fields.short()?);
            Frame::Method(method, fields.0.to_vec())
        }
        2 => {
            let mut fields = Fields(payload);
            let _class_and_weight = fields.long()?;
            Frame::Header(fields.longlong()?)
        }
        3 => Frame::Body(payload.to_vec()),
        8 => Frame::Heartbeat,
        _ => return Err(Error::unexpected("a known frame", head)),
    };
    Ok(Some((frame, 7 + size + 1)))
}

/// Reads the arguments of a method from front to back.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn short(&mut self) -> Result<u16, Error> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn longlong(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn skip_text(&mut self) -> Result<(), Error> {
        let [length] = self.take()?;
        let rest = self.0.get(usize::from(length)..);
        self.0 = rest.ok_or_else(|| Error::unexpected("a text", self.0))?;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (first, rest) = self
            .0
            .split_first_chunk()
            .ok_or_else(|| Error::unexpected("more arguments", self.0))?;
        self.0 = rest;
        Ok(*first)
    }
}

/// The arguments of a method, written one after the other.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<u8>);

impl Arguments {
    pub(super) fn octet(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn short(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn longlong(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn text(mut self, value: &str) -> Self {
        self.0
            .push(u8::try_from(value.len()).expect("our names are short"));
        self.0.extend(value.as_bytes());
        self
    }

    pub(super) fn long_bytes(self, value: &[u8]) -> Self {
        let length = u32::try_from(value.len()).expect("our arguments are short");
        let mut longer = self.long(length);
        longer.0.extend(value);
        longer
    }

    /// A table of names and texts.
    pub(super) fn table(self, entries: &[(&str, &str)]) -> Self {
        let mut table = Self::default();
        for (name, value) in entries {
            table = table.text(name).octet(b'S').long_bytes(value.as_bytes());
        }
        self.long_bytes(&table.0)
    }
}

pub(super) fn method(into: &mut Vec<u8>, channel: u16, method: Method, arguments: &Arguments) {
    let (class, method) = method;
    let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
    payload.extend_from_slice(&arguments.0);
    put_frame(into, 1, channel, &payload);
}

/// A persistent message for a queue: the method, the header and the body.
pub(super) fn publish(into: &mut Vec<u8>, channel: u16, queue: &str, body: &[u8]) {
    let arguments = Arguments::default().short(0).text("").text(queue).octet(0);
    method(into, channel, BASIC_PUBLISH, &arguments);
    let header = Arguments::default()
        .short(BASIC)
        .short(0)
        .longlong(body.len() as u64)
        .short(HAS_DELIVERY_MODE)
        .octet(PERSISTENT);
    put_frame(into, 2, channel, &header.0);
    put_frame(into, 3, channel, body);
}

fn put_frame(into: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    into.push(kind);
    into.extend(channel.to_be_bytes());
    let size = u32::try_from(payload.len()).expect("our frames are short");
    into.extend(size.to_be_bytes());
    into.extend_from_slice(payload);
    into.push(END);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::cut;

    #[test]
    fn frames_may_be_cut_anywhere() {
        let mut bytes = Vec::new();
        let arguments = Arguments::default().text("tag").longlong(42).octet(0);
        method(&mut bytes, 1, BASIC_DELIVER, &arguments);
        let Frame::Method(BASIC_DELIVER, arguments) = cut::everywhere(&bytes, frame) else {
            panic!("not a delivery");
        };
        let mut fields = Fields(&arguments);
        fields.skip_text().unwrap();
        assert_eq!(fields.longlong().unwrap(), 42);
        assert!(fields.long().is_err(), "there is one byte left");
    }

    #[test]
    fn a_message_is_a_method_a_header_and_a_body() {
        let mut bytes = Vec::new();
        publish(&mut bytes, 1, "jobs", b"hi\xCE");
        let (first, used) = frame(&bytes).unwrap().unwrap();
        assert!(matches!(first, Frame::Method(BASIC_PUBLISH, _)));
        let (second, more) = frame(&bytes[used..]).unwrap().unwrap();
        assert_eq!(second, Frame::Header(3));
        let third = cut::everywhere(&bytes[used + more..], frame);
        assert_eq!(third, Frame::Body(b"hi\xCE".to_vec()));
    }

    #[test]
    fn a_frame_without_its_end_is_refused() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, 8, 0, b"");
        assert_eq!(cut::everywhere(&bytes, frame), Frame::Heartbeat);
        bytes[7] = 0;
        assert!(frame(&bytes).is_err());
    }
}
