//! Parses a document into a [`SignedIntent`]: every rule that needs no clock and no ledger.

use consign_kernel::json::Raw;

use super::{
    Capture, EXECUTIONS_MAX, IntentScope, LIFE_MAX_US, PRECONDITIONS_MAX, RailChoice, ScopeAction,
    SignedIntent, TYPE,
};
use crate::document::AtpDocument;
use crate::fields::{DocumentFields, text_within};
use crate::money::{Cents, Currency, SpendCap};
use crate::problem::Problem;
use crate::state::AtpState;

const NAME_CHARS: std::ops::RangeInclusive<usize> = 1..=128;
const PURPOSE_CHARS_MAX: usize = 500;
const HOSTNAME_CHARS_MAX: usize = 253;
const DOMAINS_MAX: usize = 64;

impl SignedIntent {
    /// Parses a document; the error names the first invalid member.
    pub fn read(document: AtpDocument) -> Result<Self, Problem> {
        let fields = DocumentFields::of(&document);
        let type_ = fields.read("type", TYPE, |value| {
            value.as_str().filter(|type_| type_ == TYPE)
        })?;
        fields.need("type", type_)?;

        let intent_id = fields.intent_id("intent_id")?;
        let need_text = |name, chars_max| {
            let text = fields.text(name, 1..=chars_max)?;
            fields.need(name, text)
        };
        let agent_key = fields.public_key("agent_key")?;
        let scope = fields.object("scope")?;
        let max_executions =
            fields.read("max_executions", "an integer from 1 to 1000", executions)?;
        let issued_at = fields.instant("issued_at")?;
        let expires_at = fields.instant("expires_at")?;
        if expires_at <= issued_at {
            return Err(fields.refuse("expires_at", "must be later than issued_at"));
        }
        if expires_at > issued_at.plus(LIFE_MAX_US) {
            return Err(fields.refuse("expires_at", "must be at most 7 days after issued_at"));
        }
        fields.object("metadata")?;

        Ok(Self {
            site: need_text("site", usize::MAX)?,
            site_id: fields.text("site_id", NAME_CHARS)?,
            agent_id: fields.text("agent_id", NAME_CHARS)?,
            agent_key: fields.need("agent_key", agent_key)?,
            principal_key: fields.public_key("principal_key")?,
            user_id: fields.text("user_id", NAME_CHARS)?,
            purpose: need_text("purpose", PURPOSE_CHARS_MAX)?,
            scope: read_scope(&fields.need("scope", scope)?)?,
            amount: fields.cents("amount_cents")?,
            currency: fields.currency("currency")?.unwrap_or(Currency::EUR),
            spend_cap: read_spend_cap(&fields)?,
            max_executions: max_executions.unwrap_or(1),
            nonce: need_text("nonce", *NAME_CHARS.end())?,
            issued_at,
            expires_at,
            action_dedup_key: fields.text("action_dedup_key", NAME_CHARS)?,
            preconditions: read_preconditions(&fields, &intent_id)?,
            rail: read_rail(&fields)?,
            intent_id,
            document,
        })
    }
}

fn executions(value: Raw<'_>) -> Option<u16> {
    let count = u16::try_from(value.as_i64()?).ok()?;
    (1..=EXECUTIONS_MAX).contains(&count).then_some(count)
}

fn read_scope(scope: &DocumentFields<'_>) -> Result<IntentScope, Problem> {
    let items = scope.items("actions")?;
    let mut actions = Vec::new();
    for item in scope.need("actions", items)? {
        let action = item.as_str().and_then(|word| ScopeAction::parse(&word));
        match action {
            Some(action) if actions.contains(&action) => {
                return Err(scope.refuse("actions", format!("repeats {}", action.word())));
            }
            Some(action) => actions.push(action),
            None => return Err(scope.refuse("actions", "has an unknown action")),
        }
    }
    if actions.is_empty() {
        return Err(scope.refuse("actions", "must not be empty"));
    }
    let domains = scope.read("domains", "a list of host names", |value| {
        value.items()?.into_iter().map(hostname).collect()
    })?;
    if domains
        .as_ref()
        .is_some_and(|domains: &Vec<String>| domains.len() > DOMAINS_MAX)
    {
        return Err(scope.refuse(
            "domains",
            format!("must have at most {DOMAINS_MAX} entries"),
        ));
    }
    Ok(IntentScope { actions, domains })
}

fn hostname(value: Raw<'_>) -> Option<String> {
    let name = text_within(value, 1..=HOSTNAME_CHARS_MAX)?;
    // A leading star matches all names below; internationalized names must be in ASCII form.
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    let is_host = labels
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    is_host.then_some(name)
}

/// The cap has two names; if both are present, they must agree.
fn read_spend_cap(fields: &DocumentFields<'_>) -> Result<SpendCap, Problem> {
    let cap = match (
        fields.cents("max_spend_cents")?,
        fields.cents("spend_cap_cents")?,
    ) {
        (Some(cap), Some(alias)) if cap != alias => {
            return Err(fields.refuse("spend_cap_cents", "differs from max_spend_cents"));
        }
        (cap, alias) => cap.or(alias),
    };
    Ok(SpendCap::new(cap.unwrap_or(Cents::ZERO)))
}

fn read_preconditions(fields: &DocumentFields<'_>, own_id: &str) -> Result<Vec<String>, Problem> {
    let name = "preconditions";
    let items = fields.items(name)?.unwrap_or_default();
    if items.len() > PRECONDITIONS_MAX {
        return Err(fields.refuse(
            name,
            format!("must have at most {PRECONDITIONS_MAX} entries"),
        ));
    }
    let mut intents = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let entry = fields.element(name, index, item)?;
        let intent_id = entry.intent_id("intent_id")?;
        if intent_id == own_id {
            return Err(entry.refuse("intent_id", "must name another intent"));
        }
        if intents.contains(&intent_id) {
            return Err(entry.refuse("intent_id", "occurs twice"));
        }
        let state = entry.read("state", "\"settled\"", |value| {
            value
                .as_str()
                .filter(|state| state == AtpState::Settled.word())
        })?;
        entry.need("state", state)?;
        intents.push(intent_id);
    }
    Ok(intents)
}

fn read_rail(fields: &DocumentFields<'_>) -> Result<Option<RailChoice>, Problem> {
    let Some(rail) = fields.object("rail")? else {
        return Ok(None);
    };
    let name = rail.text("name", NAME_CHARS)?;
    let capture = rail.read(
        "capture",
        "\"automatic\" or \"manual\"",
        |value| match value.as_str()?.as_ref() {
            "automatic" => Some(Capture::Automatic),
            "manual" => Some(Capture::Manual),
            _ => None,
        },
    )?;
    Ok(Some(RailChoice {
        name: rail.need("name", name)?,
        payment_method: rail.text("payment_method", 1..=255)?,
        capture: capture.unwrap_or_default(),
    }))
}
