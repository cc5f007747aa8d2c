//! One hash per meaning: what an Idempotency-Key compares.
//!
//! Invariant: member order, white space and the way a string is escaped do not matter, any other
//! difference does, and nothing well-formed is refused: of duplicate members the last counts, big
//! numbers count as written, and a lone surrogate is hashed as its own three-byte sequence.
//! These bytes are kept in stores, so the encoding must never change; a new one needs a new name.

use super::Defect;
use super::scan::{JsonToken, Scanner};
use super::text::{Piece, Quoted};

const DOMAIN: &[u8] = b"consign.fingerprint.v1\0";

/// The fingerprint of exactly one JSON value.
pub fn fingerprint(text: &[u8]) -> Result<[u8; 32], Defect> {
    // Depth costs a few bytes of heap per level here and no stack, so it needs no limit.
    let mut scanner = Scanner::new(text, usize::MAX)?;
    let mut encoder = Encoder::default();
    while let Some(token) = scanner.next()? {
        encoder.take(token);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(DOMAIN).update(&encoder.encoded);
    Ok(*hasher.finalize().as_bytes())
}

/// Writes values as tag, length, content, and folds each container into its hash as it closes.
///
/// Every encoding tells its own end, so no two sequences of values share one.
#[derive(Default)]
struct Encoder {
    encoded: Vec<u8>,
    open: Vec<OpenEncoding>,
    members: Vec<EncodedMember>,
}

struct OpenEncoding {
    encoded_from: usize,
    members_from: usize,
    object: bool,
}

/// Offsets into the encoding: the key, its value, and where the value ends.
struct EncodedMember {
    key_at: usize,
    value_at: usize,
    end: usize,
}

impl Encoder {
    fn take(&mut self, token: JsonToken<'_>) {
        match token {
            JsonToken::ObjectStart => return self.start(true),
            JsonToken::ArrayStart => return self.start(false),
            JsonToken::Key(key) => return self.key(key),
            JsonToken::ObjectEnd | JsonToken::ArrayEnd => self.end(),
            JsonToken::String(quoted) => self.string(quoted),
            JsonToken::Number(number) => {
                self.encoded.push(b'#');
                push_length(&mut self.encoded, number.len());
                self.encoded.extend_from_slice(number.as_bytes());
            }
            JsonToken::True => self.encoded.push(b't'),
            JsonToken::False => self.encoded.push(b'f'),
            JsonToken::Null => self.encoded.push(b'n'),
        }
        if self.open.last().is_some_and(|open| open.object) {
            let member = self.members.last_mut().expect("a value follows its key");
            member.end = self.encoded.len();
        }
    }

    fn start(&mut self, object: bool) {
        self.open.push(OpenEncoding {
            encoded_from: self.encoded.len(),
            members_from: self.members.len(),
            object,
        });
    }

    fn key(&mut self, key: Quoted<'_>) {
        let key_at = self.encoded.len();
        push_wtf8(&mut self.encoded, key);
        let value_at = self.encoded.len();
        self.members.push(EncodedMember {
            key_at,
            value_at,
            end: value_at,
        });
    }

    fn string(&mut self, quoted: Quoted<'_>) {
        self.encoded.push(b'"');
        let length = quoted.pieces().map(|piece| piece.wtf8_len()).sum();
        push_length(&mut self.encoded, length);
        push_wtf8(&mut self.encoded, quoted);
    }

    fn end(&mut self) {
        let open = self.open.pop().expect("the scanner closes what it opened");
        let (tag, digest) = if open.object {
            (b'{', self.object_digest(open.members_from))
        } else {
            (b'[', blake3::hash(&self.encoded[open.encoded_from..]))
        };
        self.members.truncate(open.members_from);
        self.encoded.truncate(open.encoded_from);
        self.encoded.push(tag);
        self.encoded.extend_from_slice(digest.as_bytes());
    }

    fn object_digest(&mut self, members_from: usize) -> blake3::Hash {
        let encoded = &self.encoded;
        let key = |member: &EncodedMember| &encoded[member.key_at..member.value_at];
        let members = &mut self.members[members_from..];
        // Ordering: the sort is stable, so the last of equal keys is the last one sent.
        members.sort_by(|a, b| key(a).cmp(key(b)));

        let mut hasher = blake3::Hasher::new();
        let mut length = Vec::new();
        for (index, member) in members.iter().enumerate() {
            let next = members.get(index + 1);
            if next.is_some_and(|next| key(next) == key(member)) {
                continue;
            }
            length.clear();
            push_length(&mut length, key(member).len());
            hasher.update(&length);
            hasher.update(&encoded[member.key_at..member.end]);
        }
        hasher.finalize()
    }
}

/// Seven bits to a byte, lowest first, the high bit meaning that more follow.
fn push_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    out.push(length.to_le_bytes()[0]);
}

/// UTF-8, with a lone surrogate as the three bytes its code point would have.
fn push_wtf8(out: &mut Vec<u8>, quoted: Quoted<'_>) {
    for piece in quoted.pieces() {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Char(char) => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            Piece::Lone(unit) => {
                let [high, low] = unit.to_be_bytes();
                out.push(0xe0 | high >> 4);
                out.push(0x80 | (high & 0x0f) << 2 | low >> 6);
                out.push(0x80 | low & 0x3f);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> [u8; 32] {
        fingerprint(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_same_meaning_has_the_same_fingerprint() {
        for (one, other) in [
            (
                r#"{"a":1,"b":[true,null]}"#,
                " { \"b\" : [ true , null ] , \"a\" : 1 }\n",
            ),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":2,"b":0,"\u0061":1}"#, r#"{"b":0,"a":1}"#),
            (r#""\u00e9\/\ud83d\ude00""#, "\"é/😀\""),
            (r#"{"\n":1}"#, r#"{"\u000A":1}"#),
            (r#""\uD800""#, r#""\ud800""#),
        ] {
            assert_eq!(of(one), of(other), "{one} {other}");
        }
    }

    #[test]
    fn different_meanings_have_different_fingerprints() {
        let texts = [
            "null",
            "true",
            "false",
            "0",
            "-0",
            "0.0",
            "1",
            "1.0",
            "1e0",
            "10",
            "\"\"",
            "\"0\"",
            "[]",
            "{}",
            "[[]]",
            "[{}]",
            "[null]",
            "[0]",
            "[\"\"]",
            "[1,0]",
            "[0,1]",
            "[10]",
            "[[1],0]",
            "[[1,0]]",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "\"null\"",
            "\"\\u0000\"",
            r#"{"":""}"#,
            r#"{"a":"b"}"#,
            r#"{"b":"a"}"#,
            r#"{"ab":""}"#,
            r#"["a","b"]"#,
            r#"["ab"]"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":{"b":2}}"#,
            r#"{"a":1}"#,
            r#"{"a":2}"#,
            r#""\ud800""#,
            r#""\ud801""#,
            r#""\udc00""#,
            r#""\ud800\udc00""#,
            r#""\udc00\ud800""#,
            r#""\ufffd""#,
            r#"{"\ud800":1}"#,
            r#"{"\udc00":1}"#,
        ];
        for (index, one) in texts.iter().enumerate() {
            for other in &texts[..index] {
                assert_ne!(of(one), of(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn depth_and_size_are_no_reason_to_refuse() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert!(fingerprint(deep.as_bytes()).is_ok());
        let long = format!("\"{}\"", "x".repeat(100_000));
        assert_ne!(of(&long), of(&long.replace("xx\"", "xy\"")));
        assert_eq!(fingerprint(b"[1"), Err(Defect::Truncated));
    }

    #[test]
    fn stored_fingerprints_stay_comparable() {
        let hash = blake3::Hash::from_bytes(of(r#"{"goal":"mail","payload":{"n":[1,2.50,"é"]}}"#));
        assert_eq!(
            hash.to_hex().as_str(),
            "84f6eb26c108dc2d9c3300392f2204c8593820abcfc189f319d03c4b0865f1d5"
        );
    }
}
