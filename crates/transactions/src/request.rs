//! The bodies of the protocol's requests, parsed strictly; members that depend on the intent are checked against it.
//!
//! The operation decides the order of the checks.

#[cfg(test)]
mod tests;

use crate::document::AtpDocument;
use crate::fields::DocumentFields;
use crate::intent::{self, SignedIntent};
use crate::money::{Cents, Currency};
use crate::problem::Problem;

const COMPENSATE_REASON_CHARS_MAX: usize = 1_000;
const CANCEL_REASON_CHARS_MAX: usize = 500;
/// Receipts repeat the text, and answers repeat receipts.
const SUMMARY_CHARS_MAX: usize = 1_000;
const NONCE_CHARS_MAX: usize = 128;
const ID_CHARS_MAX: usize = 128;

/// Requests consent.
#[derive(Clone, Debug)]
pub enum Authorize {
    /// For an intent that was created before.
    Known { intent_id: String, nonce: String },
    /// Create and authorize in one request.
    Whole(Box<SignedIntent>),
}

impl Authorize {
    pub fn read(body: &AtpDocument) -> Result<Self, Problem> {
        let fields = DocumentFields::of(body);
        if fields.get("type").is_some() && !body.names_its_operation() {
            return SignedIntent::read(body.clone()).map(|intent| Self::Whole(Box::new(intent)));
        }
        let nonce = fields.text("nonce", 1..=NONCE_CHARS_MAX)?;
        Ok(Self::Known {
            intent_id: fields.intent_id("intent_id")?,
            nonce: fields.need("nonce", nonce)?,
        })
    }

    pub fn intent_id(&self) -> &str {
        match self {
            Self::Known { intent_id, .. } => intent_id,
            Self::Whole(intent) => &intent.intent_id,
        }
    }

    pub fn check_nonce(&self, intent: &SignedIntent) -> Result<(), Problem> {
        match self {
            Self::Known { nonce, .. } if *nonce != intent.nonce => Err(Problem::NonceMismatch),
            Self::Known { .. } | Self::Whole(_) => Ok(()),
        }
    }
}

/// Requests the effect.
#[derive(Clone, Debug)]
pub struct Execute {
    pub intent_id: String,
    pub amount: Option<Cents>,
    pub currency: Option<Currency>,
    pub action: Option<String>,
    pub summary: Option<String>,
    /// The rail that the agent expects.
    pub rail: Option<String>,
}

impl Execute {
    pub fn read(body: &AtpDocument) -> Result<Self, Problem> {
        let fields = DocumentFields::of(body);
        fields.object("metadata")?;
        Ok(Self {
            intent_id: fields.intent_id("intent_id")?,
            amount: fields.cents("amount_cents")?,
            currency: fields.currency("currency")?,
            action: fields.text("action", 1..=ID_CHARS_MAX)?,
            summary: fields.text("summary", 0..=SUMMARY_CHARS_MAX)?,
            rail: read_rail(&fields)?,
        })
    }

    pub fn check_currency(&self, intent: &SignedIntent) -> Result<(), Problem> {
        match self.currency {
            Some(currency) if currency != intent.currency => Err(Problem::CurrencyMismatch),
            _ => Ok(()),
        }
    }

    /// The amount: the request's own, or the intent's.
    pub fn amount(&self, intent: &SignedIntent) -> Result<Cents, Problem> {
        let missing = || Problem::field("amount_cents", "is in neither the request nor the intent");
        self.amount.or(intent.amount).ok_or_else(missing)
    }

    /// Checks that the site's rail is the one that the intent and the request name.
    pub fn check_rail(&self, intent: &SignedIntent, rail: &str) -> Result<(), Problem> {
        let signed = intent.rail.as_ref().map(|choice| choice.name.as_str());
        let mut named = [signed, self.rail.as_deref()].into_iter().flatten();
        match named.find(|named| *named != rail) {
            None => Ok(()),
            Some(other) => Err(Problem::RailMismatch {
                named: other.to_owned(),
                rail: rail.to_owned(),
            }),
        }
    }

    pub fn check_action(&self, intent: &SignedIntent) -> Result<(), Problem> {
        let allowed = |action: &str| {
            intent
                .scope
                .actions
                .iter()
                .any(|known| known.word() == action)
        };
        match &self.action {
            Some(action) if !allowed(action) => Err(Problem::ScopeViolation {
                action: action.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// A name, or an object as in intents.
fn read_rail(fields: &DocumentFields<'_>) -> Result<Option<String>, Problem> {
    match fields.get("rail") {
        Some(rail) if rail.as_str().is_none() => {
            let Some(choice) = fields.object("rail")? else {
                return Ok(None);
            };
            let name = choice.text("name", 1..=ID_CHARS_MAX)?;
            choice.need("name", name).map(Some)
        }
        _ => fields.text("rail", 1..=ID_CHARS_MAX),
    }
}

/// Requests the compensation of an effect.
#[derive(Clone, Debug)]
pub struct Compensate {
    pub intent_id: String,
    pub transaction_id: Option<String>,
    pub reason: String,
    amount: Option<Cents>,
}

impl Compensate {
    pub fn read(body: &AtpDocument) -> Result<Self, Problem> {
        let fields = DocumentFields::of(body);
        let reason = fields.text("reason", 1..=COMPENSATE_REASON_CHARS_MAX)?;
        Ok(Self {
            intent_id: fields.intent_id("intent_id")?,
            transaction_id: fields.text("transaction_id", 1..=ID_CHARS_MAX)?,
            reason: fields.need("reason", reason)?,
            amount: fields.cents("amount_cents")?,
        })
    }

    /// There is one compensation receipt, so only the full amount can be compensated.
    pub fn check_amount(&self, paid: Cents) -> Result<(), Problem> {
        match self.amount {
            Some(amount) if amount != paid => Err(Problem::PartialCompensationUnsupported),
            _ => Ok(()),
        }
    }
}

/// Withdraws an intent before an execution.
#[derive(Clone, Debug)]
pub struct Cancel {
    pub intent_id: String,
    pub reason: Option<String>,
}

impl Cancel {
    pub fn read(body: &AtpDocument) -> Result<Self, Problem> {
        let fields = DocumentFields::of(body);
        Ok(Self {
            intent_id: fields.intent_id("intent_id")?,
            reason: fields.text("reason", 0..=CANCEL_REASON_CHARS_MAX)?,
        })
    }
}

/// Requests the verification of a receipt.
#[derive(Clone, Debug)]
pub enum Verify {
    Document(Box<AtpDocument>),
    /// A receipt that the site stores.
    Id(String),
}

impl Verify {
    /// The document itself, the document as `receipt`, or the id of one. Documents have an id of their own, so an id is the
    /// subject only if nothing else makes the body a document.
    pub fn read(body: &AtpDocument) -> Result<Self, Problem> {
        let fields = DocumentFields::of(body);
        if let Some(inner) = body.inner("receipt") {
            return inner.map(|document| Self::Document(Box::new(document)));
        }
        let is_document = fields.get("type").is_some() || body.is_signed();
        let id = match fields.get("receipt_id") {
            Some(_) => fields.text("receipt_id", 1..=ID_CHARS_MAX)?,
            None => fields.text("id", 1..=ID_CHARS_MAX)?,
        };
        match id {
            Some(id) if !is_document => Ok(Self::Id(id)),
            _ => Ok(Self::Document(Box::new(body.clone()))),
        }
    }
}

impl SignedIntent {
    /// Checks a request under this intent that need not be signed: if it is signed, the agent must be the signer.
    pub fn check_request(&self, body: &AtpDocument, must_be_signed: bool) -> Result<(), Problem> {
        if body.is_signed_by(&self.agent_key) || !(body.is_signed() || must_be_signed) {
            return Ok(());
        }
        Err(Problem::InvalidSignature {
            reason: intent::NOT_THE_AGENTS,
        })
    }
}
