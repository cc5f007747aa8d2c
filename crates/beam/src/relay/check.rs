//! The checks of an intent, in the order that the protocol prescribes. A refused intent leaves no trace, so its nonce
//! stays free.
//!
//! A frame cannot use up the limit of its sender if its signature is not valid, or if it may have been recorded by somebody
//! else, because it is too old or its nonce is stored. It is counted for the address that it came from instead.

use consign_engine::{Error, Versioned};
use consign_kernel::plant::{self, Plant};
use consign_kernel::record::Kind;

use crate::acl;
use crate::beam_id::BeamId;
use crate::directory::records::{AclList, Agent, DelegationList};
use crate::frame::IntentFrame;
use crate::keys::BeamPublicKey;
use crate::relay::{HOPS_MAX, Ingress, RelayError, nonce_key};
use crate::service::Beam;
use crate::signed_text;
use crate::timestamp;

/// The longest sender, recipient, intent or nonce.
const NAME_BYTES_MAX: usize = 255;

/// What the checks found out.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) from: String,
    /// The key that verified the frame, for the recipient.
    pub(crate) sender_key: String,
    pub(crate) is_local_sender: bool,
    /// See [`Agent::since_us`]; zero for a sender of another directory.
    pub(crate) sender_since_us: i64,
    /// The agent that sends in the name of the sender.
    pub(crate) acting: Option<String>,
    /// The recipient, if this directory knows it.
    pub(crate) recipient: Option<Agent>,
}

/// The records that the checks need, from one read.
#[derive(Debug, Default)]
struct Parties {
    /// The agent whose key signs: the sender, or one that sends in its name.
    signer: Option<Agent>,
    sender: Option<Agent>,
    recipient: Option<Agent>,
    /// Who may send what to the recipient.
    rules: AclList,
}

impl Beam {
    pub(super) async fn check_intent(
        &self,
        frame: &IntentFrame,
        ingress: &Ingress,
        address: Option<&str>,
    ) -> Result<Checked, RelayError> {
        if ingress.hops() > HOPS_MAX && !plant::on(Plant::EndlessRelay) {
            let text = format!("Federation hop limit exceeded ({HOPS_MAX})");
            return Err(RelayError::BadRequest(text));
        }
        for (name, text) in [
            ("from", frame.from()),
            ("to", frame.to()),
            ("intent", frame.intent()),
            ("nonce", frame.nonce()),
        ] {
            if !is_storable(text) {
                let text =
                    format!("{name} has more than {NAME_BYTES_MAX} bytes or a control character");
                return Err(RelayError::BadRequest(text));
            }
        }
        if plant::on(Plant::ChargeBeforeSignature) {
            self.charge_sender(frame.from())?;
        }
        let acting = match ingress {
            Ingress::Socket { beam_id, .. } if beam_id != frame.from() => {
                let allowed = self.check_delegation(frame, beam_id).await;
                self.or_charged(allowed, frame, address)?;
                Some(beam_id.clone())
            }
            Ingress::Http | Ingress::Federation { .. } | Ingress::Socket { .. } => None,
        };
        let signer = acting.as_deref().unwrap_or(frame.from());
        let parties = self.parties(signer, frame.from(), frame.to()).await?;
        let checked = self
            .check_sender(frame, ingress, acting, parties.signer)
            .await;
        let mut checked = self.or_charged(checked, frame, address)?;
        checked.sender_since_us = parties.sender.map_or(0, |sender| sender.since_us);
        let at = timestamp::parse(frame.timestamp());
        let is_current = at.is_some_and(|at| timestamp::is_current(at, self.engine().wall()));
        if !plant::on(Plant::ChargeBeforeSignature) {
            self.charge(frame, is_current, address).await?;
        }
        if let Some(recipient) = parties.recipient {
            check_acl(frame, &parties.rules)?;
            checked.recipient = Some(recipient);
        }
        let payload = frame.payload_value();
        let catalog = self
            .settings()
            .catalog
            .check(frame.intent(), payload.as_ref());
        catalog.map_err(|refusal| RelayError::BadRequest(refusal.to_string()))?;
        if at.is_none() {
            let text = "Invalid timestamp format";
            return Err(RelayError::BadRequest(text.to_owned()));
        }
        if !is_current {
            let text = "Timestamp outside allowed replay window (5 minutes)";
            return Err(RelayError::BadRequest(text.to_owned()));
        }
        Ok(checked)
    }

    /// Counts a frame whose signature is valid: for its sender if it is new, and otherwise for the address, if there is one.
    async fn charge(
        &self,
        frame: &IntentFrame,
        is_current: bool,
        address: Option<&str>,
    ) -> Result<(), RelayError> {
        let is_new = is_current
            && self
                .engine()
                .first_use(nonce_key(frame.nonce()))
                .await?
                .is_none();
        if is_new {
            return self.charge_sender(frame.from());
        }
        self.charge_address(frame, address)
    }

    fn charge_address(&self, frame: &IntentFrame, address: Option<&str>) -> Result<(), RelayError> {
        match address {
            Some(address) if !self.inner.uncharged_rate.charge(address) => {
                Err(RelayError::RateLimited(frame.from().to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Counts a frame for its address if nothing proves that its sender sent it.
    fn or_charged<T>(
        &self,
        proven: Result<T, RelayError>,
        frame: &IntentFrame,
        address: Option<&str>,
    ) -> Result<T, RelayError> {
        if matches!(
            proven,
            Err(RelayError::BadRequest(_) | RelayError::Forbidden(_))
        ) {
            self.charge_address(frame, address)?;
        }
        proven
    }

    async fn parties(&self, signer: &str, from: &str, to: &str) -> Result<Parties, Error> {
        let mut agents = vec![signer, from, to];
        agents.sort_unstable();
        agents.dedup();
        agents.retain(|id| BeamId::parse(id).is_ok());
        let mut keys: Vec<_> = agents.into_iter().map(Agent::key).collect();
        if BeamId::parse(to).is_ok() {
            keys.push(AclList::key(to));
        }
        let mut parties = Parties::default();
        for record in self.engine().records_by_key(keys).await? {
            if record.key.kind == Kind::BeamAcl {
                parties.rules = Versioned::<AclList>::read(record)?.value;
                continue;
            }
            let agent = Versioned::<Agent>::read(record)?.value;
            if agent.beam_id == to {
                parties.recipient = Some(agent.clone());
            }
            if agent.beam_id == from {
                parties.sender = Some(agent.clone());
            }
            if agent.beam_id == signer {
                parties.signer = Some(agent);
            }
        }
        Ok(parties)
    }

    /// Finds the key of the sender and verifies the signature with it.
    async fn check_sender(
        &self,
        frame: &IntentFrame,
        ingress: &Ingress,
        acting: Option<String>,
        local: Option<Agent>,
    ) -> Result<Checked, RelayError> {
        let from = frame.from();
        let signer = acting.as_deref().unwrap_or(from);
        let is_local_sender = local.is_some();
        let key = match (&local, ingress) {
            (Some(agent), _) => agent.active_key().map(|key| key.public_key.clone()),
            (None, Ingress::Federation { source, .. }) => {
                self.federated_key(signer, source).await?
            }
            (None, Ingress::Http | Ingress::Socket { .. }) => None,
        };
        let Some(sender_key) = key else {
            let text = format!("Sender {from} is not registered");
            return Err(RelayError::BadRequest(text));
        };
        // An API key that was replaced since the socket opened proves nothing.
        let by_api_key = match (ingress, &local) {
            (
                Ingress::Socket {
                    api_key_hash: Some(presented),
                    ..
                },
                Some(agent),
            ) => agent.api_key_hash.as_ref() == Some(presented),
            _ => false,
        };
        if !by_api_key {
            let key = BeamPublicKey::parse(&sender_key);
            if !key.is_ok_and(|key| signed_text::verify_intent(frame, &key)) {
                let text = "Signature verification failed".to_owned();
                return Err(RelayError::BadRequest(text));
            }
        }
        Ok(Checked {
            from: from.to_owned(),
            sender_key,
            is_local_sender,
            sender_since_us: 0,
            acting,
            recipient: None,
        })
    }

    async fn check_delegation(&self, frame: &IntentFrame, socket: &str) -> Result<(), RelayError> {
        let list = self
            .engine()
            .load::<DelegationList>(DelegationList::key(frame.from()))
            .await?;
        let allows =
            list.is_some_and(|list| list.value.allows(socket, frame.intent(), self.now_ms()));
        if allows {
            return Ok(());
        }
        Err(RelayError::Forbidden(format!(
            "No active delegation allows {socket} to send {} for {}",
            frame.intent(),
            frame.from()
        )))
    }
}

fn check_acl(frame: &IntentFrame, list: &AclList) -> Result<(), RelayError> {
    let (from, to, intent) = (frame.from(), frame.to(), frame.intent());
    let is_allowed = list
        .rules
        .iter()
        .any(|rule| rule.intent_type == intent && acl::matches_sender(&rule.allowed_from, from));
    if is_allowed || plant::on(Plant::OrgIsAllowed) && org_of(from) == org_of(to) {
        return Ok(());
    }
    let text = format!("ACL denied intent {intent} from {from} to {to}");
    Err(RelayError::Forbidden(text))
}

/// Whether the text may be a key of the ledger. The length of an index entry is limited, and headers and logs repeat the
/// text.
pub(super) fn is_storable(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

fn org_of(beam_id: &str) -> Option<&str> {
    beam_id.split_once('@').map(|(_, org)| org)
}
