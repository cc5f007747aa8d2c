//! `POST /intents`: accepts a signed permission.

use consign_engine::{TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::ids::Micros;

use super::records::{self, PermissionRecord};
use super::{AgentKeys, CreatedIntent, Site};
use crate::document::{AtpDocument, REQUEST_BYTES_MAX};
use crate::intent::SignedIntent;
use crate::problem::Problem;

impl Site {
    pub async fn create(&self, body: &[u8]) -> Result<CreatedIntent, Problem> {
        let document = AtpDocument::read(body, REQUEST_BYTES_MAX)?;
        let intent = SignedIntent::read(document)?;
        self.check_signed(&intent)?;
        for _ in 0..TRIES_MAX {
            if let Some(known) = self.permission(&intent.intent_id).await? {
                return self.replay_created(&known, &intent).await;
            }
            self.check_new(&intent)?;
            self.check_action_free(&intent).await?;
            let permission = self.new_permission(&intent);
            let mut unit = UnitOfWork::default();
            unit.begin(records::begin_permission(
                permission.value.row()?,
                &intent,
                self.now(),
                Some((intent.agent_key.id().to_owned(), self.open_limits())),
            ));
            unit.replace(&permission);
            if self.commit(unit).await?.is_some() {
                return Ok(CreatedIntent {
                    intent,
                    created_at: Micros(permission.value.created_at),
                    replayed: false,
                });
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// Checks of a signed intent that need no stored data.
    pub(super) fn check_signed(&self, intent: &SignedIntent) -> Result<(), Problem> {
        intent.check_signature()?;
        intent.check_site(self.origin())?;
        self.check_agent(intent)
    }

    /// Checked at every operation, so that removing a key from the registered keys stops its
    /// intents.
    pub(super) fn check_agent(&self, intent: &SignedIntent) -> Result<(), Problem> {
        match &self.options().agent_keys {
            AgentKeys::Open => Ok(()),
            AgentKeys::Registered(ids) if ids.contains(intent.agent_key.id()) => Ok(()),
            AgentKeys::Registered(_) => Err(Problem::UnknownAgentKey),
        }
    }

    /// Checks of an intent when it is first presented.
    pub(super) fn check_new(&self, intent: &SignedIntent) -> Result<(), Problem> {
        intent.check_currency()?;
        intent.check_unexpired(self.now())?;
        self.check_bounded(intent)?;
        intent.check_freshness(self.now(), self.options().freshness_s)
    }

    /// If requests must be signed, the agent signs the amount of each of them.
    pub(super) fn check_bounded(&self, intent: &SignedIntent) -> Result<(), Problem> {
        if self.options().signed_requests {
            return Ok(());
        }
        intent.check_bounded()
    }

    pub(super) fn new_permission(&self, intent: &SignedIntent) -> Versioned<PermissionRecord> {
        let document = String::from_utf8_lossy(intent.document().sent()).into_owned();
        let permission = PermissionRecord {
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
        Versioned::new(records::permission_key(&intent.intent_id), permission)
    }

    /// A repetition gets the same answer; an authorized intent cannot be presented again.
    async fn replay_created(
        &self,
        known: &Versioned<PermissionRecord>,
        intent: &SignedIntent,
    ) -> Result<CreatedIntent, Problem> {
        let first = known.value.intent()?;
        if first.hash() != intent.hash() {
            return Err(Problem::IntentConflict);
        }
        self.check_nonce_free(&first).await?;
        let now = self.judged_at(&known.value, &first).await?;
        known.value.check_unexpired(&first, now)?;
        Ok(CreatedIntent {
            intent: first,
            created_at: Micros(known.value.created_at),
            replayed: true,
        })
    }
}
