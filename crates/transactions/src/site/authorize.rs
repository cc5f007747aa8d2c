//! `POST /authorize`: consent is recorded and the nonce burned, in one commit.
//!
//! The order of the checks is the protocol's: a consumed nonce is told before expiry, since that answer is promised always.

use consign_kernel::command::{Command, Operate};
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use consign_kernel::record::{Key, Put};
use serde_json::json;

use super::books::{self, Burned, Claimed, Given, Kept, Permission};
use super::recent::Known;
use super::{Answer, Caller, Site, TRIES_MAX};
use crate::document::{Document, REQUEST_BYTES_MAX};
use crate::envelope::{Envelope, Operation};
use crate::instant;
use crate::intent::Intent;
use crate::key::IdempotencyKey;
use crate::problem::{Problem, Unmet};
use crate::request::Authorize;
use crate::state::State;

const OPERATION: &str = "authorize";

/// Whether the permission was there before.
struct Found {
    permission: Kept<Permission>,
    intent: Intent,
    is_new: bool,
}

/// All that a consent rests on.
struct Consent {
    found: Found,
    /// The action that it takes for itself.
    claim: Option<Kept<Claimed>>,
    /// What must still be so when it is committed.
    conditions: Vec<Command>,
}

impl Site {
    pub async fn authorize(&self, key: Option<&[u8]>, body: &[u8]) -> Result<Answer, Problem> {
        let document = Document::read(body, REQUEST_BYTES_MAX)?;
        let key = IdempotencyKey::of_request(key, &document)?;
        let request = Authorize::read(&document)?;
        let envelope = match &request {
            Authorize::Known { .. } => Some(self.envelope(&document, Operation::Authorize)?),
            // An intent has a site and a time of its own.
            Authorize::Whole(_) => None,
        };
        let given_key = books::given_key(request.intent_id(), OPERATION, &key);
        if let Some(answer) = self
            .authorize_unseen(&given_key, &request, &document)
            .await?
        {
            return Ok(answer.at(State::Authorized));
        }
        for _ in 0..TRIES_MAX {
            if let Some(given) = self.given(&given_key, &document).await? {
                return self.given_again(given, &request, &document).await;
            }
            let authorized = self
                .try_to_authorize(&given_key, &request, &document, envelope)
                .await;
            match authorized {
                Ok(None) => {}
                Ok(Some(answer)) => return Ok(answer.at(State::Authorized)),
                // The same request may have burned the nonce between two looks, and then it is no refusal.
                Err(problem) => match self.given(&given_key, &document).await? {
                    Some(given) => return self.given_again(given, &request, &document).await,
                    None => return Err(problem),
                },
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// Without a look at the ledger first: nearly every whole intent is new, and the commit itself says whether this one is.
    /// `None` if it is not, or if anything speaks against it; which of several reasons is told first is decided by looking.
    async fn authorize_unseen(
        &self,
        given_key: &Key,
        request: &Authorize,
        document: &Document,
    ) -> Result<Option<Answer>, Problem> {
        let Authorize::Whole(intent) = request else {
            return Ok(None);
        };
        let depends = !intent.preconditions.is_empty() || self.deduplicated(intent).is_some();
        let is_fine = || {
            self.check_consent(request, intent, document)?;
            self.check_new(intent)
        };
        if depends || is_fine().is_err() {
            return Ok(None);
        }
        let consent = Consent {
            found: Found {
                permission: self.received(intent),
                intent: (**intent).clone(),
                is_new: true,
            },
            claim: None,
            conditions: Vec::new(),
        };
        self.record(consent, given_key, document).await
    }

    /// `None` if somebody else was quicker.
    async fn try_to_authorize(
        &self,
        given_key: &Key,
        request: &Authorize,
        document: &Document,
        envelope: Option<Envelope>,
    ) -> Result<Option<Answer>, Problem> {
        let found = self.found(request).await?;
        let intent = &found.intent;
        if plant::on(Plant::BurnBeforeSignature) {
            self.commit(vec![burn(intent, self.now())]).await?;
        }
        self.check_consent(request, intent, document)?;
        request.check_nonce(intent)?;
        self.check_nonce_free(intent).await?;
        if found.is_new {
            self.check_new(intent)?;
        } else {
            let now = self.judged_at(&found.permission.value, intent).await?;
            let checked = found.permission.value.check_unexpired(intent, now);
            self.ended_if_over(&found.permission, checked).await?;
        }
        envelope.map_or(Ok(()), |envelope| self.check_fresh(envelope))?;
        self.check_bounded(intent)?;
        let consent = Consent {
            claim: self.check_action_free(intent).await?,
            conditions: self.check_preconditions(intent).await?,
            found,
        };
        self.record(consent, given_key, document).await
    }

    /// Commits the consent, the burned nonce and the answer. `None` if somebody else was quicker.
    async fn record(
        &self,
        consent: Consent,
        given_key: &Key,
        document: &Document,
    ) -> Result<Option<Answer>, Problem> {
        let Consent {
            found,
            claim,
            conditions,
        } = consent;
        let Found {
            mut permission,
            intent,
            is_new,
        } = found;
        let now = self.now();
        permission.value.authorized_at = Some(now.0);
        let row = permission.value.row()?;
        let body = json!({
            "ok": true,
            "intent_id": intent.intent_id,
            "state": State::Authorized.word(),
            "nonce": intent.nonce,
            "authorized_at": instant::print(now),
            "expires_at": instant::print(intent.expires_at),
        });
        let answer = Answer::new(200, &body);
        let given = Given {
            fingerprint: document.fingerprint(),
            status: answer.status,
            body: answer.body.clone(),
        };

        let mut steps = vec![
            permission.unchanged(),
            Command::Expect(books::nonce_key(&intent), 0),
            Command::Expect(given_key.clone(), 0),
        ];
        steps.extend(conditions);
        steps.extend(claim.iter().map(Kept::unchanged));
        if is_new {
            steps.push(books::begin_permission(row, &intent, now, None));
        }
        steps.push(Command::validate(Operate {
            id: row,
            face: Face::Transaction,
            reason: String::new(),
        }));
        steps.push(permission.put());
        steps.push(burn(&intent, now));
        steps.push(books::put(given_key.clone(), &given));
        steps.extend(claim.map(|claim| self.claim_action(&claim)));
        let committed = self.commit(steps).await?.map(|_| answer);
        if committed.is_some() {
            permission.version += 1;
            self.recent().remember(Known { permission, intent });
        }
        Ok(committed)
    }

    async fn found(&self, request: &Authorize) -> Result<Found, Problem> {
        let known = self.permission(request.intent_id()).await?;
        if let Some(known) = &known {
            known.value.check_caller(Caller::Agent)?;
        }
        match (known, request) {
            (Some(permission), Authorize::Known { .. }) => Ok(Found {
                intent: permission.value.intent()?,
                permission,
                is_new: false,
            }),
            (None, Authorize::Known { .. }) => Err(Problem::IntentNotFound),
            (Some(permission), Authorize::Whole(sent)) => {
                let intent = permission.value.intent()?;
                if intent.hash() != sent.hash() {
                    // Nobody learns of an intent by an id alone.
                    self.check_signed(sent)?;
                    return Err(Problem::IntentConflict);
                }
                Ok(Found {
                    permission,
                    intent,
                    is_new: false,
                })
            }
            (None, Authorize::Whole(sent)) => Ok(Found {
                permission: self.received(sent),
                intent: (**sent).clone(),
                is_new: true,
            }),
        }
    }

    fn check_consent(
        &self,
        request: &Authorize,
        intent: &Intent,
        document: &Document,
    ) -> Result<(), Problem> {
        if let Authorize::Whole(sent) = request {
            self.check_signed(sent)?;
            if intent.principal_key.is_none() {
                return Ok(());
            }
        }
        self.check_agent(intent)?;
        intent.check_authorization(document)
    }

    pub(super) async fn check_nonce_free(&self, intent: &Intent) -> Result<(), Problem> {
        let burned: Option<Kept<Burned>> = self.read(books::nonce_key(intent)).await?;
        match burned {
            None => Ok(()),
            Some(burned) => Err(Problem::NonceConsumed {
                first_consumed_at: Micros(burned.value.at),
            }),
        }
    }

    /// What was answered to this key before.
    async fn given(&self, key: &Key, document: &Document) -> Result<Option<Answer>, Problem> {
        let given: Option<Kept<Given>> = self.read(key.clone()).await?;
        match given {
            None => Ok(None),
            Some(given) if given.value.fingerprint == document.fingerprint() => {
                Ok(Some(Answer::text(given.value.status, given.value.body)))
            }
            Some(_) => Err(Problem::IdempotencyMismatch),
        }
    }

    /// The bytes are those of then; the head tells how things are now.
    async fn given_again(
        &self,
        given: Answer,
        request: &Authorize,
        document: &Document,
    ) -> Result<Answer, Problem> {
        if document.names_its_operation() {
            // Its signature is no part of what it was recognised by.
            let found = self.found(request).await?;
            self.check_consent(request, &found.intent, document)?;
        }
        let state = self.state_of(request.intent_id()).await?;
        Ok(given.at(state.unwrap_or(State::Authorized)).replayed(true))
    }

    /// That nobody takes the same action at the same time; what to claim then. A claim whose intent came to nothing is free.
    pub(super) async fn check_action_free(
        &self,
        intent: &Intent,
    ) -> Result<Option<Kept<Claimed>>, Problem> {
        let window_s = self.options().dedup_window_s;
        let Some(action) = self.deduplicated(intent) else {
            return Ok(None);
        };
        let key = books::action_key(intent, action);
        let claimed: Option<Kept<Claimed>> = self.read(key.clone()).await?;
        let own = Claimed {
            intent_id: intent.intent_id.clone(),
            at: self.now().0,
        };
        let Some(claimed) = claimed else {
            return Ok(Some(Kept::new(key, own)));
        };
        let (state, _) = self.fate_of(&claimed.value.intent_id).await?;
        let came_to_nothing = matches!(state, None | Some(State::Expired | State::Compensated));
        if came_to_nothing || claimed.value.intent_id == intent.intent_id {
            return Ok(Some(Kept {
                value: own,
                ..claimed
            }));
        }
        Err(Problem::DuplicateAction {
            first_seen_at: Micros(claimed.value.at),
            window_s,
        })
    }

    /// The action that must not be taken twice.
    fn deduplicated<'i>(&self, intent: &'i Intent) -> Option<&'i String> {
        let is_on = self.options().dedup_window_s > 0;
        intent.action_dedup_key.as_ref().filter(|_| is_on)
    }

    fn claim_action(&self, claim: &Kept<Claimed>) -> Command {
        let window_us = i64::from(self.options().dedup_window_s) * SECOND_US;
        let put = books::writing(claim.key.clone(), &claim.value);
        Command::Put(Put {
            expires_at: Some(self.engine_now().plus(window_us)),
            ..put
        })
    }

    /// That all it depends on is settled, and what must not change until the commit for that to be true.
    async fn check_preconditions(&self, intent: &Intent) -> Result<Vec<Command>, Problem> {
        let mut unmet = Vec::new();
        let mut conditions = Vec::new();
        for intent_id in &intent.preconditions {
            match self.fate_of(intent_id).await? {
                (_, Some(settled)) => conditions.push(settled),
                (actual, None) => unmet.push(Unmet {
                    actual,
                    intent_id: intent_id.clone(),
                }),
            }
        }
        if unmet.is_empty() {
            return Ok(conditions);
        }
        Err(Problem::PreconditionFailed { unmet })
    }
}

/// Uses up the nonce of an intent.
fn burn(intent: &Intent, now: Micros) -> Command {
    let burned = Burned {
        intent_id: intent.intent_id.clone(),
        at: now.0,
    };
    books::put(books::nonce_key(intent), &burned)
}
