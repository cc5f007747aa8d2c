//! What is a mention.

use super::*;

#[test]
fn a_name_after_an_at_sign_is_mentioned() {
    for text in [
        "@worker",
        "hi @Worker!",
        "(@WORKER)",
        "@worker, please",
        "see @worker.",
        "@@worker",
        "@worker's",
    ] {
        assert!(mentions(text, "worker"), "{text}");
    }
    for text in [
        "worker",
        "@workers",
        "@worker_2",
        "@worker-3",
        "@worker.local",
        "a@worker",
        "@ worker",
        "@",
        "",
    ] {
        assert!(!mentions(text, "worker"), "{text}");
    }
}

#[test]
fn names_may_have_spaces_and_other_letters() {
    assert!(mentions("ask @gpu Worker 3 now", "GPU worker 3"));
    assert!(!mentions("ask @gpu worker 30", "GPU worker 3"));
    assert!(mentions("@ÄRGER!", "ärger"));
    assert!(!mentions("@x", ""));
    assert_eq!(mentioned("@b and @a", &["a", "b", "c"]), ["a", "b"]);
}
