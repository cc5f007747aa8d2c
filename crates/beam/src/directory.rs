//! Agents, their keys, access rules and delegations.

pub(crate) mod access_rules;
pub(crate) mod agent_index;
pub(crate) mod agent_keys;
mod change;
pub(crate) mod delegations;
mod intent_stats;
mod listing;
mod proof;
pub mod records;
mod register;
pub(crate) mod registration;
mod removal;
mod updates;

use consign_engine::Error;

pub(crate) use access_rules::{ALLOWED_FROM_CHARS_MAX, INTENT_CHARS_MAX};
pub(crate) use agent_keys::{KeyRevocation, KeyRotation, RevokedAgentKey};
pub(crate) use delegations::{DelegationRequest, SCOPE_CHARS_MAX};
pub(crate) use intent_stats::AnswerStats;
pub(crate) use listing::{AgentFilter, PAGE_AGENTS_MAX};
pub(crate) use proof::{AgentProof, NonceSignature, TimedSignature};
pub(crate) use register::RegistrationOrigin;
pub(crate) use registration::{Registration, RegistrationInput};
pub(crate) use updates::{ConfigUpdate, FieldUpdate, ProfileUpdate};

use crate::beam_id::BeamId;
use crate::directory::records::{Agent, next_number};
use crate::relay::RelayError;
use crate::service::Beam;

impl Beam {
    /// An agent of this directory. Text that is no Beam-ID names none; a ledger need not accept it as a key.
    pub async fn agent(&self, beam_id: &str) -> Result<Option<Agent>, Error> {
        if BeamId::parse(beam_id).is_err() {
            return Ok(None);
        }
        let found = self.engine().load::<Agent>(Agent::key(beam_id)).await?;
        Ok(found.map(|found| found.value))
    }

    /// The next number of a sequence, never given twice.
    pub(crate) async fn next_number(&self, sequence: &str) -> Result<u64, Error> {
        let _one_at_a_time = self.inner.numbering.lock().await;
        next_number(self.engine(), sequence).await
    }

    /// A nonce for a frame that has none.
    pub(crate) fn new_nonce(&self) -> String {
        let mut bytes = self.engine().entropy().draw().to_be_bytes();
        // A random UUID.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex = data_encoding::HEXLOWER.encode(&bytes);
        let groups = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        groups.join("-")
    }

    /// Counts an intent of this sender.
    pub(crate) fn charge_sender(&self, sender: &str) -> Result<(), RelayError> {
        if self.inner.sender_rate.charge(sender) {
            Ok(())
        } else {
            Err(RelayError::RateLimited(sender.to_owned()))
        }
    }
}
