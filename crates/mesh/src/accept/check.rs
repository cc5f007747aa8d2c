//! The checks of a `send` that need no ledger, and the fingerprint under which it is accepted.

use consign_kernel::plant::{self, Plant};

use super::{AcceptReason, AcceptRefusal};
use crate::body::CarriedBody;
use crate::client_message_id::ClientMessageId;
use crate::destination::{Destination, DestinationKind, ResolvedTarget, TargetSpec};
use crate::fingerprint::{BodyHash, ENVELOPE_VERSION, FingerprintInput, RequestFingerprint};
use crate::frame::{RawJson, SendFrame};
use crate::keys::MeshPublicKey;
use crate::limits::{INLINE_BYTES_MAX, MENTIONS_MAX};
use crate::meta::{CanonicalMeta, MetaError};
use crate::nacl::MAC_BYTES;
use crate::priority::MeshPriority;

const BODY_VERSIONS: [u8; 2] = [1, 2];

/// A `send` whose members are valid each by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSend {
    pub target: TargetSpec,
    pub priority: MeshPriority,
    pub body: CarriedBody,
    pub body_version: u8,
    pub mentions: Vec<String>,
    pub reply_to_id: Option<String>,
    pub meta: CanonicalMeta,
    /// The text of `meta` as it was sent, for the recipients.
    pub meta_text: Option<String>,
    id: Option<ClientMessageId>,
    claimed_fingerprint: Option<RequestFingerprint>,
    claimed_destination: Option<(DestinationKind, String)>,
    envelope_version: u32,
    body_hash: Option<BodyHash>,
}

/// What makes a message distinct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendKey {
    /// Without an id: accepted every time.
    Unkeyed,
    Keyed {
        id: ClientMessageId,
        fingerprint: RequestFingerprint,
    },
}

/// Checks the members of a `send` one by one.
pub fn check_send(send: &SendFrame) -> Result<CheckedSend, AcceptRefusal> {
    let refuse = |reason, detail: &str| Err(AcceptRefusal::new(reason, detail));
    let Some(target) = TargetSpec::parse(&send.target_spec) else {
        return refuse(
            AcceptReason::InvalidDestination,
            "targetSpec has no known form",
        );
    };
    let priority = send
        .priority
        .as_deref()
        .map_or(Some(MeshPriority::default()), MeshPriority::parse);
    let Some(priority) = priority else {
        return refuse(
            AcceptReason::InvalidPriority,
            "priority is now, next or low",
        );
    };
    let body = CarriedBody {
        nonce: send.nonce.clone(),
        ciphertext: send.ciphertext.clone(),
    };
    if !body.is_well_formed() {
        return refuse(
            AcceptReason::InvalidFrame,
            "nonce and ciphertext must be base64",
        );
    }
    let body_bytes = body.decoded().map_or(0, |bytes| bytes.len());
    if body_bytes > INLINE_BYTES_MAX + MAC_BYTES {
        return refuse(
            AcceptReason::PayloadTooLarge,
            "the body does not fit one frame",
        );
    }
    let body_version = send.body_version.unwrap_or(BODY_VERSIONS[0]);
    if !BODY_VERSIONS.contains(&body_version) {
        return refuse(AcceptReason::InvalidFrame, "bodyVersion is 1 or 2");
    }
    let mentions = send.mentions.clone().unwrap_or_default();
    if mentions.len() > MENTIONS_MAX {
        return refuse(AcceptReason::InvalidFrame, "at most 16 mentions");
    }
    let reply_to_id = match (&send.reply_to_id, &send.hashed_reply_to_id) {
        (Some(one), Some(other)) if one != other => {
            return refuse(
                AcceptReason::InvalidFrame,
                "replyToId and reply_to_id differ",
            );
        }
        (one, other) => one.as_ref().or(other.as_ref()).filter(|id| !id.is_empty()),
    };
    let meta_text = send.meta.as_ref().map(RawJson::text);
    let meta = CanonicalMeta::parse(meta_text).map_err(|error| {
        let reason = match error {
            MetaError::NotAnObject => AcceptReason::InvalidFrame,
            MetaError::NotCanonical(_) => AcceptReason::MetaNotCanonical,
        };
        AcceptRefusal::new(reason, error.to_string())
    })?;
    let id = send
        .client_message_id
        .as_deref()
        .map(ClientMessageId::parse)
        .transpose();
    let id = id.map_err(|error| {
        AcceptRefusal::new(AcceptReason::InvalidClientMessageId, error.to_string())
    })?;
    let hash = |text: &Option<String>| text.as_deref().map(RequestFingerprint::parse).transpose();
    let hash = |text, name: &str| {
        hash(text).map_err(|error| {
            AcceptRefusal::new(
                AcceptReason::InvalidFingerprint,
                format!("{name} is {error}"),
            )
        })
    };
    let claimed_fingerprint = hash(&send.request_fingerprint, "request_fingerprint")?;
    let body_hash =
        hash(&send.body_sha256, "body_sha256")?.map(|hash| BodyHash::from_bytes(hash.to_bytes()));
    Ok(CheckedSend {
        claimed_destination: claimed_destination(send)?,
        target,
        priority,
        body,
        body_version,
        mentions,
        reply_to_id: reply_to_id.cloned(),
        meta_text: meta.to_member().and(meta_text).map(str::to_owned),
        meta,
        id,
        claimed_fingerprint,
        envelope_version: send.envelope_version.unwrap_or(ENVELOPE_VERSION),
        body_hash,
    })
}

fn claimed_destination(
    send: &SendFrame,
) -> Result<Option<(DestinationKind, String)>, AcceptRefusal> {
    let refuse = |detail: &str| Err(AcceptRefusal::new(AcceptReason::InvalidDestination, detail));
    match (&send.destination_kind, &send.destination_ref) {
        (None, None) => Ok(None),
        (Some(kind), Some(reference)) => {
            let Some(kind) = DestinationKind::parse(kind) else {
                return refuse("destination_kind is topic, dm or queue");
            };
            match Destination::from_parts(kind, reference) {
                Ok(_) => Ok(Some((kind, reference.clone()))),
                Err(error) => refuse(&error.to_string()),
            }
        }
        (Some(_), None) | (None, Some(_)) => {
            refuse("destination_kind and destination_ref belong together")
        }
    }
}

impl CheckedSend {
    pub const fn id(&self) -> Option<&ClientMessageId> {
        self.id.as_ref()
    }

    /// The key of the member that the sender says it writes to.
    pub fn claimed_member(&self) -> Option<MeshPublicKey> {
        let (kind, reference) = self.claimed_destination.as_ref()?;
        match Destination::from_parts(*kind, reference) {
            Ok(Destination::Member(key)) => Some(key),
            Ok(
                Destination::Topic(_)
                | Destination::Group(_)
                | Destination::Everyone
                | Destination::Queue(_),
            )
            | Err(_) => None,
        }
    }

    /// The id and the fingerprint, once the target is known.
    ///
    /// A message with all parts of the fingerprint is computed again and must give what it claims. One with a fingerprint
    /// and no `body_sha256` comes from upstream's daemon, whose fingerprint is another one: it is taken as it is. One with
    /// an id alone is computed over what is visible, the ciphertext.
    pub fn key(&self, target: &ResolvedTarget) -> Result<SendKey, AcceptRefusal> {
        self.check_destination(target)?;
        self.check_clear_body(target)?;
        let Some(id) = self.id.clone() else {
            return Ok(SendKey::Unkeyed);
        };
        let fingerprint = match (self.body_hash, self.claimed_fingerprint) {
            (None, Some(opaque)) => opaque,
            (Some(hash), claimed) => {
                let computed = self.computed(target, hash)?;
                let is_other = claimed.is_some_and(|claimed| claimed != computed);
                if is_other && !plant::on(Plant::DriftAccepted) {
                    return Err(drift(computed));
                }
                computed
            }
            (None, None) => {
                let visible = self.body.decoded().unwrap_or_default();
                self.computed(target, BodyHash::of(&visible))?
            }
        };
        Ok(SendKey::Keyed { id, fingerprint })
    }

    fn computed(
        &self,
        target: &ResolvedTarget,
        body_hash: BodyHash,
    ) -> Result<RequestFingerprint, AcceptRefusal> {
        let destination = target.destination();
        let input = FingerprintInput {
            envelope_version: self.envelope_version,
            destination_kind: destination.kind(),
            destination_ref: &destination.reference(),
            reply_to_id: self.reply_to_id.as_deref(),
            priority: self.priority,
            meta: &self.meta,
            body_hash,
        };
        let nul = |error: crate::fingerprint::ContainsNul| {
            AcceptRefusal::new(AcceptReason::InvalidFrame, error.to_string())
        };
        input.fingerprint().map_err(nul)
    }

    fn check_destination(&self, target: &ResolvedTarget) -> Result<(), AcceptRefusal> {
        let Some((kind, reference)) = &self.claimed_destination else {
            return Ok(());
        };
        let claimed = Destination::from_parts(*kind, reference);
        if claimed.is_ok_and(|claimed| target.agrees_with(&claimed)) {
            return Ok(());
        }
        let detail = "destination does not agree with targetSpec";
        Err(AcceptRefusal::new(AcceptReason::InvalidDestination, detail))
    }

    fn check_clear_body(&self, target: &ResolvedTarget) -> Result<(), AcceptRefusal> {
        let is_clear = target.destination().is_clear(self.body_version);
        if plant::on(Plant::TrustedBodyHash) {
            return Ok(());
        }
        match (self.body_hash, self.body.decoded()) {
            (Some(hash), Some(body)) if is_clear && BodyHash::of(&body) != hash => {
                let detail = "body_sha256 is not the hash of the body";
                Err(AcceptRefusal::new(AcceptReason::BodyHashMismatch, detail))
            }
            _ => Ok(()),
        }
    }
}

/// The sender computes fingerprints in another way. The detail is the beginning of ours.
fn drift(computed: RequestFingerprint) -> AcceptRefusal {
    AcceptRefusal::new(AcceptReason::KeyReused, computed.prefix())
}
