//! What each term of the filter language matches, and what is said about mistakes.

use proptest::prelude::*;

use super::*;
use crate::ids::{HOUR_US, SECOND_US};

const NOW: Micros = Micros(1_795_109_717 * SECOND_US);

fn row() -> Candidate<'static> {
    Candidate {
        id: IntentId([7; 16]),
        profile: ProfileId::Intent,
        state: State::DeadLetter,
        cause: Cause::Exhausted,
        namespace: "default",
        goal: "mail.send",
        owner: "main",
        worker: Some("mail-7"),
        created_at: NOW.minus(HOUR_US),
        last_error: Some("SMTP: Connection refused by mx1"),
        payload: Some(
            r#"{"to":"ada","n":17,"big":9007199254740993,"ok":true,"none":null,"deep":{"a.b":[1,{"x":"y"}]},"text":"17"}"#,
        ),
    }
}

fn fits(text: &str) -> bool {
    match Filter::parse(text) {
        Ok(filter) => filter.matches(&row(), NOW),
        Err(error) => panic!("{text}: {error}"),
    }
}

#[test]
fn each_term_matches_what_it_names() {
    for text in [
        "",
        "  ",
        "id:07070707070707070707070707070707",
        "ns:default",
        "ns:other,default",
        "ns:de*",
        "goal:mail.send",
        "goal:mail.*",
        "goal:*",
        "owner:main",
        "worker:mail-7",
        "worker:mail-*",
        "-worker:mail-8",
        "state:dead",
        "state:open,dead",
        "face:intent",
        "face:mesh,intent",
        r#"error:"connection REFUSED""#,
        "error:mx1",
        "age>59m",
        "age<61m",
        "created>2026-11-19",
        "created<2026-11-19T17:00:00Z",
        "payload.to=ada",
        r#"payload.to="ada""#,
        "payload.n=17",
        "payload.n=17.0",
        "payload.big=9007199254740993",
        "payload.text=17",
        "payload.ok=true",
        "payload.none=null",
        r#"payload.deep."a.b".0=1"#,
        r"payload.deep.a\.b.1.x=y",
        "-state:open",
        "-payload.missing=1",
        "state:dead goal:mail.* age>30m -owner:k_0123456789abcdef",
    ] {
        assert!(fits(text), "{text}");
    }
    for text in [
        "id:08070707070707070707070707070707",
        "ns:defaul",
        "goal:mail",
        r#"goal:"mail.*""#,
        r"goal:mail.\*",
        "state:open",
        "state:fulfilled,claimed",
        "face:automation",
        "error:timeout",
        "age>1h",
        "age<1h",
        "created<2026-11-19",
        "created>2026-11-20",
        "payload.to=bob",
        "payload.n=18",
        r#"payload.n="17""#,
        "payload.big=9007199254740992",
        r#"payload.ok="true""#,
        "payload.none=0",
        "payload.missing=null",
        "payload.deep=1",
        "payload.to.x=ada",
        "-goal:mail.*",
        "state:dead goal:other",
    ] {
        assert!(!fits(text), "{text}");
    }
}

#[test]
fn words_of_all_protocols_are_states_and_belong_to_their_rows() {
    let queued = Candidate {
        profile: ProfileId::Automation,
        state: State::Queued,
        cause: Cause::None,
        ..row()
    };
    let matches = |text: &str| Filter::parse(text).unwrap().matches(&queued, NOW);
    assert!(matches("state:queued"));
    assert!(!matches("state:open"), "that is the word of intents");
    for word in parse::words() {
        assert!(Filter::parse(&format!("state:{word}")).is_ok(), "{word}");
    }
}

#[test]
fn mistakes_are_reported_with_their_place() {
    let check = |text: &str, column, term: &str, expected: &str| {
        let error = Filter::parse(text).expect_err(text);
        assert_eq!(
            (error.column, error.term.as_str()),
            (column, term),
            "{text}"
        );
        assert!(
            error.expected.contains(expected),
            "{text}: {}",
            error.expected
        );
    };
    check("stat:dead", 1, "stat:dead", "one of id: ns: goal:");
    check("state:dead foo", 12, "foo", "one of id:");
    check("state:dad", 7, "state:dad", "a state: open, claimed");
    check("goal:a state:open,dad", 19, "state:open,dad", "a state");
    check("face:web", 6, "face:web", "a face: intent, automation");
    check("age>soon", 5, "age>soon", "such as 30s");
    check("age:5m", 4, "age:5m", "> or <");
    check("created>1.1.2026", 9, "created>1.1.2026", "a date such as");
    check("id:1", 4, "id:1", "32 hexadecimal digits");
    check("goal:", 6, "goal:", "a value");
    check("ns:a,,b", 4, "ns:a,,b", "commas");
    check("goal:a*b", 7, "goal:a*b", "a star only at the end");
    check(
        r#"error:"half"#,
        7,
        r#"error:"half"#,
        "a closing quotation mark",
    );
    check(r"goal:x\", 7, r"goal:x\", "a character after the backslash");
    check("payload.a>1", 10, "payload.a>1", "= and a value");
    check("payload.=1", 1, "payload.=1", "names with a dot");
    check("payload=1", 1, "payload=1", "one of id:");
    check(&"a ".repeat(3_000), 1, "the filter", "at most");
    check(&"ns:a ".repeat(33), 161, "ns:a", "at most 32 terms");
}

#[test]
fn an_index_may_narrow_only_what_the_filter_requires() {
    let filter = |text: &str| Filter::parse(text).unwrap();
    assert_eq!(filter("owner:bob").owner(), Some("bob"));
    for text in ["owner:b*", "owner:a,b", "-owner:bob", "state:dead"] {
        assert_eq!(filter(text).owner(), None, "{text}");
    }
    assert!(
        filter("-id:07070707070707070707070707070707")
            .ids()
            .is_none()
    );
    let dead = filter("state:dead").kinds();
    assert!(dead.contains(&(ProfileId::Intent, State::DeadLetter)));
    assert!(dead.iter().all(|(_, state)| *state == State::DeadLetter));
    let claimed = filter("state:claimed face:intent").kinds();
    assert_eq!(claimed, [(ProfileId::Intent, State::Dispatched)]);
    assert!(filter("state:open state:dead").kinds().is_empty());
    let others = filter("-state:dead face:intent").kinds();
    assert!(!others.contains(&(ProfileId::Intent, State::DeadLetter)));
}

#[test]
fn a_filter_is_printed_as_it_was_written() {
    for text in [r"goal:a\ ", "  state:dead  ", ""] {
        let filter = Filter::parse(text).unwrap();
        assert_eq!(Filter::parse(&filter.to_string()), Ok(filter));
    }
}

proptest! {
    // Whatever an operator types is answered, and a mistake points into the text.
    #[test]
    fn every_text_is_parsed_or_refused_at_a_place(text in ".{0,60}") {
        if let Err(error) = Filter::parse(&text) {
            prop_assert!(error.column >= 1);
            prop_assert!(error.column <= text.chars().count() + 1);
        }
    }

    #[test]
    fn a_quoted_goal_matches_itself_and_nothing_else(goal in "\\PC{1,20}", other in "\\PC{1,20}") {
        let quoted = goal.replace('\\', "\\\\").replace('"', "\\\"");
        let filter = Filter::parse(&format!("goal:\"{quoted}\"")).unwrap();
        let with = |goal: &str| filter.matches(&Candidate { goal, ..row() }, NOW);
        prop_assert!(with(&goal));
        prop_assert_eq!(with(&other), other == goal);
    }

    #[test]
    fn a_negated_term_is_the_opposite(goal in "[a-c]{1,2}", star in any::<bool>()) {
        let term = format!("goal:{goal}{}", if star { "*" } else { "" });
        let plain = Filter::parse(&term).unwrap();
        let negated = Filter::parse(&format!("-{term}")).unwrap();
        for goal in ["a", "ab", "abc", "b", "cc"] {
            let row = Candidate { goal, ..row() };
            prop_assert_ne!(plain.matches(&row, NOW), negated.matches(&row, NOW));
        }
    }
}
