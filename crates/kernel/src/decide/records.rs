//! Records: put-if-version, expect and delete.

use super::{Decision, Write};
use crate::command::Answer;
use crate::error::Refusal;
use crate::record::{Key, Put, Record};

pub(super) fn put(stored: Option<Record>, put: &Put) -> Result<Decision, Refusal> {
    let stored_version = stored.map_or(0, |record| record.version);
    if put
        .expect
        .is_some_and(|expected| expected != stored_version)
    {
        return Err(Refusal::VersionMismatch);
    }
    let version = stored_version + 1;
    let record = Record {
        key: put.key.clone(),
        version,
        value: put.value.clone(),
        expires_at: put.expires_at,
    };
    Ok(Decision {
        writes: vec![Write::Put(record)],
        answer: Answer::Put { version },
    })
}

pub(super) fn expect(stored: Option<&Record>, version: u64) -> Result<Decision, Refusal> {
    if stored.map_or(0, |record| record.version) != version {
        return Err(Refusal::VersionMismatch);
    }
    Ok(Decision {
        writes: Vec::new(),
        answer: Answer::AsExpected,
    })
}

pub(super) fn delete(stored: Option<&Record>, key: &Key) -> Decision {
    match stored {
        Some(_) => Decision {
            writes: vec![Write::Delete(key.clone())],
            answer: Answer::Deleted { existed: true },
        },
        None => Decision {
            writes: Vec::new(),
            answer: Answer::Deleted { existed: false },
        },
    }
}
