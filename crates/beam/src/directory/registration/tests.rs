use super::*;
use crate::outbound::AllowedTargets;

const KEY: &str = "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

fn input() -> RegistrationInput {
    RegistrationInput {
        display_name: Some("Order Desk".to_owned()),
        capabilities: Some(vec!["orders".to_owned()]),
        public_key: Some(KEY.to_owned()),
        ..RegistrationInput::default()
    }
}

fn check(change: impl FnOnce(&mut RegistrationInput)) -> Result<Registration, Code> {
    let mut input = input();
    change(&mut input);
    let guard = AddressGuard::new(AllowedTargets::parse("127.0.0.1:9000").unwrap());
    Registration::check(input, &guard).map_err(|problem| problem.code)
}

fn name(change: impl FnOnce(&mut RegistrationInput)) -> Result<String, Code> {
    check(change).map(|registration| match registration.name {
        RequestedName::Exactly(id) => id.to_string(),
        RequestedName::Like { agent, org } => BeamId::new(&agent, &org).unwrap().to_string(),
    })
}

/// Makes one field of an input valid.
type Repair = fn(&mut RegistrationInput);

#[test]
fn be_081_the_first_broken_rule_is_reported() {
    let broken = RegistrationInput {
        email: Some("nobody".into()),
        logo_url: Some("logo".into()),
        verification_tier: Some("royal".into()),
        beam_id: Some("not an id".into()),
        org: Some("other".into()),
        http_endpoint: Some("http://example.com".into()),
        ..RegistrationInput::default()
    };
    let guard = AddressGuard::new(AllowedTargets::default());
    let code = |input: &RegistrationInput| {
        let checked = Registration::check(input.clone(), &guard);
        checked.err().map(|problem| problem.code)
    };
    let mut input = broken;
    let repairs: [(Code, Repair); 10] = [
        (Code::InvalidCapabilities, |i| {
            i.capabilities = Some(Vec::new());
        }),
        (Code::InvalidDisplayName, |i| {
            i.display_name = Some("Desk".into());
        }),
        (Code::InvalidEmail, |i| {
            i.email = Some("Desk@Acme.example".into());
        }),
        (Code::InvalidPublicKey, |i| {
            i.public_key = Some("AAAA".into());
        }),
        (Code::InvalidPublicKeyFormat, |i| {
            i.public_key = Some(KEY.into());
        }),
        (Code::InvalidLogoUrl, |i| {
            i.logo_url = Some("https://acme.example/logo.png".into());
        }),
        (Code::InvalidVerificationTier, |i| {
            i.verification_tier = Some("business".into());
        }),
        (Code::InvalidBeamId, |i| {
            i.beam_id = Some("Desk@Acme.beam.directory".into());
        }),
        (Code::OrgMismatch, |i| {
            i.org = Some("ACME".into());
        }),
        (Code::InvalidHttpEndpoint, |i| {
            i.http_endpoint = None;
        }),
    ];
    for (expected, repair) in repairs {
        assert_eq!(code(&input), Some(expected));
        repair(&mut input);
    }
    assert_eq!(code(&input), None);
}

#[test]
fn a_name_comes_from_the_display_name_and_the_organisation_from_the_address() {
    for (email, org, expected) in [
        (None, None, "order-desk@beam.directory"),
        (
            Some("desk@acme.example"),
            None,
            "order-desk@acme.beam.directory",
        ),
        (
            Some("desk@acme.example"),
            Some("other"),
            "order-desk@other.beam.directory",
        ),
        (
            Some("desk@acme.example"),
            Some("personal"),
            "order-desk@beam.directory",
        ),
    ] {
        let found = name(|input| {
            input.email = email.map(str::to_owned);
            input.org = org.map(str::to_owned);
        });
        assert_eq!(found.as_deref(), Ok(expected));
    }
    assert_eq!(
        name(|input| input.org = Some("two words".into())),
        Err(Code::OrgMismatch)
    );
    assert_eq!(
        name(|input| input.org = Some("o".repeat(70))),
        Err(Code::OrgMismatch)
    );
}

#[test]
fn be_081_the_organisation_must_be_that_of_the_id() {
    let with = |id: &str, org: Option<&str>| {
        name(|input| {
            input.beam_id = Some(id.to_owned());
            input.org = org.map(str::to_owned);
        })
    };
    assert_eq!(
        with("a@beam.directory", Some("personal")).as_deref(),
        Ok("a@beam.directory")
    );
    assert_eq!(
        with("a@beam.directory", Some("acme")),
        Err(Code::OrgMismatch)
    );
    assert_eq!(
        with("a@acme.beam.directory", Some("personal")),
        Err(Code::OrgMismatch)
    );
    assert_eq!(
        with("a@personal.beam.directory", None),
        Err(Code::OrgMismatch)
    );
    assert_eq!(with("a@acme.beam.id", None), Err(Code::InvalidBeamId));
}

#[test]
fn addresses_must_be_of_the_web_and_endpoints_public() {
    for (url, is_valid) in [
        ("https://acme.example/logo.png", true),
        ("http://acme.example", true),
        ("javascript://acme.example/%0aalert(1)", false),
        ("javascript:alert(1)", false),
        ("data:text/html,x", false),
        ("https://", false),
        ("https:///path", false),
        ("https://acme.example/\"><script>", false),
        ("/logo.png", false),
    ] {
        assert_eq!(is_web_address(url), is_valid, "{url}");
    }
    let endpoint =
        |url: &str| check(|input| input.http_endpoint = Some(url.to_owned())).map(|_| ());
    assert_eq!(endpoint("https://agents.acme.example/beam"), Ok(()));
    assert_eq!(endpoint("http://127.0.0.1:9000/beam"), Ok(()), "listed");
    for url in [
        "http://agents.acme.example/beam",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://localhost/",
        "https://user@agents.acme.example/",
        "ftp://agents.acme.example",
        "nonsense",
    ] {
        assert_eq!(endpoint(url), Err(Code::InvalidHttpEndpoint), "{url}");
    }
}

#[test]
fn every_text_has_a_limit() {
    let long = |count: usize| "x".repeat(count);
    let code = |change: &dyn Fn(&mut RegistrationInput)| check(|input| change(input)).err();
    assert_eq!(code(&|input| input.display_name = Some(long(256))), None);
    assert_eq!(
        code(&|input| input.display_name = Some(long(257))),
        Some(Code::InvalidDisplayName)
    );
    assert_eq!(
        code(&|input| input.capabilities = Some(vec![long(128); 100])),
        None
    );
    assert_eq!(
        code(&|input| input.capabilities = Some(vec![long(1); 101])),
        Some(Code::InvalidCapabilities)
    );
    assert_eq!(
        code(&|input| input.capabilities = Some(vec![long(129)])),
        Some(Code::InvalidCapabilities)
    );
    assert_eq!(
        code(&|input| input.capabilities = Some(vec![String::new()])),
        Some(Code::InvalidCapabilities)
    );
    assert_eq!(
        code(&|input| input.email = Some(format!("{}@acme.example", long(250)))),
        Some(Code::InvalidEmail)
    );
    assert_eq!(
        code(&|input| input.description = Some(long(4_097))),
        Some(Code::InvalidBody)
    );
    assert_eq!(
        code(&|input| input.dh_public_key = Some(long(513))),
        Some(Code::InvalidBody)
    );
    assert_eq!(
        code(&|input| input.logo_url = Some(format!("https://a.example/{}", long(2_048)))),
        Some(Code::InvalidLogoUrl)
    );
}

#[test]
fn an_email_address_has_a_local_part_and_a_domain_with_a_dot() {
    for (text, is_valid) in [
        ("a@b.c", true),
        ("a.b+c@sub.acme.example", true),
        ("a@b", false),
        ("a@.b", false),
        ("a@b.", false),
        ("@b.c", false),
        ("a@b@c.d", false),
        ("a b@c.d", false),
        ("", false),
    ] {
        assert_eq!(is_email(text), is_valid, "{text}");
    }
}
