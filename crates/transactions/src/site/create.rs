//! `POST /intents`: a signed permission is received.

use serde_json::{Value, json};

use super::books::{self, Kept, Permission};
use super::{AgentKeys, Answer, Site, TRIES_MAX};
use crate::document::{Document, REQUEST_BYTES_MAX};
use crate::instant;
use crate::intent::Intent;
use crate::problem::Problem;
use crate::state::State;

impl Site {
    pub async fn create(&self, body: &[u8]) -> Result<Answer, Problem> {
        let document = Document::read(body, REQUEST_BYTES_MAX)?;
        let intent = Intent::read(document)?;
        self.check_signed(&intent)?;
        for _ in 0..TRIES_MAX {
            if let Some(known) = self.permission(&intent.intent_id).await? {
                return self.created_before(&known, &intent).await;
            }
            self.check_new(&intent)?;
            self.check_action_free(&intent).await?;
            let permission = self.received(&intent);
            let steps = vec![
                permission.unchanged(),
                books::begin_permission(
                    permission.value.row()?,
                    &intent,
                    self.now(),
                    Some((intent.agent_key.id().to_owned(), self.room())),
                ),
                permission.put(),
            ];
            if self.commit(steps).await?.is_some() {
                return Ok(Answer::new(201, &shown(&intent, &permission.value)).at(State::Created));
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// What can be checked of a signed intent before anything is known of it.
    pub(super) fn check_signed(&self, intent: &Intent) -> Result<(), Problem> {
        intent.check_signature()?;
        intent.check_site(self.origin())?;
        self.check_agent(intent)
    }

    /// Asked at every step, so that a key that is no longer registered stops what it began.
    pub(super) fn check_agent(&self, intent: &Intent) -> Result<(), Problem> {
        match &self.options().agent_keys {
            AgentKeys::Open => Ok(()),
            AgentKeys::Registered(ids) if ids.contains(intent.agent_key.id()) => Ok(()),
            AgentKeys::Registered(_) => Err(Problem::UnknownAgentKey),
        }
    }

    /// What is asked of an intent when it is first presented.
    pub(super) fn check_new(&self, intent: &Intent) -> Result<(), Problem> {
        intent.check_currency()?;
        intent.check_unexpired(self.now())?;
        self.check_bounded(intent)?;
        intent.check_freshness(self.now(), self.options().freshness_s)
    }

    /// Where requests are signed, the agent signs the amount of each of them.
    pub(super) fn check_bounded(&self, intent: &Intent) -> Result<(), Problem> {
        if self.options().signed_requests {
            return Ok(());
        }
        intent.check_bounded()
    }

    pub(super) fn received(&self, intent: &Intent) -> Kept<Permission> {
        let document = String::from_utf8_lossy(intent.document().sent()).into_owned();
        let permission = Permission {
            row: self.fresh_id().to_string(),
            document,
            created_at: self.now().0,
            authorized_at: None,
            cancelled: false,
            ended: false,
            executions: 0,
            committed_cents: 0,
            undone: Some(0),
            user: None,
        };
        Kept::new(books::permission_key(&intent.intent_id), permission)
    }

    /// The same again is answered the same; what is authorized cannot be presented again.
    async fn created_before(
        &self,
        known: &Kept<Permission>,
        intent: &Intent,
    ) -> Result<Answer, Problem> {
        let first = known.value.intent()?;
        if first.hash() != intent.hash() {
            return Err(Problem::IntentConflict);
        }
        self.check_nonce_free(&first).await?;
        let now = self.judged_at(&known.value, &first).await?;
        known.value.check_unexpired(&first, now)?;
        Ok(Answer::new(200, &shown(&first, &known.value))
            .at(State::Created)
            .replayed(true))
    }
}

fn shown(intent: &Intent, permission: &Permission) -> Value {
    let created_at = instant::print(consign_kernel::ids::Micros(permission.created_at));
    let expires_at = instant::print(intent.expires_at);
    let data = json!({
        "id": intent.intent_id,
        "status": State::Created.word(),
        "purpose": intent.purpose,
        "scope": intent.scope,
        "amount_cents": intent.amount,
        "spend_cap_cents": intent.spend_max().unwrap_or_default(),
        "currency": intent.currency,
        "max_executions": intent.max_executions,
        "nonce": intent.nonce,
        "expires_at": expires_at,
        "created_at": created_at,
    });
    json!({
        "ok": true,
        "intent_id": intent.intent_id,
        "state": State::Created.word(),
        "intent_hash": intent.hash(),
        "nonce": intent.nonce,
        "expires_at": expires_at,
        "created_at": created_at,
        "data": data,
    })
}
