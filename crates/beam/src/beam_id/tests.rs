//! The grammar of Beam-IDs, and the ids proposed for new agents.

use super::*;

#[test]
fn an_id_consists_of_an_agent_and_an_organisation() {
    let id = BeamId::parse("finance_2-a@acme.beam.directory").unwrap();
    assert_eq!(
        (id.agent(), id.org(), id.is_personal()),
        ("finance_2-a", "acme", false)
    );
    assert_eq!(id.to_string(), "finance_2-a@acme.beam.directory");
}

#[test]
fn an_id_without_an_organisation_is_personal() {
    let id = BeamId::parse("echo@beam.directory").unwrap();
    assert_eq!(
        (id.agent(), id.org(), id.is_personal()),
        ("echo", "personal", true)
    );
    assert_eq!(BeamId::new("echo", PERSONAL_ORG).unwrap(), id);
}

#[test]
fn an_organisation_may_be_called_like_the_domain_or_like_no_organisation() {
    let beam = BeamId::parse("a@beam.beam.directory").unwrap();
    assert_eq!((beam.org(), beam.is_personal()), ("beam", false));
    let personal = BeamId::parse("a@personal.beam.directory").unwrap();
    assert_eq!(
        (personal.org(), personal.is_personal()),
        ("personal", false)
    );
}

#[test]
fn other_texts_are_refused() {
    for text in [
        "",
        "@",
        "agent",
        "agent@",
        "@beam.directory",
        "@acme.beam.directory",
        "agent@.beam.directory",
        "agent@acmebeam.directory",
        "agent@acme.beam.id",
        "agent@acme.beam.directory.",
        "agent@acme.beam.directory\n",
        "agent@a.b.beam.directory",
        "Agent@acme.beam.directory",
        "agent@Acme.beam.directory",
        "a gent@acme.beam.directory",
        " agent@acme.beam.directory",
        "a@b@acme.beam.directory",
        "a@beam@beam.directory",
        "a.b@acme.beam.directory",
        "ägent@acme.beam.directory",
    ] {
        assert_eq!(BeamId::parse(text), Err(InvalidBeamId), "{text:?}");
    }
}

#[test]
fn a_label_has_at_most_64_characters() {
    let (fits, too_long) = ("a".repeat(64), "a".repeat(65));
    for (agent, org, is_valid) in [
        (fits.as_str(), fits.as_str(), true),
        (too_long.as_str(), "acme", false),
        ("a", too_long.as_str(), false),
    ] {
        assert_eq!(BeamId::new(agent, org).is_ok(), is_valid);
    }
}

#[test]
fn an_id_in_json_is_checked() {
    let id: BeamId = serde_json::from_str(r#""a@beam.directory""#).unwrap();
    assert_eq!(serde_json::to_string(&id).unwrap(), r#""a@beam.directory""#);
    serde_json::from_str::<BeamId>(r#""A@beam.directory""#).unwrap_err();
}

#[test]
fn a_slug_is_a_label_of_at_most_32_characters() {
    for (name, expected) in [
        ("Finance Bot", "finance-bot"),
        ("  --Ada  &  Bob!! ", "ada-bob"),
        ("a--b", "a-b"),
        ("under_score", "under_score"),
        ("Zoë", "zo"),
        ("東京", ""),
        ("", ""),
    ] {
        assert_eq!(slug(name), expected, "{name:?}");
    }
    assert_eq!(slug(&"x".repeat(40)), "x".repeat(32));
    // The cut falls on the separator.
    assert_eq!(slug(&format!("{} y", "x".repeat(31))), "x".repeat(31));
}

#[test]
fn the_agent_name_falls_back_to_the_email_address() {
    assert_eq!(agent_name("Ada", Some("bob@acme.com")), "ada");
    assert_eq!(agent_name("東京", Some("Bob.B@acme.com")), "bob-b");
    assert_eq!(agent_name("東京", None), "agent");
}

#[test]
fn the_organisation_is_the_first_label_of_the_email_domain() {
    for (email, expected) in [
        ("ada@acme.co.uk", Some("acme")),
        ("ada@Acme Corp.com", Some("acme-corp")),
        ("ada@.com", None),
        ("ada", None),
    ] {
        assert_eq!(org_of_email(email).as_deref(), expected, "{email:?}");
    }
}

#[test]
fn candidates_are_numbered_from_two() {
    let ids: Vec<String> = candidates("ada", "acme")
        .unwrap()
        .take(3)
        .map(String::from)
        .collect();
    assert_eq!(
        ids,
        [
            "ada@acme.beam.directory",
            "ada-2@acme.beam.directory",
            "ada-3@acme.beam.directory"
        ]
    );
    let first = candidates("ada", PERSONAL_ORG).unwrap().next().unwrap();
    assert_eq!(first.as_str(), "ada@beam.directory");
    assert!(candidates("ada", "Acme Corp").is_err());
    // "-2" to "-9" still fit, "-10" does not.
    assert_eq!(candidates(&"a".repeat(62), "acme").unwrap().count(), 9);
}
