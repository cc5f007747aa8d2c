//! Compares the answers that senders got with each other, and with what the recipient received.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{MemberEntries, SentMessage};
use crate::campaign::findings::{Findings, Promise};

/// All requests with one id, in their order.
pub(super) fn by_id(entries: &MemberEntries) -> BTreeMap<&str, Vec<&SentMessage>> {
    let mut by_id: BTreeMap<&str, Vec<&SentMessage>> = BTreeMap::new();
    for sent in &entries.sent {
        by_id.entry(&sent.id).or_default().push(sent);
    }
    by_id
}

/// The ids with the message that the broker accepted for each.
pub(super) fn accepted(entries: &MemberEntries) -> BTreeMap<&str, &SentMessage> {
    let found = by_id(entries).into_iter();
    found
        .filter_map(|(id, sent)| {
            let first = sent.into_iter().find(|sent| sent.message_id().is_some())?;
            Some((id, first))
        })
        .collect()
}

/// One id is one message: every success names it, only one request is the first accept, and other content is refused.
pub(super) fn check_ids(entries: &MemberEntries, findings: &mut Findings) {
    for (id, sent) in by_id(entries) {
        let accepted: Vec<&&SentMessage> = sent
            .iter()
            .filter(|sent| sent.message_id().is_some())
            .collect();
        let messages: BTreeSet<_> = accepted
            .iter()
            .map(|sent| (sent.message_id(), sent.body.as_str()))
            .collect();
        findings.check(Promise::MeshOneMessage, messages.len() <= 1, || {
            format!("id {id} was accepted for {messages:?}")
        });
        // A request that got no answer may have been the first one.
        let created = accepted
            .iter()
            .filter(|sent| sent.code() == Some(201))
            .count();
        let later = accepted.iter().skip(1);
        let stays = created <= 1 && later.clone().all(|sent| sent.code() == Some(200));
        findings.check(Promise::MeshMessageStays, stays, || {
            format!("id {id} was accepted more than once: {accepted:?}")
        });
    }
}

/// What was pushed was accepted, with this id and this content.
pub(super) fn check_pushed(entries: &MemberEntries, findings: &mut Findings) {
    let accepted = accepted(entries);
    for pushed in &entries.pushed {
        let is_accepted = accepted.get(pushed.id.as_str()).is_some_and(|sent| {
            sent.message_id() == Some(&pushed.message_id) && sent.body == pushed.body
        });
        findings.check(Promise::MeshPushStored, is_accepted, || {
            let sent = accepted.get(pushed.id.as_str());
            format!("{pushed:?} was received, and the answers are {sent:?}")
        });
    }
}

/// The accepted messages that the recipient has not received.
pub(super) fn missing(entries: &MemberEntries) -> Vec<&str> {
    let received: BTreeSet<&str> = entries
        .pushed
        .iter()
        .map(|pushed| pushed.message_id.as_str())
        .collect();
    let accepted = accepted(entries).into_values();
    accepted
        .filter_map(SentMessage::message_id)
        .filter(|id| !received.contains(id))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::history::PushedMessage;
    use super::*;

    fn sent(id: &str, body: &str, code: u64, message_id: &str) -> SentMessage {
        SentMessage {
            id: id.to_owned(),
            body: body.to_owned(),
            ack: Some(json!({"code": code, "messageId": message_id})),
        }
    }

    fn broken(entries: &MemberEntries) -> Vec<String> {
        let mut findings = Findings::new("crash");
        check_ids(entries, &mut findings);
        check_pushed(entries, &mut findings);
        findings.broken()
    }

    #[test]
    fn a_duplicate_and_a_refused_conflict_are_no_findings() {
        let entries = MemberEntries {
            sent: vec![
                sent("i", "a", 201, "m"),
                sent("i", "a", 200, "m"),
                sent("i", "b", 409, ""),
            ],
            pushed: vec![PushedMessage {
                id: "i".to_owned(),
                body: "a".to_owned(),
                message_id: "m".to_owned(),
            }],
        };
        assert!(broken(&entries).is_empty());
        assert!(missing(&entries).is_empty());
    }

    #[test]
    fn an_id_that_was_accepted_twice_is_a_finding() {
        let again = vec![sent("i", "a", 201, "m"), sent("i", "a", 201, "n")];
        let other = vec![sent("i", "a", 201, "m"), sent("i", "b", 200, "m")];
        for sent in [again, other] {
            let entries = MemberEntries {
                sent,
                pushed: Vec::new(),
            };
            assert!(!broken(&entries).is_empty(), "{entries:?}");
            assert_eq!(missing(&entries), ["m"]);
        }
    }

    #[test]
    fn a_push_that_was_never_accepted_is_a_finding() {
        let entries = MemberEntries {
            sent: vec![sent("i", "a", 503, "")],
            pushed: vec![PushedMessage {
                id: "i".to_owned(),
                body: "a".to_owned(),
                message_id: "m".to_owned(),
            }],
        };
        assert_eq!(broken(&entries).len(), 1);
    }
}
