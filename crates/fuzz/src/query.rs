//! Query strings of list, claim and event stream, and filters: accepted values are within their limits, and the signed query
//! has the same values.
//!
//! Input: the text after the question mark, or a filter.

use std::time::Duration;

use consign_intent::query::claim_query::{ClaimQuery, capabilities, worker_id};
use consign_intent::query::list_query::ListQuery;
use consign_intent::query::{QueryParams, cursor};
use consign_intent::signature::canonical_query;
use consign_kernel::error::Class;
use consign_kernel::filter::Filter;
use consign_kernel::ids::{FactSeq, Seq};
use consign_kernel::limits;
use http::Uri;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    cursors(text);
    filter(text);
    let Ok(uri) = format!("/intents?{text}").parse::<Uri>() else {
        return;
    };
    let query = uri.query().expect("there is a question mark");
    let parsed = ParsedQuery::of(&uri);
    parsed.check();
    // A signature covers the canonical form alone: if the query had other values, they would be unsigned.
    let signed: Uri = format!("/intents?{}", canonical_query(query))
        .parse()
        .expect("the canonical form is a query");
    assert_eq!(parsed, ParsedQuery::of(&signed), "{query}");
}

/// A filter that is accepted is printed as a text with the same meaning; the place of a mistake is in the text.
fn filter(text: &str) {
    match Filter::parse(text) {
        Ok(filter) => assert_eq!(Filter::parse(&filter.to_string()), Ok(filter)),
        Err(error) => assert!(
            (1..=text.chars().count() + 1).contains(&error.column),
            "{error}"
        ),
    }
}

/// Every position can be written and read back, and every accepted text is a position.
fn cursors(text: &str) {
    let number = text
        .bytes()
        .fold(0_u64, |hash, byte| hash.rotate_left(9) ^ u64::from(byte));
    let (page, event) = (Seq(number), FactSeq(number));
    assert_eq!(cursor::page(&cursor::page_text(page)).ok(), Some(page));
    assert_eq!(cursor::event(&cursor::event_text(event)).ok(), Some(event));
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let read = cursor::page(text).ok();
    assert!(is_number || read.is_none(), "{text}");
    assert_eq!(read.map(|seq| seq.0), cursor::event(text).ok().map(|e| e.0));
}

/// The results of all parsers for one query; an error is compared by its code.
#[derive(Debug, PartialEq, Eq)]
struct ParsedQuery {
    list_query: Result<ListQuery, &'static str>,
    claim_query: Result<ClaimQuery, &'static str>,
    after: Option<Result<FactSeq, &'static str>>,
}

impl ParsedQuery {
    fn of(uri: &Uri) -> Self {
        let params = QueryParams::of(uri).expect("any query can be decoded");
        Self {
            list_query: ListQuery::of(&params).map_err(|reject| reject.code.name()),
            claim_query: ClaimQuery::of(&params).map_err(|reject| {
                assert_eq!(reject.code.class(), Class::Invalid);
                reject.code.name()
            }),
            after: params
                .get("after")
                .map(|text| cursor::event(text).map_err(|reject| reject.code.name())),
        }
    }

    fn check(&self) {
        match &self.list_query {
            Ok(list_query) => {
                assert!((1..=limits::PAGE_ITEMS_MAX).contains(&list_query.limit));
                assert!(list_query.namespace.as_deref().is_none_or(is_namespace));
                assert!(list_query.goal.as_deref().is_none_or(is_trimmed));
            }
            Err(code) => assert!(
                [
                    "invalid_namespace",
                    "invalid_status",
                    "invalid_cursor",
                    "invalid_limit"
                ]
                .contains(code),
                "{code}"
            ),
        }
        match &self.claim_query {
            Ok(claim_query) => check_claim_query(claim_query),
            Err(code) => assert!(
                ["invalid_namespace", "invalid_max", "invalid_wait"].contains(code),
                "{code}"
            ),
        }
    }
}

fn check_claim_query(claim_query: &ClaimQuery) {
    let longest = Duration::from_secs_f64(limits::CLAIM_WAIT_MAX_S);
    assert!(claim_query.wait <= longest);
    assert!(
        claim_query
            .max
            .is_none_or(|max| (1..=limits::CLAIM_BATCH_MAX).contains(&max))
    );
    assert!(is_namespace(&claim_query.namespace));
    let goal = claim_query.goal.as_deref();
    assert!(goal.is_none_or(|goal| is_trimmed(goal) && !goal.is_empty()));
    if let Some(id) = &claim_query.worker_id {
        let shown = id.chars().count();
        assert!((1..=limits::WORKER_ID_CHARS_MAX).contains(&shown));
        assert!(worker_id(id).is_some(), "an id that is none: {id:?}");
    }
    let Some(Ok(listed)) = claim_query.capabilities.as_deref().map(capabilities) else {
        return;
    };
    assert!(listed.len() <= limits::CAPABILITIES_MAX);
    // Claims are compared by their capabilities, so the order must not matter.
    assert!(listed.is_sorted_by(|one, next| one < next), "{listed:?}");
    let is_token = |token: &String| !token.is_empty() && is_trimmed(token) && !token.contains(',');
    assert!(listed.iter().all(is_token), "{listed:?}");
    assert_eq!(capabilities(&listed.join(",")).ok(), Some(listed));
}

fn is_namespace(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=limits::NAMESPACE_CHARS_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

fn is_trimmed(text: &str) -> bool {
    text.trim() == text
}
