//! Which senders an entry allows, and the entries of the demo organisation.

use proptest::prelude::*;

use super::*;
use crate::catalog::BUILT_IN;

const BOB: &str = "bob@acme.beam.directory";

fn entry(allowed_from: &str) -> AclEntry {
    AclEntry::new("ada@acme.beam.directory", "agent.ping", allowed_from).unwrap()
}

#[test]
fn be_090_what_no_entry_allows_is_denied() {
    let target = "ada@acme.beam.directory";
    assert!(!is_allowed([], target, "agent.ping", BOB));
    let entries = [entry("eve@acme.beam.directory"), entry(BOB)];
    assert!(is_allowed(&entries, target, "agent.ping", BOB));
    // Without the entry it is denied again.
    assert!(!is_allowed(&entries[..1], target, "agent.ping", BOB));
    assert!(!is_allowed(&entries, target, "agent.introduce", BOB));
    assert!(!is_allowed(&entries, BOB, "agent.ping", BOB));
    // There is no pattern for intents or targets.
    let any = [
        AclEntry::new("*", "agent.ping", "*").unwrap(),
        AclEntry::new(target, "*", "*").unwrap(),
    ];
    assert!(!is_allowed(&any, target, "agent.ping", BOB));
}

#[test]
fn be_090_an_entry_matches_everyone_one_sender_or_a_suffix() {
    consign_testkit::plants::from_environment();
    for (allowed_from, sender, expected) in [
        ("*", BOB, true),
        (BOB, BOB, true),
        (BOB, "rob@acme.beam.directory", false),
        (BOB, "bbob@acme.beam.directory", false),
        ("*@acme.beam.directory", BOB, true),
        (
            "*@acme.beam.directory",
            "bob@evilacme.beam.directory",
            false,
        ),
        ("*@acme.beam.directory", "bob@beam.directory", false),
        ("*@beam.directory", "bob@beam.directory", true),
        ("*@beam.directory", BOB, false),
        ("*.beam.directory", BOB, true),
        ("*.beam.directory", "bob@beam.directory", false),
        // The rest must be at the end, not anywhere in the id.
        ("*.beam", BOB, false),
        ("*.acme", BOB, false),
        ("*acme.beam.directory", BOB, false),
        ("bob@*", BOB, false),
        ("*@", BOB, false),
        ("*.", BOB, false),
        ("**", BOB, false),
        ("acme", BOB, false),
        ("", BOB, false),
    ] {
        let found = matches_sender(allowed_from, sender);
        assert_eq!(found, expected, "{allowed_from} {sender}");
    }
}

#[test]
fn an_entry_has_no_blank_part() {
    for (target, intent, allowed_from, field) in [
        ("", "i", "*", "targetBeamId"),
        ("t", " ", "*", "intentType"),
        ("t", "i", "\t", "allowedFrom"),
    ] {
        let error = AclEntry::new(target, intent, allowed_from).unwrap_err();
        assert_eq!(error.field, field);
    }
    let trimmed = AclEntry::new(" t ", " i ", " * ").unwrap();
    let parts = (trimmed.target(), trimmed.intent(), trimmed.allowed_from());
    assert_eq!(parts, ("t", "i", "*"));
}

#[test]
fn only_known_agents_of_the_demo_organisation_get_entries() {
    let of = |id: &str| -> Vec<String> {
        demo_entries(&BUILT_IN, &id.parse().unwrap())
            .iter()
            .map(|entry| format!("{} {}", entry.intent(), entry.allowed_from()))
            .collect()
    };
    for stranger in [
        "clara@acme.beam.directory",
        "clara@beam.directory",
        "eve@demo.beam.directory",
    ] {
        assert!(of(stranger).is_empty(), "{stranger}");
    }
    let open = [
        "agent.ping *",
        "agent.introduce *",
        "conversation.message *",
        "quote.request *",
        "inventory.check *",
        "purchase.preflight *",
        "task.delegate *",
    ];
    let broadcast = "system.broadcast jarvis@demo.beam.directory";
    let mut of_agent_a = vec![broadcast];
    of_agent_a.extend(open);
    assert_eq!(of("agent-a@demo.beam.directory"), of_agent_a);
    let mut of_clara = vec![
        "sales.pipeline_summary jarvis@demo.beam.directory",
        "sales.pipeline_summary fischer@demo.beam.directory",
        "sales.pipeline_summary james@demo.beam.directory",
        broadcast,
    ];
    of_clara.extend(open);
    assert_eq!(of("clara@demo.beam.directory"), of_clara);
}

proptest! {
    // A planted defect must fail here, and would leave a file of seeds in the tree each time.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn be_090_a_pattern_ends_at_a_boundary_of_the_id(
        pattern in r"(\*|[a-c]{0,2})[@.]?([a-c]{1,2}\.)?[a-c]{0,2}",
        sender in r"[a-c]{1,2}@([a-c]{1,2}\.)?[a-c]{1,2}",
    ) {
        consign_testkit::plants::from_environment();
        let matches = matches_sender(&pattern, &sender);
        let mut suffixes = vec![sender.clone(), "*".to_owned()];
        for (at, _) in sender.match_indices(['@', '.']) {
            suffixes.push(format!("*{}", &sender[at..]));
        }
        prop_assert_eq!(matches, suffixes.contains(&pattern));
    }
}

#[test]
fn a_text_that_can_match_no_sender_is_recognised() {
    for text in [
        "*",
        "alice@acme.beam.directory",
        "alice@beam.directory",
        "*@acme.beam.directory",
        "*.beam.directory",
    ] {
        assert!(is_sender_or_pattern(text), "{text}");
    }
    for text in [
        "",
        "alice",
        "*alice",
        "**",
        "*@acme.com",
        "not a pattern",
        "acme.beam.directory",
    ] {
        assert!(!is_sender_or_pattern(text), "{text}");
    }
}
