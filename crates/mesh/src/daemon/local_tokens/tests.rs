//! Which token works for whom, and for how long.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn works(tokens: &LocalTokens, is_local: bool, now: Instant, text: &str) -> bool {
    tokens.with_at(is_local, now, |all| {
        all.iter().any(|token| token.matches(text))
    })
}

fn in_file(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn cm_126_a_replaced_token_works_for_60_seconds_and_not_longer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("local_token");
    let tokens = LocalTokens::open(&path).unwrap();
    let first = in_file(&path);
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    tokens.rotate_at(at(0)).unwrap();
    let second = in_file(&path);
    assert_ne!(first, second);
    tokens.rotate_at(at(30_000)).unwrap();
    let third = in_file(&path);
    for (ms, expected) in [
        (30_000, [true, true, true]),
        (59_999, [true, true, true]),
        (60_000, [false, true, true]),
        (89_999, [false, true, true]),
        (90_000, [false, false, true]),
        (86_400_000, [false, false, true]),
    ] {
        let found = [&first, &second, &third].map(|text| works(&tokens, true, at(ms), text));
        assert_eq!(found, expected, "after {ms} ms");
    }
    // A restart knows the newest alone.
    let again = LocalTokens::open(&path).unwrap();
    assert!(works(&again, true, at(0), &third) && !works(&again, true, at(0), &second));
}

#[test]
fn the_local_token_works_on_this_machine_only_and_the_external_one_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("local_token");
    let external = folder.path().join("external");
    let text = LocalToken::from_random(&[7; 32]).reveal().to_owned();
    std::fs::write(&external, format!("{text}\n")).unwrap();
    let open = || LocalTokens::open(&path).unwrap();
    let set_mode = |mode: u32| {
        std::fs::set_permissions(&external, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(0o644);
    let refused = open().with_external(&external).unwrap_err();
    assert!(refused.contains("chmod 600"), "{refused}");
    set_mode(0o600);
    let tokens = open().with_external(&external).unwrap();
    assert!(tokens.has_external());
    let now = Instant::now();
    let own = in_file(&path);
    assert!(works(&tokens, true, now, &own) && works(&tokens, true, now, &text));
    assert!(!works(&tokens, false, now, &own) && works(&tokens, false, now, &text));
    let without = open();
    assert!(!without.has_external() && !works(&without, false, now, &own));
    std::fs::write(&external, "short").unwrap();
    assert!(open().with_external(&external).is_err());
    std::fs::remove_file(&external).unwrap();
    assert!(open().with_external(&external).is_err());
}
