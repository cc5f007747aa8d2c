//! The columns of the table `intents`, listed once for both databases.
//!
//! Names, values and the struct that is read all follow from `intent_table`, so their order cannot differ. The order is
//! that of the row types of the PostgreSQL schema. A new field of [`Intent`] does not compile until it has a column here.

use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, ResultKind, Shelf};
use consign_kernel::lane::Lanes;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{Cause, State};

/// Expands `$then!` with the columns of `intents`: mark, name, the cell to write; and with the intent that they make.
///
/// Marks: a step can change `step` columns, of which `lead` is the first, and never changes `fixed` ones. `lane` columns follow
/// from the others and are only written. PostgreSQL alone has `node`.
macro_rules! intent_table {
    ($then:ident ($($given:tt)*) $intent:ident $lanes:ident $node:ident) => {
        $then! {
            ($($given)*)
            key seq = $intent.seq,
            lead state = $intent.state,
            step cause = $intent.cause,
            step shelf = $intent.shelf,
            step wake_at = $intent.wake_at,
            lane own_lane = $lanes.map(|lanes| lanes.own),
            lane own_goal_lane = $lanes.map(|lanes| lanes.own_goal),
            lane public_lane = $lanes.and_then(|lanes| lanes.public),
            lane public_goal_lane = $lanes.and_then(|lanes| lanes.public_goal),
            step run_at = $intent.run_at,
            step attempts = $intent.attempts,
            step expires_at = $intent.expires_at,
            step claimed_at = $intent.claimed_at,
            step lease_until = $intent.lease_until,
            step settled_at = $intent.settled_at,
            step last_fact = $intent.last_fact,
            node node = $crate::columns::Cell::Node($node),
            step holder = $intent.holder.as_deref(),
            step worker = $intent.worker.as_deref(),
            step token = $intent.token.as_ref(),
            step last_error = $intent.last_error.as_deref(),
            step result_kind = $intent.result.as_ref().map(|result| result.kind),
            step result = $intent.result.as_ref().map(|result| &*result.body),
            fixed id = &$intent.id,
            fixed profile = $intent.profile,
            fixed priority = $intent.priority,
            fixed attempts_max = $intent.attempts_max,
            fixed backoff_us = $intent.backoff_us,
            fixed created_at = $intent.created_at,
            fixed namespace = &*$intent.namespace,
            fixed goal = &*$intent.goal,
            fixed owner = &*$intent.owner,
            fixed public = $intent.public,
            fixed payload = &*$intent.payload,
            fixed target = $intent.target.as_deref(),
            fixed capability = $intent.capability.as_deref(),
            fixed traceparent = $intent.traceparent.as_deref(),
            fixed parent = $intent.ties.parent.as_ref(),
            fixed series = $intent.ties.series.as_deref(),
            fixed sender = $intent.ties.sender.as_deref(),
            => (
            ::consign_kernel::intent::Intent {
                seq,
                id,
                profile,
                namespace,
                goal,
                owner,
                public,
                target,
                capability,
                priority,
                payload,
                traceparent,
                ties: ::consign_kernel::intent::Ties { parent, series, sender },
                attempts,
                attempts_max,
                backoff_us,
                created_at,
                run_at,
                expires_at,
                state,
                cause,
                shelf,
                wake_at,
                holder,
                worker,
                token,
                claimed_at,
                lease_until,
                settled_at,
                last_error,
                result: Option::zip(result_kind, result)
                    .map(|(kind, body)| ::consign_kernel::intent::Outcome { kind, body }),
                last_fact,
            }
            )
        }
    };
}

/// Expands `$then!` with the columns of an outline.
macro_rules! outline_table {
    ($then:ident ($($given:tt)*)) => {
        $then! {
            ($($given)*)
            seq, id, profile, state, cause, run_at, attempts, attempts_max, priority, created_at, claimed_at, settled_at,
            expires_at, last_fact, namespace, goal, owner, target, capability, holder,
            worker, last_error
        }
    };
}

/// The columns to `read`, to `write`, to `change`, all but the `fixed` ones (`unfixed`) or `all`, as a list in a statement;
/// see [`column_text`] for its forms.
macro_rules! column_list {
    ($which:ident $($form:tt)*) => {
        intent_table!(column_texts ($which ($($form)*)) intent lanes node)
    };
}

macro_rules! column_texts {
    (($which:ident $form:tt) $($mark:ident $column:ident = $value:expr,)* => $row:tt) => {
        concat!("" $(, if_among!($which $mark separator!($which $mark), column_text!($form $column)))*)
    };
}

/// Texts in one, or an empty text if columns with this mark are not wanted.
macro_rules! if_among {
    (read lane $($text:tt)*) => { "" };
    (read node $($text:tt)*) => { "" };
    (write node $($text:tt)*) => { "" };
    (change key $($text:tt)*) => { "" };
    (change node $($text:tt)*) => { "" };
    (change fixed $($text:tt)*) => { "" };
    (unfixed fixed $($text:tt)*) => { "" };
    ($which:ident $mark:ident $($text:tt)*) => { concat!($($text)*) };
}

/// Before the text of a column, unless it is the first of the list.
macro_rules! separator {
    ($which:ident key) => {
        ""
    };
    (change lead) => {
        ""
    };
    ($which:ident $mark:ident) => {
        ", "
    };
}

macro_rules! column_text {
    ((name $prefix:literal) $column:ident) => {
        concat!($prefix, stringify!($column))
    };
    ((parameter) $column:ident) => {
        "?"
    };
    ((set parameter) $column:ident) => {
        concat!(stringify!($column), " = ?")
    };
    ((set excluded) $column:ident) => {
        concat!(stringify!($column), " = excluded.", stringify!($column))
    };
}

/// Reads an intent: `$cell` reads the cell at an index as the type of its field.
macro_rules! read_intent {
    ($from:ident, $cell:ident) => {
        intent_table!(read_columns ($from $cell) intent lanes node)
    };
}

macro_rules! read_columns {
    (($from:ident $cell:ident) $($mark:ident $column:ident = $value:expr,)* => $row:tt) => {{
        let mut indexes = 0..;
        let mut next = || indexes.next().unwrap_or_default();
        $(read_column!($mark $column = $cell($from, next())?);)*
        Ok $row
    }};
}

macro_rules! read_column {
    (lane $($rest:tt)*) => {};
    (node $($rest:tt)*) => {};
    ($mark:ident $column:ident = $read:expr) => {
        let $column = $read;
    };
}

/// The columns of an outline as a list of names, each after a prefix.
macro_rules! outline_names {
    ($prefix:literal) => {
        outline_table!(outline_texts($prefix))
    };
}

macro_rules! outline_texts {
    (($prefix:literal) $first:ident $(, $column:ident)*) => {
        concat!($prefix, stringify!($first) $(, ", ", $prefix, stringify!($column))*)
    };
}

macro_rules! count_names {
    (() $($column:ident),*) => {
        [$(stringify!($column)),*].len()
    };
}

/// The number of columns that make an outline.
pub(crate) const OUTLINE: usize = outline_table!(count_names());

/// Reads an outline, as [`read_intent`].
macro_rules! read_outline {
    ($from:ident, $cell:ident) => {
        outline_table!(read_outline_columns ($from $cell))
    };
}

macro_rules! read_outline_columns {
    (($from:ident $cell:ident) $($column:ident),*) => {{
        let mut indexes = 0..;
        let mut next = || indexes.next().unwrap_or_default();
        Ok($crate::Outline { $($column: $cell($from, next())?),* })
    }};
}

macro_rules! cells {
    (() $($mark:ident $column:ident = $value:expr,)* => $row:tt) => {
        [$(Cell::from($value)),*]
    };
}

macro_rules! count {
    (($which:ident) $($mark:ident $column:ident = $value:expr,)* => $row:tt) => {
        0 $(+ if_among!($which $mark "1").len())*
    };
}

/// The number of columns that make an intent.
pub(crate) const READ: usize = intent_table!(count (read) intent lanes node);
const ALL: usize = intent_table!(count (all) intent lanes node);
const UNFIXED: usize = intent_table!(count (unfixed) intent lanes node);

/// A value of a column. The databases differ only in how they store it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'r> {
    Code(Option<u8>),
    Int(i32),
    Number(Option<i64>),
    Bool(bool),
    Bytes(Option<&'r [u8]>),
    Text(Option<&'r str>),
    /// The node that granted a lease; only PostgreSQL has this column.
    Node(Option<i64>),
}

/// The cells of all columns, in the order of the table.
pub(crate) fn all<'r>(
    intent: &'r Intent,
    lanes: Option<&Lanes>,
    node: Option<i64>,
) -> [Cell<'r>; ALL] {
    intent_table!(cells () intent lanes node)
}

/// The cells of the key, and of the columns that a step can change.
pub(crate) fn unfixed<'c, 'r>(all: &'c [Cell<'r>; ALL]) -> &'c [Cell<'r>] {
    &all[..UNFIXED]
}

/// The cells of all columns but `node`.
pub(crate) fn without_node<'r>(
    intent: &'r Intent,
    lanes: Option<&Lanes>,
) -> impl Iterator<Item = Cell<'r>> + use<'r> {
    all(intent, lanes, None).into_iter().filter(is_not_node)
}

pub(crate) fn is_not_node(cell: &Cell<'_>) -> bool {
    !matches!(cell, Cell::Node(_))
}

/// Sequences never reach 2^63 in practice.
fn signed(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

pub(crate) fn result_code(kind: ResultKind) -> u8 {
    match kind {
        ResultKind::Json => 0,
        ResultKind::Text => 1,
    }
}

pub(crate) fn result_kind(code: i16) -> ResultKind {
    if code == 1 {
        ResultKind::Text
    } else {
        ResultKind::Json
    }
}

macro_rules! cells_from {
    ($($from:ty: $cell:expr;)*) => {
        $(impl<'r> From<$from> for Cell<'r> {
            fn from(value: $from) -> Self {
                let cell: fn($from) -> Self = $cell;
                cell(value)
            }
        })*
    };
}

cells_from! {
    Seq: |seq| Self::Number(Some(signed(seq.0)));
    Option<FactSeq>: |seq| Self::Number(seq.map(|seq| signed(seq.0)));
    Micros: |at| Self::Number(Some(at.0));
    Option<Micros>: |at| Self::Number(at.map(|at| at.0));
    i64: |number| Self::Number(Some(number));
    Option<i64>: Self::Number;
    u32: |number| Self::Number(Some(i64::from(number)));
    i32: Self::Int;
    bool: Self::Bool;
    ProfileId: |id| Self::Code(Some(id.code()));
    State: |state| Self::Code(Some(state.code()));
    Cause: |cause| Self::Code(Some(cause.code()));
    Shelf: |shelf| Self::Code(Some(shelf.code()));
    Option<ResultKind>: |kind| Self::Code(kind.map(result_code));
    &'r IntentId: |id| Self::Bytes(Some(&id.0));
    Option<&'r IntentId>: |id| Self::Bytes(id.map(|id| &id.0[..]));
    Option<&'r Token>: |token| Self::Bytes(token.map(|token| &token.0[..]));
    &'r str: |text| Self::Text(Some(text));
    Option<&'r str>: Self::Text;
}
