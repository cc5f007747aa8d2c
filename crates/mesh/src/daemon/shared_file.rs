//! Files that members share: pieces in messages, and the file that they are together.
//!
//! A broker stores no files, so a file is sent as messages that fit frames, encrypted and kept like any other. Their `meta`
//! says which file they are a piece of. Invariant: a file is announced and written only when every piece is there, all of one
//! sender, and their bytes have the hash that each of them names.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use consign_store::inbox::{Inbox, ReceivedMessage};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How the canonical `meta` of every piece begins.
pub(super) const PIECE_META: &str = r#"{"file_share":{"#;
/// In base64 it fits a message.
pub(super) const PIECE_BYTES: usize = 33_000;
/// A longer file would occupy queue and inbox for long.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PieceMeta {
    pub(super) file_share: FilePiece,
}

/// What a piece says of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilePiece {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) bytes: u64,
    /// 64 hex digits.
    pub(super) sha256: String,
    /// From 0.
    pub(super) piece: u32,
    pub(super) pieces: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
}

impl FilePiece {
    /// The pieces of a file, with the text of each.
    pub(super) fn of_file(
        id: &str,
        name: &str,
        content: &[u8],
        message: Option<&str>,
    ) -> Vec<(Self, String)> {
        let mut parts: Vec<&[u8]> = content.chunks(PIECE_BYTES).collect();
        if parts.is_empty() {
            parts.push(b"");
        }
        let pieces = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let sha256 = HEXLOWER.encode(&Sha256::digest(content));
        let piece = |(piece, part): (u32, &[u8])| {
            let piece = Self {
                id: id.to_owned(),
                name: name.to_owned(),
                bytes: content.len() as u64,
                sha256: sha256.clone(),
                piece,
                pieces,
                message: message.map(str::to_owned),
            };
            // A message is never empty.
            (piece, format!("{}\n", BASE64_STANDARD.encode(part)))
        };
        (0..).zip(parts).map(piece).collect()
    }

    /// The piece that a message is.
    pub(super) fn of_meta(meta: Option<&str>) -> Option<Self> {
        let meta = meta.filter(|meta| meta.starts_with(PIECE_META))?;
        let parsed: PieceMeta = serde_json::from_str(meta).ok()?;
        let piece = parsed.file_share;
        let is_valid = (1..=PIECES_MAX).contains(&piece.pieces) && piece.piece < piece.pieces;
        is_valid.then_some(piece)
    }

    /// The id of the message with a piece.
    pub(super) fn message_id(id: &str, piece: u32) -> String {
        format!("{id}.{piece}")
    }
}

const PIECES_MAX: u32 = 128;

/// A file whose pieces are all there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SharedFile {
    pub(super) piece: FilePiece,
    pub(super) first: ReceivedMessage,
    pub(super) content: Vec<u8>,
}

impl SharedFile {
    /// Reads a file from the pieces in the inbox; `None` if it is not complete.
    pub(super) fn read(inbox: &Inbox, id: &str) -> Result<Option<Self>, consign_store::Error> {
        let Some(first) = inbox.find(&FilePiece::message_id(id, 0))? else {
            return Ok(None);
        };
        let Some(piece) = FilePiece::of_meta(first.meta.as_deref()) else {
            return Ok(None);
        };
        let mut content = Vec::new();
        for number in 0..piece.pieces {
            let Some(part) = inbox.find(&FilePiece::message_id(id, number))? else {
                return Ok(None);
            };
            let of_part = FilePiece::of_meta(part.meta.as_deref());
            let expected = FilePiece {
                piece: number,
                ..piece.clone()
            };
            let is_ours = of_part == Some(expected) && part.sender_pubkey == first.sender_pubkey;
            let bytes = part.body.as_deref().map(str::trim);
            let bytes = bytes.and_then(|text| BASE64_STANDARD.decode(text).ok());
            let Some(bytes) = bytes.filter(|_| is_ours) else {
                return Ok(None);
            };
            content.extend(bytes);
        }
        let is_whole = HEXLOWER.encode(&Sha256::digest(&content)) == piece.sha256;
        Ok(is_whole.then_some(Self {
            piece,
            first,
            content,
        }))
    }
}
