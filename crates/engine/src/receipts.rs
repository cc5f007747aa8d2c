//! Receipts: built from the settling fact when first asked for, then kept.
//!
//! Invariant: whoever asks again gets the same bytes. A settlement undone by an operator and reached again is another
//! settlement, with a receipt of its own.

use consign_kernel::command::Command;
use consign_kernel::error::Refusal;
use consign_kernel::fact::Fact;
use consign_kernel::intent::Intent;
use consign_kernel::limits;
use consign_kernel::plant::{self, Plant};
use consign_kernel::receipt::{Statement, sha256_hex};
use consign_kernel::record::{self, Kind};
use consign_kernel::state::Cause;

use crate::{Engine, Error};

impl Engine {
    /// The signed receipt of a settled intent, as one JSON document.
    pub async fn receipt(&self, intent: &Intent) -> Result<String, Error> {
        let mut intent = intent.clone();
        let settling = loop {
            let settling = self.settling(&intent).await?;
            if intent.last_fact.is_none_or(|last| last == settling.seq) {
                break settling;
            }
            // An operator settled it anew since the row was read; together they would tell of neither settlement.
            let now = self.inner.store.intent(intent.id).await?;
            intent = now.ok_or(Error::NotSettled)?;
        };
        let intent = &intent;
        let key = record::Key {
            kind: Kind::Receipt,
            owner: String::new(),
            name: if plant::on(Plant::StaleReceipt) {
                intent.id.to_string()
            } else {
                format!("{}.{}", intent.id, settling.seq.0)
            },
        };
        if let Some(kept) = self.record(key.clone()).await? {
            return Ok(kept.value);
        }
        let document = self
            .inner
            .signer
            .sign(&statement(intent, &settling))
            .map_err(|refusal| Error::Internal(refusal.to_string()))?;
        let put = record::Put {
            key: key.clone(),
            value: document.clone(),
            expires_at: Some(self.now().plus(limits::FACT_RETENTION_US)),
            expect: Some(0),
        };
        match self.apply(None, Command::Put(put)).await {
            Ok(_) => Ok(document),
            // Somebody asked at the same moment; theirs is the one that is kept.
            Err(Error::Refused(Refusal::VersionMismatch)) => {
                let kept = self.record(key).await?;
                kept.map(|record| record.value)
                    .ok_or_else(|| Error::Internal("a kept receipt is gone".to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    async fn settling(&self, intent: &Intent) -> Result<Fact, Error> {
        if !intent.profile.profile().is_terminal(intent.state) {
            return Err(Error::NotSettled);
        }
        let store = &self.inner.store;
        let settling = store.last_fact_to(intent.seq, intent.state).await?;
        settling.ok_or(Error::NotSettled)
    }
}

fn statement(intent: &Intent, settling: &Fact) -> Statement {
    let profile = intent.profile.profile();
    Statement {
        id: format!("rcp_{}_{}", intent.id, settling.seq.0),
        intent: intent.id.to_string(),
        face: profile.face.name().to_owned(),
        namespace: intent.namespace.clone(),
        goal: intent.goal.clone(),
        state: profile
            .word(intent.state, intent.cause)
            .unwrap_or(intent.state.name())
            .to_owned(),
        cause: (intent.cause != Cause::None).then(|| intent.cause.name().to_owned()),
        attempts: intent.attempts,
        payload_sha256: sha256_hex(intent.payload.as_bytes()),
        result_sha256: intent
            .result
            .as_ref()
            .map(|result| sha256_hex(result.body.as_bytes())),
        created_at: intent.created_at.0,
        settled_at: settling.at.0,
        worker: intent.holder.clone(),
        fact: i64::try_from(settling.seq.0).unwrap_or(i64::MAX),
        issuer: "consign".to_owned(),
    }
}
