//! Why a socket is closed: code and reason, as in a closing frame.

use std::fmt;

/// The longest payload of a control frame.
pub(super) const CONTROL_BYTES_MAX: usize = 125;
const REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// The code of a closing frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCode(pub u16);

impl CloseCode {
    pub const NORMAL: Self = Self(1000);
    /// The server shuts down, or another connection replaces this one.
    pub const GOING_AWAY: Self = Self(1001);
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// A kind of message that the server does not take.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// A text message that is not UTF-8.
    pub const INVALID_DATA: Self = Self(1007);
    pub const POLICY_VIOLATION: Self = Self(1008);
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The server is overloaded, or the client reads too slowly.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// Whether a client may send it.
    const fn is_sendable(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The content of a closing frame. Without a code it has no payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseReason {
    pub code: Option<CloseCode>,
    pub text: String,
}

impl CloseReason {
    /// The text is cut to what a closing frame can carry.
    pub(super) fn new(code: CloseCode, text: &str) -> Self {
        let end = text.floor_char_boundary(REASON_BYTES_MAX);
        Self {
            code: Some(code),
            text: text[..end].to_owned(),
        }
    }

    /// Reads the payload of a client's closing frame.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, Self> {
        let Some((code, text)) = payload.split_first_chunk() else {
            let is_empty = payload.is_empty();
            return is_empty
                .then(Self::default)
                .ok_or_else(|| Self::new(CloseCode::PROTOCOL_ERROR, "Half a close code"));
        };
        let code = CloseCode(u16::from_be_bytes(*code));
        if !code.is_sendable() {
            return Err(Self::new(CloseCode::PROTOCOL_ERROR, "Invalid close code"));
        }
        match str::from_utf8(text) {
            Ok(text) => Ok(Self::new(code, text)),
            Err(_) => Err(Self::new(
                CloseCode::INVALID_DATA,
                "The reason is not UTF-8",
            )),
        }
    }

    pub(super) fn payload(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        if let Some(CloseCode(code)) = self.code {
            payload.extend_from_slice(&code.to_be_bytes());
            payload.extend_from_slice(self.text.as_bytes());
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let reason = CloseReason::new(CloseCode::NORMAL, &"ü".repeat(100));
        assert_eq!(reason.text, "ü".repeat(61));
        assert_eq!(reason.payload().len(), 2 + 122);
        assert_eq!(CloseReason::parse(&reason.payload()), Ok(reason));
    }

    #[test]
    fn closing_frames_that_break_the_rules_are_answered_by_a_code_of_their_own() {
        let answer = |payload: &[u8]| CloseReason::parse(payload).map_err(|close| close.code);
        assert_eq!(answer(&[]), Ok(CloseReason::default()));
        assert!(answer(&4000_u16.to_be_bytes()).is_ok());
        assert_eq!(answer(&[3]), Err(Some(CloseCode::PROTOCOL_ERROR)));
        for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000_u16] {
            let refused = answer(&code.to_be_bytes());
            assert_eq!(refused, Err(Some(CloseCode::PROTOCOL_ERROR)), "{code}");
        }
        assert_eq!(answer(&[3, 232, 255]), Err(Some(CloseCode::INVALID_DATA)));
    }
}
