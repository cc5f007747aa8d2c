//! What is shown: intents with their transactions, receipts, and whether a document is one of ours.

use consign_engine::{EventFilter, IntentFilter};
use consign_kernel::ids::{FactSeq, Micros};
use consign_kernel::intent::Intent as Row;
use consign_kernel::profile::{Face, Profile, ProfileId};
use consign_kernel::state as kernel;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::print;
use super::books::{self, About, Belongs, Kept, Permission, Transaction};
use super::execute::raw;
use super::{Answer, Caller, OWNER, Site, damaged, unavailable};
use crate::document::{Document, VERIFY_BYTES_MAX};
use crate::ids;
use crate::instant;
use crate::intent::Intent;
use crate::key::IdempotencyKey;
use crate::problem::Problem;
use crate::request::Verify;
use crate::state::State;

/// How many transactions of one intent are shown with it; `more` says that there are others.
const SHOWN_MAX: u32 = 100;
/// Enough to see whether there is one, or several.
const ONE_OR_SEVERAL: u32 = 2;
/// How many intents a page of a list has.
pub(super) const LIST_MAX: u32 = 200;
/// How many open transactions are looked through for the oldest.
const OPEN_MAX: usize = 2_000;

impl Site {
    pub async fn intent(&self, intent_id: &str) -> Result<Answer, Problem> {
        let found = self.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        permission.value.check_caller(Caller::Agent)?;
        let (body, state) = self.intent_shown(&permission).await?;
        Ok(Answer::new(200, &body).at(state))
    }

    async fn intent_shown(&self, permission: &Kept<Permission>) -> Result<(Value, State), Problem> {
        let intent = permission.value.intent()?;
        let mut transactions = self.transactions(&intent.intent_id, SHOWN_MAX + 1).await?;
        let more = transactions.len() > SHOWN_MAX as usize;
        transactions.truncate(SHOWN_MAX as usize);
        let state = state(&permission.value, &intent, &transactions, self.now())?;
        let shown = transactions
            .iter()
            .map(shown)
            .collect::<Result<Vec<_>, _>>()?;
        let expired = permission.value.expired(&intent, self.now());
        let authorized_at = permission
            .value
            .authorized_at
            .map(|at| instant::print(Micros(at)));
        let mut body = json!({
            "ok": true,
            "intent_id": intent.intent_id,
            "state": state.word(),
            "intent_hash": intent.hash(),
            "created_at": instant::print(Micros(permission.value.created_at)),
            "expires_at": instant::print(intent.expires_at),
            "transactions": shown,
            "more": more,
            "data": {
                "id": intent.intent_id,
                "status": state.word(),
                "purpose": intent.purpose,
                "scope": intent.scope,
                "spend_cap_cents": intent.spend_cap.get(),
                "spent_cents": permission.value.committed_cents,
                "currency": intent.currency,
                "max_executions": intent.max_executions,
                "executions": permission.value.executions,
            },
        });
        if let Some(at) = authorized_at {
            body["authorized_at"] = at.into();
        }
        if let Some(reason) = expired.filter(|_| state == State::Expired) {
            body["expired_reason"] = reason.word().into();
        }
        Ok((body, state))
    }

    /// The latest intents, for operators.
    pub async fn intents(&self, limit: u32, offset: u32) -> Result<Answer, Problem> {
        let wanted = limit.clamp(1, LIST_MAX) as usize;
        let mut skip = offset as usize;
        let mut before = None;
        let mut listed = Vec::new();
        while listed.len() < wanted {
            let page = self.engine().intents(filter(before)).await;
            let page = page.map_err(|error| unavailable(&error))?;
            let permissions = page
                .intents
                .iter()
                .filter(|row| row.profile == ProfileId::AtpPermission);
            for row in permissions {
                if skip > 0 {
                    skip -= 1;
                } else if listed.len() < wanted
                    && let Some(permission) = self.permission(&row.goal).await?
                {
                    listed.push(self.intent_shown(&permission).await?.0);
                }
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok(Answer::new(200, &json!({"ok": true, "data": listed})))
    }

    pub async fn transaction_shown(&self, id: &str) -> Result<Answer, Problem> {
        let found = self.transaction_by_id(id).await?;
        let transaction = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        if transaction.value.manual.is_some() {
            return Err(Problem::Unauthorized);
        }
        let mut body = shown(&transaction)?;
        body["data"] = body.clone();
        let state = transaction.value.state()?;
        Ok(Answer::text(200, print(&body)).at(state))
    }

    /// Transactions for operators: those that are open first, the oldest of them at the top; or those in one state.
    pub async fn transactions_shown(
        &self,
        state: Option<&str>,
        limit: u32,
    ) -> Result<Answer, Problem> {
        let wanted = match state {
            None => [
                State::Executing,
                State::Executed,
                State::Settled,
                State::Compensated,
            ]
            .to_vec(),
            Some(word) => {
                vec![State::parse(word).ok_or_else(|| Problem::field("state", "is no state"))?]
            }
        };
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let mut listed = Vec::new();
        for state in wanted {
            let room = limit - listed.len();
            listed.extend(self.transactions_in(state, room).await?);
        }
        Ok(Answer::new(
            200,
            &json!({"ok": true, "transactions": listed}),
        ))
    }

    async fn transactions_in(&self, state: State, room: usize) -> Result<Vec<Value>, Problem> {
        let Some(row_state) = row_state(state) else {
            return Ok(Vec::new());
        };
        let open = !state.is_terminal();
        let mut before = None;
        let mut rows = Vec::new();
        // Of those that are open the oldest count, and a list begins with the newest.
        while room > 0 && (rows.len() < room || open && rows.len() < OPEN_MAX) {
            let filter = IntentFilter {
                state: Some(row_state),
                ..filter(before)
            };
            let page = self.engine().intents(filter).await;
            let page = page.map_err(|error| unavailable(&error))?;
            rows.extend(page.intents.into_iter().filter(is_transaction));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        if open {
            rows.reverse();
        }
        rows.truncate(room);
        let mut listed = Vec::new();
        for row in rows {
            let about = about(&row)?;
            let key = IdempotencyKey::stored(about.key);
            if let Some(transaction) = self.transaction(&about.intent_id, &key).await? {
                let mut one = shown(&transaction)?;
                one["attempts"] = row.attempts.into();
                one["alert"] = transaction.value.alert.clone().into();
                listed.push(one);
            }
        }
        Ok(listed)
    }

    /// The log of transitions, oldest first, and where to go on.
    pub async fn audit(&self, after: u64) -> Result<Answer, Problem> {
        let filter = EventFilter {
            face: Face::Transaction,
            owner: OWNER.to_owned(),
            after: FactSeq(after),
            limit: 500,
        };
        let page = self.engine().events(filter).await;
        let page = page.map_err(|error| unavailable(&error))?;
        let moves = page
            .events
            .iter()
            .filter(|event| event.fact.from != Some(event.fact.to));
        let moves: Vec<_> = moves
            .map(|event| {
                let profile = event_profile(event.fact.to);
                let word = |state| State::of_row(profile, state, event.fact.cause).map(State::word);
                json!({
                    "seq": event.fact.seq.0,
                    "at": instant::print(event.fact.at),
                    "intent_id": event.goal,
                    "row": event.id.to_string(),
                    "from": event.fact.from.and_then(word),
                    "to": word(event.fact.to),
                    "cause": event.fact.cause.name(),
                })
            })
            .collect();
        let body =
            json!({"ok": true, "transitions": moves, "next": page.seen.0, "more": page.more});
        Ok(Answer::new(200, &body))
    }

    pub(super) async fn transaction_by_id(
        &self,
        id: &str,
    ) -> Result<Option<Kept<Transaction>>, Problem> {
        let Some(row) = ids::transaction_row(id) else {
            return Ok(None);
        };
        let found = self.engine().observe(row).await;
        let found = found.map_err(|error| unavailable(&error))?;
        match found.filter(is_transaction) {
            None => Ok(None),
            Some(row) => {
                let about = about(&row)?;
                let key = IdempotencyKey::stored(about.key);
                self.transaction(&about.intent_id, &key).await
            }
        }
    }

    pub async fn receipt_shown(&self, receipt_id: &str) -> Result<Answer, Problem> {
        let text = self.stored_receipt(receipt_id).await?;
        let (transaction, text) = text.ok_or(Problem::NotFound { what: "receipt" })?;
        let receipt: Value = serde_json::from_str(&text).map_err(|_| damaged("receipt"))?;
        // The receipt itself is put in as the text it is.
        let body = raw(text)?;
        let shown = ShownReceipt {
            ok: true,
            receipt: &body,
            data: ReceiptData {
                id: receipt_id,
                transaction_id: transaction.value.id(),
                issued_at: &receipt["issued_at"],
                body: &body,
            },
        };
        Ok(Answer::text(200, print(&shown)))
    }

    pub async fn receipts_of(&self, intent_id: &str) -> Result<Answer, Problem> {
        let found = self.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        permission.value.check_caller(Caller::Agent)?;
        let transactions = self.transactions(intent_id, SHOWN_MAX).await?;
        let receipts: Vec<_> = transactions
            .iter()
            .flat_map(|transaction| {
                let both = [
                    &transaction.value.receipt,
                    &transaction.value.compensation_receipt,
                ];
                both.into_iter().flatten()
            })
            .collect();
        let receipts = print(&receipts);
        Ok(Answer::text(
            200,
            format!("{{\"ok\":true,\"receipts\":{receipts}}}"),
        ))
    }

    async fn stored_receipt(
        &self,
        receipt_id: &str,
    ) -> Result<Option<(Kept<Transaction>, String)>, Problem> {
        let belongs: Option<Kept<Belongs>> = self.read(books::receipt_key(receipt_id)).await?;
        let Some(Kept { value, .. }) = belongs else {
            return Ok(None);
        };
        let key = IdempotencyKey::stored(value.key);
        let found = self.transaction(&value.intent_id, &key).await?;
        let transaction = found.ok_or_else(|| damaged("receipt"))?;
        // A transaction has at most one document of each kind, and the name tells the kind.
        let document = if ids::names_compensation(receipt_id) {
            &transaction.value.compensation_receipt
        } else {
            &transaction.value.receipt
        };
        let text = document.as_ref().map(|document| document.get().to_owned());
        Ok(text.map(|text| (transaction, text)))
    }

    /// Needs no secret, and trusts no key that comes along.
    pub async fn verify(&self, body: &[u8]) -> Result<Answer, Problem> {
        let body = Document::read(body, VERIFY_BYTES_MAX)?;
        let (document, text) = match Verify::read(&body)? {
            Verify::Document(document) => (*document, None),
            Verify::Id(id) => {
                let found = self.stored_receipt(&id).await?;
                let (_, text) = found.ok_or(Problem::NotFound { what: "receipt" })?;
                let document = Document::read(text.as_bytes(), usize::MAX)?;
                (document, Some(text))
            }
        };
        let mut verification = self.keys().ring.verify(&document, self.now());
        verification.stored = text.is_some() || self.is_stored(&document).await?;
        Ok(Answer::text(
            200,
            print(&json!({"ok": true, "verification": verification})),
        ))
    }

    async fn is_stored(&self, document: &Document) -> Result<bool, Problem> {
        let id = document.get("receipt_id");
        let Some(id) = id.and_then(|id| id.as_str().map(std::borrow::Cow::into_owned)) else {
            return Ok(false);
        };
        let Some((_, text)) = self.stored_receipt(&id).await? else {
            return Ok(false);
        };
        let stored = Document::read(text.as_bytes(), usize::MAX)?;
        Ok(stored.hash() == document.hash())
    }

    /// The state of an intent; none if there is no such intent.
    pub(super) async fn state_of(&self, intent_id: &str) -> Result<Option<State>, Problem> {
        let Some(permission) = self.permission(intent_id).await? else {
            return Ok(None);
        };
        let intent = permission.value.intent()?;
        let transactions = self.transactions(intent_id, ONE_OR_SEVERAL).await?;
        state(&permission.value, &intent, &transactions, self.now()).map(Some)
    }

    /// A settled transaction under this intent.
    pub(super) async fn settled_under(
        &self,
        intent_id: &str,
    ) -> Result<Option<Kept<Transaction>>, Problem> {
        let mut after = String::new();
        loop {
            let page = self
                .transactions_after(intent_id, &after, SHOWN_MAX)
                .await?;
            let Some(last) = page.last() else {
                return Ok(None);
            };
            last.key.name.clone_into(&mut after);
            let settled = |one: &Kept<Transaction>| one.value.state == State::Settled.word();
            if let Some(found) = page.into_iter().find(settled) {
                return Ok(Some(found));
            }
        }
    }
}

#[derive(Serialize)]
struct ShownReceipt<'a> {
    ok: bool,
    receipt: &'a RawValue,
    data: ReceiptData<'a>,
}

#[derive(Serialize)]
struct ReceiptData<'a> {
    id: &'a str,
    transaction_id: String,
    issued_at: &'a Value,
    body: &'a RawValue,
}

/// Not the row of a refund.
fn is_transaction(row: &Row) -> bool {
    row.profile == ProfileId::AtpTransaction && row.ties.parent.is_none()
}

fn row_state(state: State) -> Option<kernel::State> {
    match state {
        State::Executing => Some(kernel::State::Dispatched),
        State::Executed => Some(kernel::State::Delivered),
        State::Settled => Some(kernel::State::Acked),
        State::Compensated => Some(kernel::State::Failed),
        State::Created | State::Authorized | State::Expired => None,
    }
}

/// The two profiles of this face share no state that a row can enter.
fn event_profile(entered: kernel::State) -> &'static Profile {
    let permission = ProfileId::AtpPermission.profile();
    if permission.word(entered, kernel::Cause::None).is_some() {
        return permission;
    }
    ProfileId::AtpTransaction.profile()
}

pub(super) fn filter(before: Option<consign_kernel::ids::Seq>) -> IntentFilter {
    IntentFilter {
        face: Face::Transaction,
        owner: Some(OWNER.to_owned()),
        namespace: None,
        goal: None,
        state: None,
        before,
        limit: 100,
    }
}

pub(super) fn about(row: &Row) -> Result<About, Problem> {
    serde_json::from_str(&row.payload).map_err(|_| damaged("row"))
}

fn shown(transaction: &Kept<Transaction>) -> Result<Value, Problem> {
    let shown = transaction.shown()?;
    serde_json::to_value(shown).map_err(|_| damaged("transaction"))
}

/// With one execution the intent is where its transaction is; with several it keeps to its own.
fn state(
    permission: &Permission,
    intent: &Intent,
    transactions: &[Kept<Transaction>],
    now: Micros,
) -> Result<State, Problem> {
    match transactions {
        [only] if intent.max_executions == 1 => only.value.state(),
        _ => Ok(permission.state(intent, now)),
    }
}
