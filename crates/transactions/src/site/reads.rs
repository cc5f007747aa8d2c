//! What is shown: intents with their transactions, receipts, and whether a document is one of ours.

use consign_engine::{EventFilter, IntentFilter};
use consign_kernel::fact::Event;
use consign_kernel::ids::{FactSeq, Micros, Seq};
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
use crate::rail::Manual;
use crate::request::Verify;
use crate::state::State;

/// How many transactions of one intent are shown with it; `more` says that there are others.
const SHOWN_MAX: u32 = 100;
/// Enough to see whether there is one, or several.
const ONE_OR_SEVERAL: u32 = 2;
/// How many intents a page of a list has.
pub(super) const LIST_MAX: u32 = 200;
/// How many transactions each of them is listed with.
const LISTED_MAX: u32 = 10;
/// Beyond it a list is gone through by its ends.
const OFFSET_MAX: u32 = 10_000;
/// How many rows are read at once, and how often for one list; then it is short, and tells where to go on.
const PAGE_ROWS: u32 = 500;
const PAGES_MAX: u32 = 50;
/// What is under way is read with its record each, to see what it is about.
const URGENT_PAGES_MAX: u32 = 4;

impl Site {
    pub async fn intent(&self, intent_id: &str) -> Result<Answer, Problem> {
        self.intent_for(Caller::Agent, intent_id).await
    }

    /// For operators, whoever it belongs to.
    pub async fn any_intent(&self, intent_id: &str) -> Result<Answer, Problem> {
        self.intent_for(Caller::Operator, intent_id).await
    }

    async fn intent_for(&self, caller: Caller<'_>, intent_id: &str) -> Result<Answer, Problem> {
        let found = self.permission(intent_id).await?;
        let permission = found.ok_or(Problem::IntentNotFound)?;
        permission.value.check_caller(caller)?;
        let (body, state) = self.intent_shown(&permission, SHOWN_MAX).await?;
        Ok(Answer::new(200, &body).at(state))
    }

    /// With so many of its transactions.
    async fn intent_shown(
        &self,
        permission: &Kept<Permission>,
        shown_max: u32,
    ) -> Result<(Value, State), Problem> {
        let intent = permission.value.intent()?;
        let mut transactions = self.transactions(&intent.intent_id, shown_max + 1).await?;
        let more = transactions.len() > shown_max as usize;
        transactions.truncate(shown_max as usize);
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

    /// The latest intents, for operators, with their first transactions but without receipts. `next` of the answer is
    /// `from` of the next page.
    pub async fn intents(
        &self,
        limit: u32,
        offset: u32,
        before: Option<u64>,
    ) -> Result<Answer, Problem> {
        if offset > OFFSET_MAX {
            let reason = format!(
                "must be at most {OFFSET_MAX}; go on with from=, which each page tells as next"
            );
            return Err(Problem::field("offset", reason));
        }
        let wanted = (limit.clamp(1, LIST_MAX) + offset) as usize;
        let is_permission = |row: &Row| row.profile == ProfileId::AtpPermission;
        let filter = filter(None, before.map(Seq));
        let (rows, next) = self.newest(filter, wanted, is_permission).await?;
        let mut listed = Vec::new();
        for row in rows.iter().skip(offset as usize) {
            if let Some(permission) = self.permission(&row.goal).await? {
                let (mut body, _) = self.intent_shown(&permission, LISTED_MAX).await?;
                leave_out_receipts(&mut body);
                listed.push(body);
            }
        }
        let next = next.map(|seq| seq.0);
        Ok(Answer::new(
            200,
            &json!({"ok": true, "data": listed, "next": next}),
        ))
    }

    /// The newest rows of a kind, and where to go on if there may be more.
    async fn newest(
        &self,
        mut filter: IntentFilter,
        wanted: usize,
        is_wanted: impl Fn(&Row) -> bool,
    ) -> Result<(Vec<Row>, Option<Seq>), Problem> {
        let mut rows = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.engine().intents(filter.clone()).await;
            let page = page.map_err(|error| unavailable(&error))?;
            rows.extend(page.intents.into_iter().filter(&is_wanted));
            if rows.len() > wanted {
                rows.truncate(wanted);
                let next = rows.last().map(|row| row.seq);
                return Ok((rows, next));
            }
            filter.before = page.next;
            if rows.len() == wanted || filter.before.is_none() {
                break;
            }
        }
        Ok((rows, filter.before))
    }

    pub async fn transaction_shown(&self, id: &str) -> Result<Answer, Problem> {
        self.transaction_for(Caller::Agent, id).await
    }

    /// For operators, whoever it belongs to.
    pub async fn any_transaction(&self, id: &str) -> Result<Answer, Problem> {
        self.transaction_for(Caller::Operator, id).await
    }

    async fn transaction_for(&self, caller: Caller<'_>, id: &str) -> Result<Answer, Problem> {
        let found = self.transaction_by_id(id).await?;
        let transaction = found.ok_or(Problem::NotFound {
            what: "transaction",
        })?;
        if transaction.value.manual.is_some() && matches!(caller, Caller::Agent) {
            return Err(Problem::Unauthorized);
        }
        let mut body = shown(&transaction)?;
        body["data"] = body.clone();
        let state = transaction.value.state()?;
        Ok(Answer::text(200, print(&body)).at(state))
    }

    /// Transactions for operators: without a state what is under way, refunds among them, the oldest first, and then the latest
    /// that ended; with one, those in it. `next` of the answer is `from` of the next page.
    pub async fn transactions_shown(
        &self,
        state: Option<&str>,
        limit: u32,
        from: Option<u64>,
    ) -> Result<Answer, Problem> {
        let room = limit.clamp(1, LIST_MAX) as usize;
        let (listed, next) = match state {
            Some(word) => self.in_state(word, room, from.map(Seq)).await?,
            // Where a list of several states would go on is not one place.
            None => (self.most_urgent(room).await?, None),
        };
        let next = next.map(|seq| seq.0);
        Ok(Answer::new(
            200,
            &json!({"ok": true, "transactions": listed, "next": next}),
        ))
    }

    async fn in_state(
        &self,
        word: &str,
        room: usize,
        from: Option<Seq>,
    ) -> Result<(Vec<Value>, Option<Seq>), Problem> {
        let state = State::parse(word).ok_or_else(|| Problem::field("state", "is no state"))?;
        let Some(row_state) = row_state(state) else {
            return Ok((Vec::new(), None));
        };
        let (rows, next) = if state.is_terminal() {
            let filter = filter(Some(row_state), from);
            self.newest(filter, room, is_transaction).await?
        } else {
            self.oldest_open(row_state, room, from).await?
        };
        let mut listed = Vec::new();
        for row in rows {
            listed.extend(self.listed(&row).await?);
        }
        Ok((listed, next))
    }

    /// What may need a person comes first. Whoever reports effects comes by itself, so that is left out.
    async fn most_urgent(&self, room: usize) -> Result<Vec<Value>, Problem> {
        let mut listed: Vec<Value> = Vec::new();
        for state in [kernel::State::Dispatched, kernel::State::Delivered] {
            let mut after = Seq(0);
            for _ in 0..URGENT_PAGES_MAX {
                let page = self.open_after(state, after).await?;
                let Some(last) = page.last().filter(|_| listed.len() < room) else {
                    break;
                };
                after = last.seq;
                for row in &page {
                    let one = self.listed(row).await?;
                    listed.extend(one.filter(|one| one["rail"]["name"] != Manual::NAME));
                }
            }
        }
        for state in [kernel::State::Acked, kernel::State::Failed] {
            let more = room.saturating_sub(listed.len());
            let filter = filter(Some(state), None);
            let (rows, _) = self.newest(filter, more, is_transaction).await?;
            for row in rows.iter().take(more) {
                let one = self.listed(row).await?;
                let is_new = |one: &Value| {
                    let id = &one["transaction_id"];
                    listed.iter().all(|other| other["transaction_id"] != *id)
                };
                let one = one.filter(is_new);
                listed.extend(one);
            }
        }
        listed.truncate(room);
        Ok(listed)
    }

    /// Open ones for longest, and where to go on if there may be more.
    async fn oldest_open(
        &self,
        state: kernel::State,
        room: usize,
        from: Option<Seq>,
    ) -> Result<(Vec<Row>, Option<Seq>), Problem> {
        let mut rows: Vec<Row> = Vec::new();
        let mut after = from.unwrap_or(Seq(0));
        while rows.len() <= room {
            let page = self.open_after(state, after).await?;
            let Some(last) = page.last() else {
                return Ok((rows, None));
            };
            after = last.seq;
            rows.extend(page.into_iter().filter(is_transaction));
        }
        rows.truncate(room);
        let next = rows.last().map(|row| row.seq);
        Ok((rows, next))
    }

    /// Transactions and refunds that are not at their end, in the order in which they were begun.
    pub(super) async fn open_after(
        &self,
        state: kernel::State,
        after: Seq,
    ) -> Result<Vec<Row>, Problem> {
        let profile = ProfileId::AtpTransaction;
        let page = self
            .engine()
            .under_way(profile, state, after, PAGE_ROWS)
            .await;
        page.map_err(|error| unavailable(&error))
    }

    /// As operators see it.
    pub(super) async fn listed(&self, row: &Row) -> Result<Option<Value>, Problem> {
        let about = about(row)?;
        let key = IdempotencyKey::stored(about.key);
        let Some(transaction) = self.transaction(&about.intent_id, &key).await? else {
            return Ok(None);
        };
        let mut one = shown(&transaction)?;
        one["attempts"] = row.attempts.into();
        one["rail"]["payment_id"] = transaction.value.payment_id.into();
        one["alert"] = transaction.value.alert.into();
        one["compensation"] = transaction.value.compensation.map_or(Value::Null, |asked| {
            json!({
                "requested_at": asked.requested_at,
                "reason": asked.reason,
                "refused": asked.refused,
            })
        });
        one["operator_word"] = transaction.value.word.map_or(Value::Null, |word| {
            json!({
                "happened": word.happened,
                "reason": word.reason,
                "at": instant::print(Micros(word.at)),
            })
        });
        Ok(Some(one))
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
        let mut moves = Vec::new();
        for event in &page.events {
            if self.is_transition(event).await? {
                moves.push(transition(event));
            }
        }
        let body =
            json!({"ok": true, "transitions": moves, "next": page.seen.0, "more": page.more});
        Ok(Answer::new(200, &body))
    }

    /// Whether it is a step of an intent, as the protocol counts them. A refund's own row is no part of that; nor does a
    /// permission that was used expire.
    async fn is_transition(&self, event: &Event) -> Result<bool, Problem> {
        let fact = &event.fact;
        if fact.from == Some(fact.to) || event.parent.is_some() {
            return Ok(false);
        }
        if (fact.to, fact.cause) != (kernel::State::DeadLetter, kernel::Cause::Expired) {
            return Ok(true);
        }
        let permission = self.permission(&event.goal).await?;
        Ok(permission.is_none_or(|permission| permission.value.executions == 0))
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

    /// What others may count on: settled or under way as long as one of its transactions is, else its own state.
    pub(super) async fn fate_of(&self, intent_id: &str) -> Result<Option<State>, Problem> {
        let own = self.state_of(intent_id).await?;
        let mut after = String::new();
        let mut fate = own;
        loop {
            let page = self
                .transactions_after(intent_id, &after, SHOWN_MAX)
                .await?;
            let Some(last) = page.last() else {
                return Ok(fate);
            };
            last.key.name.clone_into(&mut after);
            for transaction in &page {
                match transaction.value.state()? {
                    State::Settled => return Ok(Some(State::Settled)),
                    open @ (State::Executing | State::Executed) => fate = Some(open),
                    State::Created | State::Authorized | State::Expired | State::Compensated => {}
                }
            }
        }
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

fn transition(event: &Event) -> Value {
    let fact = &event.fact;
    let profile = event_profile(fact.to);
    let word = |state| State::of_row(profile, state, fact.cause).map(State::word);
    // A transaction begins where its permission stood.
    let begun = (profile.id == ProfileId::AtpTransaction).then_some(State::Authorized.word());
    json!({
        "seq": fact.seq.0,
        "at": instant::print(fact.at),
        "intent_id": event.goal,
        "row": event.id.to_string(),
        "from": fact.from.map_or(begun, word),
        "to": word(fact.to),
        "cause": fact.cause.name(),
    })
}

/// The two profiles of this face share no state that a row can enter.
fn event_profile(entered: kernel::State) -> &'static Profile {
    let permission = ProfileId::AtpPermission.profile();
    if permission.word(entered, kernel::Cause::None).is_some() {
        return permission;
    }
    ProfileId::AtpTransaction.profile()
}

fn filter(state: Option<kernel::State>, before: Option<Seq>) -> IntentFilter {
    IntentFilter {
        face: Face::Transaction,
        owner: Some(OWNER.to_owned()),
        namespace: None,
        goal: None,
        state,
        before,
        limit: PAGE_ROWS,
    }
}

pub(super) fn about(row: &Row) -> Result<About, Problem> {
    serde_json::from_str(&row.payload).map_err(|_| damaged("row"))
}

fn leave_out_receipts(intent: &mut Value) {
    let transactions = intent["transactions"].as_array_mut();
    for one in transactions.into_iter().flatten() {
        if let Some(members) = one.as_object_mut() {
            members.retain(|name, _| !name.ends_with("receipt"));
        }
    }
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
