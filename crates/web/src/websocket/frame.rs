//! The heads of frames: reading those of a client, writing those of the server.
//!
//! Invariant: a frame that breaks the protocol is refused before its payload is read: reserved bits (no extension is
//! ever negotiated), unknown opcodes, frames without a mask, control frames in parts or too long, and lengths that are
//! not in their shortest form.

use super::close::CONTROL_BYTES_MAX;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;
/// Two bytes, a long length, a mask.
const HEAD_BYTES_MAX: usize = 14;
/// Without a mask.
const OWN_HEAD_BYTES_MAX: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    const fn of(first: u8) -> Option<Self> {
        Some(match first & OPCODE {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    const fn number(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    pub(super) const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) is_final: bool,
    pub(super) opcode: Opcode,
    pub(super) mask: [u8; 4],
    pub(super) length: u64,
}

/// Collects the bytes of a head.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    bytes: [u8; HEAD_BYTES_MAX],
    filled: usize,
}

impl HeadReader {
    /// Takes bytes from the front of `input` until the head is complete. The error is a reason for the client.
    pub(super) fn read(&mut self, input: &mut &[u8]) -> Result<Option<FrameHead>, &'static str> {
        loop {
            let missing = self.length_needed().saturating_sub(self.filled);
            if missing == 0 {
                break;
            }
            let taken = missing.min(input.len());
            if taken == 0 {
                return Ok(None);
            }
            let (front, rest) = input.split_at(taken);
            self.bytes[self.filled..][..taken].copy_from_slice(front);
            self.filled += taken;
            *input = rest;
            if self.filled >= 2 {
                self.check_start()?;
            }
        }
        let head = self.parse()?;
        self.filled = 0;
        Ok(Some(head))
    }

    /// Two bytes tell how long the head is.
    fn length_needed(&self) -> usize {
        if self.filled < 2 {
            return 2;
        }
        let length = match self.bytes[1] & !MASKED {
            LENGTH_16 => 2,
            LENGTH_64 => 8,
            _ => 0,
        };
        2 + length + 4
    }

    fn check_start(&self) -> Result<(), &'static str> {
        let [first, second, ..] = self.bytes;
        if first & RESERVED != 0 {
            return Err("Reserved bits are set");
        }
        let opcode = Opcode::of(first).ok_or("Unknown opcode")?;
        if second & MASKED == 0 {
            return Err("A frame is not masked");
        }
        if opcode.is_control() && first & FIN == 0 {
            return Err("A control frame is fragmented");
        }
        if opcode.is_control() && usize::from(second & !MASKED) > CONTROL_BYTES_MAX {
            return Err("A control frame is too long");
        }
        Ok(())
    }

    fn parse(&self) -> Result<FrameHead, &'static str> {
        let [first, second, ..] = self.bytes;
        let (length, shortest) = match second & !MASKED {
            LENGTH_16 => (self.number::<2>(), u64::from(LENGTH_16)),
            LENGTH_64 => (self.number::<8>(), 1 << 16),
            short => (u64::from(short), 0),
        };
        if length < shortest || length > i64::MAX.cast_unsigned() {
            return Err("Invalid length of a frame");
        }
        let mut mask = [0; 4];
        mask.copy_from_slice(&self.bytes[self.filled - 4..self.filled]);
        Ok(FrameHead {
            is_final: first & FIN != 0,
            opcode: Opcode::of(first).ok_or("Unknown opcode")?,
            mask,
            length,
        })
    }

    /// The long length, in network order.
    fn number<const BYTES: usize>(&self) -> u64 {
        let bytes = &self.bytes[2..2 + BYTES];
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// The head of a frame from the server: never masked, never a fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnHead {
    bytes: [u8; OWN_HEAD_BYTES_MAX],
    length: usize,
}

impl OwnHead {
    pub(super) fn new(opcode: Opcode, payload_length: usize) -> Self {
        let mut bytes = [0; OWN_HEAD_BYTES_MAX];
        bytes[0] = FIN | opcode.number();
        let long = payload_length as u64;
        let length = if let Ok(short) = u8::try_from(payload_length)
            && short < LENGTH_16
        {
            bytes[1] = short;
            2
        } else if let Ok(middle) = u16::try_from(payload_length) {
            bytes[1] = LENGTH_16;
            bytes[2..4].copy_from_slice(&middle.to_be_bytes());
            4
        } else {
            bytes[1] = LENGTH_64;
            bytes[2..10].copy_from_slice(&long.to_be_bytes());
            10
        };
        Self { bytes, length }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<Option<FrameHead>, &'static str> {
        HeadReader::default().read(&mut bytes)
    }

    fn masked(start: &[u8]) -> Vec<u8> {
        [start, &[1, 2, 3, 4]].concat()
    }

    #[test]
    fn heads_of_every_length_are_read_byte_by_byte() {
        for length in [0, 1, 125, 126, 0xffff, 0x1_0000, 0x12_3456_789a_usize] {
            let mut bytes = OwnHead::new(Opcode::Text, length).as_bytes().to_vec();
            bytes[1] |= MASKED;
            let bytes = masked(&bytes);
            let mut reader = HeadReader::default();
            let (last, front) = bytes.split_last().unwrap();
            for byte in front {
                assert_eq!(reader.read(&mut &[*byte][..]), Ok(None));
            }
            let mut rest = &[*last, 99][..];
            let head = reader.read(&mut rest).unwrap().unwrap();
            assert_eq!((head.length, rest), (length as u64, &[99][..]));
            assert_eq!((head.opcode, head.mask), (Opcode::Text, [1, 2, 3, 4]));
            assert!(head.is_final);
        }
    }

    #[test]
    fn heads_that_break_the_protocol_are_refused() {
        for reserved in [0x40, 0x20, 0x10] {
            assert_eq!(read(&[0x81 | reserved, 0x80]), Err("Reserved bits are set"));
        }
        for opcode in [3, 7, 11, 15] {
            assert_eq!(read(&[FIN | opcode, 0x80]), Err("Unknown opcode"));
        }
        assert_eq!(read(&[0x81, 0]), Err("A frame is not masked"));
        assert_eq!(read(&[0x09, 0x80]), Err("A control frame is fragmented"));
        assert_eq!(read(&[0x89, 0xfe]), Err("A control frame is too long"));
        for start in [
            &[0x81, 0xfe, 0, 125][..],
            &[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            &[0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0],
        ] {
            let refused = read(&masked(start));
            assert_eq!(refused, Err("Invalid length of a frame"), "{start:?}");
        }
    }
}
