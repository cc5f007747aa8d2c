//! Permissions that the site creates for a user.

use consign_engine::{TRIES_MAX, UnitOfWork};
use consign_kernel::command::{Command, Operate};
use consign_kernel::ids::{DAY_US, Micros, SECOND_US};
use consign_kernel::json::canonical;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;
use serde_json::{Map, Value, json};

use super::views::{CompatStatus, UserIntent, UserIntentList};
use super::{ForUser, read_body};
use crate::document::AtpDocument;
use crate::envelope::RequestOperation;
use crate::fields::DocumentFields;
use crate::ids;
use crate::instant;
use crate::intent::{self, SignedIntent};
use crate::problem::Problem;
use crate::rail::ManualRail;
use crate::site::lists::LIST_MAX;
use crate::site::records::{self, UsedNonce};
use crate::site::{SiteCaller, unavailable};

/// Members that are copied from the request unchanged.
const TAKEN_OVER: [&str; 8] = [
    "agent_id",
    "currency",
    "max_executions",
    "metadata",
    "purpose",
    "scope",
    "site_id",
    "spend_cap_cents",
];
const TTL_S: std::ops::RangeInclusive<i64> = 30..=604_800;
const TTL_S_DEFAULT: i64 = 3_600;
const LIST_DEFAULT: u32 = 50;
/// How long a draft stays in the user's list: longer than any draft lives.
const DRAFT_LISTED_US: i64 = 9 * DAY_US;
/// The largest offset into a list.
const OFFSET_MAX: u32 = 10_000;
const REASON_CHARS_MAX: usize = 500;
const INEXACT: &str = "contains a number that is not exact in every JSON parser; send it as text";

impl ForUser {
    pub async fn create(&self, body: &[u8]) -> Result<UserIntent, Problem> {
        let intent = self.draft_intent(&read_body(body)?)?;
        let mut permission = self.site.new_permission(&intent);
        permission.value.user = Some(self.user.clone());
        let created_at = Micros(permission.value.created_at);
        let listing = records::listing_key(&self.user, created_at, &intent.intent_id);
        let mut unit = UnitOfWork::default();
        unit.begin(records::begin_permission(
            permission.value.row()?,
            &intent,
            created_at,
            Some((format!("user:{}", self.user), self.site.open_limits())),
        ));
        unit.replace(&permission);
        // A draft without consent is removed, and this entry with it.
        let until = self.site.engine_now().plus(DRAFT_LISTED_US);
        unit.put_until(listing, &intent.intent_id, until);
        // The id is random, so no concurrent request can have used it.
        let committed = self.site.commit(unit).await?;
        committed.ok_or(Problem::StoreUnavailable)?;
        Ok(UserIntent::of(&permission.value, intent, created_at))
    }

    /// The document that an agent would have signed.
    fn draft_intent(&self, request: &AtpDocument) -> Result<SignedIntent, Problem> {
        let fields = DocumentFields::of(request);
        let ttl_s = fields.read("ttl_seconds", "an integer from 30 to 604800", |value| {
            value.as_i64().filter(|seconds| TTL_S.contains(seconds))
        })?;
        let mut document = Map::new();
        for name in TAKEN_OVER {
            if let Some(value) = fields.get(name) {
                // 1e16 is valid JSON, but its canonical form is an integer that is refused.
                let exact = canonical(value.text().as_bytes());
                exact.map_err(|_| fields.refuse(name, INEXACT))?;
                let unread = |_| fields.refuse(name, "cannot be read");
                let value = serde_json::from_str(value.text()).map_err(unread)?;
                document.insert(name.to_owned(), value);
            }
        }
        let keys = self.site.keys();
        let now = self.site.now();
        let mut entropy = self.site.engine().entropy();
        let expires_at = now.plus(ttl_s.unwrap_or(TTL_S_DEFAULT) * SECOND_US);
        let own = [
            ("type", json!(intent::TYPE)),
            ("intent_id", json!(ids::intent(entropy.draw()))),
            ("site", json!(self.site.origin())),
            ("agent_key", json!(keys.signer.public().to_string())),
            ("user_id", json!(self.user)),
            ("nonce", json!(format!("{:032x}", entropy.draw()))),
            ("issued_at", json!(instant::print(now))),
            ("expires_at", json!(instant::print(expires_at))),
            ("rail", json!({"name": ManualRail::NAME})),
        ];
        document.extend(own.map(|(name, value)| (name.to_owned(), value)));
        let signed = keys.signer.sign(&Value::Object(document), now);
        let intent = SignedIntent::read(AtpDocument::read(signed.text.as_bytes(), usize::MAX)?)?;
        intent.check_currency()?;
        Ok(intent)
    }

    /// The user's own intents, latest first.
    pub async fn intents(
        &self,
        limit: Option<u32>,
        offset: Option<u32>,
    ) -> Result<UserIntentList, Problem> {
        let limit = limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        let offset = offset.unwrap_or(0).min(OFFSET_MAX);
        let engine = self.site.engine();
        let listed = engine.records(Kind::Permission, &self.user, "", offset + limit);
        let listed = listed.await.map_err(|error| unavailable(&error))?;
        let mut intents = Vec::new();
        for entry in listed.iter().skip(offset as usize) {
            let Some((_, intent_id)) = entry.key.name.split_once(':') else {
                continue;
            };
            // A draft is removed some time after its end.
            let Some(permission) = self.site.permission(intent_id).await? else {
                continue;
            };
            permission
                .value
                .check_caller(SiteCaller::User(&self.user))?;
            let intent = permission.value.intent()?;
            let now = self.site.judged_at(&permission.value, &intent).await?;
            intents.push(UserIntent::of(&permission.value, intent, now));
        }
        Ok(UserIntentList { intents })
    }

    pub async fn intent(&self, intent_id: &str) -> Result<UserIntent, Problem> {
        let permission = self.permission(intent_id).await?;
        let intent = permission.value.intent()?;
        let now = self.site.judged_at(&permission.value, &intent).await?;
        Ok(UserIntent::of(&permission.value, intent, now))
    }

    /// The user's consent: once, and before expiry.
    pub async fn authorize(&self, intent_id: &str) -> Result<UserIntent, Problem> {
        for _ in 0..TRIES_MAX {
            let mut permission = self.permission(intent_id).await?;
            let intent = permission.value.intent()?;
            let now = self.site.judged_at(&permission.value, &intent).await?;
            match CompatStatus::of(&permission.value, &intent, now) {
                CompatStatus::Draft => {}
                CompatStatus::Expired if permission.value.authorized_at.is_none() => {
                    return Err(Problem::Expired);
                }
                status @ (CompatStatus::Authorized
                | CompatStatus::Consumed
                | CompatStatus::Revoked
                | CompatStatus::Expired) => {
                    return Err(status.cannot_become(CompatStatus::Authorized));
                }
            }
            permission.value.authorized_at = Some(now.0);
            let created_at = Micros(permission.value.created_at);
            let listing = records::listing_key(&self.user, created_at, &intent.intent_id);
            let used = UsedNonce {
                intent_id: intent.intent_id.clone(),
                at: now.0,
            };
            let mut unit = UnitOfWork::default();
            unit.replace(&permission);
            unit.expect(records::nonce_key(&intent), 0);
            unit.require(Command::validate(Operate {
                id: permission.value.row()?,
                face: Face::Transaction,
                reason: String::new(),
            }));
            unit.put(records::nonce_key(&intent), &used);
            unit.put(listing, &intent.intent_id);
            if self.site.commit(unit).await?.is_some() {
                return Ok(UserIntent::of(&permission.value, intent, now));
            }
        }
        Err(Problem::StoreUnavailable)
    }

    pub async fn revoke(&self, intent_id: &str, body: &[u8]) -> Result<UserIntent, Problem> {
        let request = read_body(body)?;
        self.check_envelope(&request, RequestOperation::Cancel)?;
        let reason = DocumentFields::of(&request).text("reason", 0..=REASON_CHARS_MAX)?;
        for _ in 0..TRIES_MAX {
            let mut permission = self.permission(intent_id).await?;
            let intent = permission.value.intent()?;
            let now = self.site.judged_at(&permission.value, &intent).await?;
            let status = CompatStatus::of(&permission.value, &intent, now);
            if !matches!(status, CompatStatus::Draft | CompatStatus::Authorized) {
                return Err(status.cannot_become(CompatStatus::Revoked));
            }
            let reason = reason.clone().unwrap_or_default();
            if self.site.withdraw(&mut permission, reason).await? {
                return Ok(UserIntent::of(&permission.value, intent, now));
            }
        }
        Err(Problem::StoreUnavailable)
    }
}
