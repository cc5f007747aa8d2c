//! `POST /authorize`: records the consent and uses the nonce, in one commit.
//!
//! The protocol defines the order of the checks: a used nonce is reported before expiry.

use consign_engine::{TRIES_MAX, UnitOfWork, Versioned};
use consign_kernel::command::{Command, Operate};
use consign_kernel::ids::{Micros, SECOND_US};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::Face;
use consign_kernel::record::Key;

use super::reads::RecordVersion;
use super::recent::CachedPermission;
use super::records::{self, ActionClaim, PermissionRecord, UsedNonce};
use super::stored_answer::StoredAnswer;
use super::{ConsentAnswer, Site, SiteCaller};
use crate::document::{AtpDocument, REQUEST_BYTES_MAX};
use crate::envelope::{RequestEnvelope, RequestOperation};
use crate::intent::SignedIntent;
use crate::key::IdempotencyKey;
use crate::problem::{Problem, Unmet};
use crate::request::Authorize;
use crate::state::AtpState;

const OPERATION: &str = "authorize";

/// A permission as a request presents it: stored before, or new.
struct PresentedPermission {
    permission: Versioned<PermissionRecord>,
    intent: SignedIntent,
    is_new: bool,
}

/// Everything that a consent depends on.
struct Consent {
    found: PresentedPermission,
    /// The deduplicated action that this consent claims.
    claim: Option<Versioned<ActionClaim>>,
    /// Records that must not have changed until the commit.
    conditions: Vec<RecordVersion>,
}

impl Site {
    pub async fn authorize(
        &self,
        key: Option<&[u8]>,
        body: &[u8],
    ) -> Result<ConsentAnswer, Problem> {
        let document = AtpDocument::read(body, REQUEST_BYTES_MAX)?;
        let key = IdempotencyKey::of_request(key, &document)?;
        let request = Authorize::read(&document)?;
        let envelope = match &request {
            Authorize::Known { .. } => Some(self.envelope(&document, RequestOperation::Authorize)?),
            // A whole intent has its own site and time.
            Authorize::Whole(_) => None,
        };
        let given_key = records::answer_key(request.intent_id(), OPERATION, &key);
        if let Some(answer) = self
            .authorize_optimistically(&given_key, &request, &document)
            .await?
        {
            return Ok(answer);
        }
        for _ in 0..TRIES_MAX {
            if let Some(given) = self.stored_answer(&given_key, &document).await? {
                return self.replay_answer(given, &request, &document).await;
            }
            let authorized = self
                .try_authorize(&given_key, &request, &document, envelope)
                .await;
            match authorized {
                Ok(None) => {}
                Ok(Some(answer)) => return Ok(answer),
                // The same request may have used the nonce between two reads; then this is a repetition and not an error.
                Err(problem) => match self.stored_answer(&given_key, &document).await? {
                    Some(given) => return self.replay_answer(given, &request, &document).await,
                    None => return Err(problem),
                },
            }
        }
        Err(Problem::StoreUnavailable)
    }

    /// Commits without reading the ledger first: nearly every whole intent is new, and the commit itself detects one that is
    /// not. Returns `None` in that case and after any failed check; the slow path then decides which error is reported
    /// first.
    async fn authorize_optimistically(
        &self,
        given_key: &Key,
        request: &Authorize,
        document: &AtpDocument,
    ) -> Result<Option<ConsentAnswer>, Problem> {
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
            found: PresentedPermission {
                permission: self.new_permission(intent),
                intent: (**intent).clone(),
                is_new: true,
            },
            claim: None,
            conditions: Vec::new(),
        };
        self.commit_consent(consent, given_key, document).await
    }

    /// Returns `None` after a concurrent change.
    async fn try_authorize(
        &self,
        given_key: &Key,
        request: &Authorize,
        document: &AtpDocument,
        envelope: Option<RequestEnvelope>,
    ) -> Result<Option<ConsentAnswer>, Problem> {
        let found = self.presented(request).await?;
        let intent = &found.intent;
        if plant::on(Plant::BurnBeforeSignature) {
            let mut unit = UnitOfWork::default();
            use_nonce(intent, self.now(), &mut unit);
            self.commit(unit).await?;
        }
        self.check_consent(request, intent, document)?;
        request.check_nonce(intent)?;
        self.check_nonce_free(intent).await?;
        if found.is_new {
            self.check_new(intent)?;
        } else {
            let now = self.judged_at(&found.permission.value, intent).await?;
            let checked = found.permission.value.check_unexpired(intent, now);
            self.record_expiry(&found.permission, checked).await?;
        }
        envelope.map_or(Ok(()), |envelope| self.check_fresh(envelope))?;
        self.check_bounded(intent)?;
        let consent = Consent {
            claim: self.check_action_free(intent).await?,
            conditions: self.check_preconditions(intent).await?,
            found,
        };
        self.commit_consent(consent, given_key, document).await
    }

    /// Commits the consent, the used nonce and the answer. Returns `None` after a concurrent change.
    async fn commit_consent(
        &self,
        consent: Consent,
        given_key: &Key,
        document: &AtpDocument,
    ) -> Result<Option<ConsentAnswer>, Problem> {
        let Consent {
            found,
            claim,
            conditions,
        } = consent;
        let PresentedPermission {
            mut permission,
            intent,
            is_new,
        } = found;
        let now = self.now();
        permission.value.authorized_at = Some(now.0);
        let row = permission.value.row()?;
        let given = StoredAnswer::to_consent(document, &intent, now);

        let mut unit = UnitOfWork::default();
        unit.replace(&permission);
        unit.expect(records::nonce_key(&intent), 0);
        unit.expect(given_key.clone(), 0);
        for (key, version) in conditions {
            unit.expect(key, version);
        }
        if is_new {
            unit.begin(records::begin_permission(row, &intent, now, None));
        }
        unit.require(Command::validate(Operate {
            id: row,
            face: Face::Transaction,
            reason: String::new(),
        }));
        use_nonce(&intent, now, &mut unit);
        unit.put(given_key.clone(), &given);
        if let Some(claim) = claim {
            unit.replace(&claim);
        }
        let committed = self.commit(unit).await?.map(|_| ConsentAnswer {
            body: given.body,
            state: AtpState::Authorized,
            replayed: false,
        });
        if committed.is_some() {
            permission.version += 1;
            self.recent()
                .remember(CachedPermission { permission, intent });
        }
        Ok(committed)
    }

    async fn presented(&self, request: &Authorize) -> Result<PresentedPermission, Problem> {
        let known = self.permission(request.intent_id()).await?;
        if let Some(known) = &known {
            known.value.check_caller(SiteCaller::Agent)?;
        }
        match (known, request) {
            (Some(permission), Authorize::Known { .. }) => Ok(PresentedPermission {
                intent: permission.value.intent()?,
                permission,
                is_new: false,
            }),
            (None, Authorize::Known { .. }) => Err(Problem::IntentNotFound),
            (Some(permission), Authorize::Whole(sent)) => {
                let intent = permission.value.intent()?;
                if intent.hash() != sent.hash() {
                    // Knowing an id must not reveal that the intent exists, so the signature is checked first.
                    self.check_signed(sent)?;
                    return Err(Problem::IntentConflict);
                }
                Ok(PresentedPermission {
                    permission,
                    intent,
                    is_new: false,
                })
            }
            (None, Authorize::Whole(sent)) => Ok(PresentedPermission {
                permission: self.new_permission(sent),
                intent: (**sent).clone(),
                is_new: true,
            }),
        }
    }

    fn check_consent(
        &self,
        request: &Authorize,
        intent: &SignedIntent,
        document: &AtpDocument,
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

    pub(super) async fn check_nonce_free(&self, intent: &SignedIntent) -> Result<(), Problem> {
        let used: Option<Versioned<UsedNonce>> = self.read(records::nonce_key(intent)).await?;
        match used {
            None => Ok(()),
            Some(used) => Err(Problem::NonceConsumed {
                first_consumed_at: Micros(used.value.at),
            }),
        }
    }

    /// The stored body of the answer to this key.
    async fn stored_answer(
        &self,
        key: &Key,
        document: &AtpDocument,
    ) -> Result<Option<String>, Problem> {
        let given: Option<Versioned<StoredAnswer>> = self.read(key.clone()).await?;
        match given {
            None => Ok(None),
            Some(given) if given.value.fingerprint == document.fingerprint() => {
                Ok(Some(given.value.body))
            }
            Some(_) => Err(Problem::IdempotencyMismatch),
        }
    }

    /// The body is the stored one; the state is the current one.
    async fn replay_answer(
        &self,
        body: String,
        request: &Authorize,
        document: &AtpDocument,
    ) -> Result<ConsentAnswer, Problem> {
        if document.names_its_operation() {
            // The fingerprint excludes the signature, so the signature is verified here.
            let found = self.presented(request).await?;
            self.check_consent(request, &found.intent, document)?;
        }
        let state = self.state_of(request.intent_id()).await?;
        Ok(ConsentAnswer {
            body,
            state: state.unwrap_or(AtpState::Authorized),
            replayed: true,
        })
    }

    /// Checks that no other intent has claimed the same action, and returns the claim to store. The claim of an intent that
    /// expired or was compensated is void.
    pub(super) async fn check_action_free(
        &self,
        intent: &SignedIntent,
    ) -> Result<Option<Versioned<ActionClaim>>, Problem> {
        let window_s = self.options().dedup_window_s;
        let Some(action) = self.deduplicated(intent) else {
            return Ok(None);
        };
        let key = records::action_key(intent, action);
        let claimed: Option<Versioned<ActionClaim>> = self.read(key.clone()).await?;
        let own = ActionClaim {
            intent_id: intent.intent_id.clone(),
            at: self.now().0,
        };
        let expires_at = self.engine_now().plus(i64::from(window_s) * SECOND_US);
        let claim = |version| Versioned {
            version,
            expires_at: Some(expires_at),
            ..Versioned::new(key, own)
        };
        let Some(claimed) = claimed else {
            return Ok(Some(claim(0)));
        };
        let (state, _) = self.effective_state(&claimed.value.intent_id).await?;
        let came_to_nothing = matches!(
            state,
            None | Some(AtpState::Expired | AtpState::Compensated)
        );
        if came_to_nothing || claimed.value.intent_id == intent.intent_id {
            return Ok(Some(claim(claimed.version)));
        }
        Err(Problem::DuplicateAction {
            first_seen_at: Micros(claimed.value.at),
            window_s,
        })
    }

    /// The deduplication key of the action, if the check is enabled.
    fn deduplicated<'i>(&self, intent: &'i SignedIntent) -> Option<&'i String> {
        let is_on = self.options().dedup_window_s > 0;
        intent.action_dedup_key.as_ref().filter(|_| is_on)
    }

    /// Checks that all preconditions are settled, and returns the conditions under which this stays true until the commit.
    async fn check_preconditions(
        &self,
        intent: &SignedIntent,
    ) -> Result<Vec<RecordVersion>, Problem> {
        let mut unmet = Vec::new();
        let mut conditions = Vec::new();
        for intent_id in &intent.preconditions {
            match self.effective_state(intent_id).await? {
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

/// Marks the nonce of an intent as used.
fn use_nonce(intent: &SignedIntent, now: Micros, unit: &mut UnitOfWork) {
    let used = UsedNonce {
        intent_id: intent.intent_id.clone(),
        at: now.0,
    };
    unit.put(records::nonce_key(intent), &used);
}
