//! The words of `daemon outbox requeue`: which row, and which id the new row gets.
//!
//! `--new-id` has two meanings: alone it names the row, and beside a row it is the new id. Invariant: exactly one row is named.

#[cfg(test)]
mod tests;

use crate::client_message_id::ClientMessageId;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequeueCommand {
    /// The id of the row that is retired.
    pub row_id: String,
    /// `None` if the daemon mints one.
    pub new_client_message_id: Option<ClientMessageId>,
    /// Another body for the new row.
    pub patch_payload: Option<String>,
}

/// Why the words are no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequeueError {
    #[error("name the row: requeue ROW_ID, --id ROW_ID or --new-id ROW_ID")]
    NoRow,
    #[error("{0} is given twice, or contradicts another word")]
    Repeated(String),
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("unknown word {0}")]
    Unknown(String),
    #[error("the new id must be 1 to 128 printable ASCII characters without spaces")]
    InvalidId,
}

impl RequeueCommand {
    /// Reads the words after `requeue`.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, RequeueError> {
        let mut words = words.iter().map(AsRef::as_ref);
        let (mut row, mut new_id, mut new_client_id, mut patch) = (None, None, None, None);
        let mut is_auto = false;
        while let Some(word) = words.next() {
            let slot = match word {
                "--auto" => {
                    is_auto = true;
                    continue;
                }
                "--id" => &mut row,
                "--new-id" => &mut new_id,
                "--new-client-id" => &mut new_client_id,
                "--patch-payload" => &mut patch,
                flag if flag.starts_with("--") => {
                    return Err(RequeueError::Unknown(flag.to_owned()));
                }
                row_id => {
                    put(&mut row, "ROW_ID", row_id)?;
                    continue;
                }
            };
            let value = words
                .next()
                .ok_or_else(|| RequeueError::NoValue(word.to_owned()))?;
            put(slot, word, value)?;
        }
        if row.is_none() {
            row = new_id.take();
        } else if new_client_id.is_some() && new_id.is_some() {
            return Err(RequeueError::Repeated("--new-id".to_owned()));
        }
        let chosen = new_client_id.or(new_id);
        if is_auto && chosen.is_some() {
            return Err(RequeueError::Repeated("--auto".to_owned()));
        }
        let new_client_message_id = chosen.map(|id| ClientMessageId::parse(&id)).transpose();
        Ok(Self {
            row_id: row.ok_or(RequeueError::NoRow)?,
            new_client_message_id: new_client_message_id.map_err(|_| RequeueError::InvalidId)?,
            patch_payload: patch,
        })
    }
}

fn put(slot: &mut Option<String>, name: &str, value: &str) -> Result<(), RequeueError> {
    if slot.replace(value.to_owned()).is_some() {
        return Err(RequeueError::Repeated(name.to_owned()));
    }
    Ok(())
}
