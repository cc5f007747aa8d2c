//! A process that ends in the middle of its work, as after a kill, leaves no state that blocks the next start. Only a binary
//! with failpoints can do that.
#![cfg(feature = "planted")]

use std::os::unix::process::ExitStatusExt as _;

use consign_testkit::process;

use super::{PATIENCE, Place, main_client, printed, published, refusal, start, status_of};

const FAILPOINT: &str = "CONSIGN_FAILPOINT";

#[test]
fn a_first_start_that_was_cut_off_while_it_made_the_tables_does_not_hinder_the_second() {
    let place = Place::new();
    let options = place.options().env(FAILPOINT, "during-migration:1");
    let ended = process::serve_until_exit(&options, PATIENCE).expect("it ends by itself");
    assert!(ended.status.signal().is_some(), "{ended:?}");
    let server = place.start();
    let mut http = main_client(&server);
    let id = published(&mut http, "first");
    assert_eq!(status_of(&mut http, &id), "open");
}

#[test]
fn a_backup_has_its_name_only_when_it_is_whole() {
    let place = Place::new();
    let server = place.start();
    published(&mut main_client(&server), "kept");
    let (first, second) = (place.path("first.db"), place.path("second.db"));
    let args = ["store", "backup", &*first.to_string_lossy()];
    let cut_off = place.consign_with(&args, &[(FAILPOINT, "during-backup:1")]);
    assert!(cut_off.status.signal().is_some(), "{cut_off:?}");
    assert!(!first.exists(), "half a backup looks like one");
    for to in [&first, &second] {
        let made = place.consign(&["store", "backup", &to.to_string_lossy()]);
        assert!(made.status.success(), "{made:?}");
        let url = format!("sqlite:{}", to.display());
        let checked = place.consign(&["store", "check", "--store", &url]);
        assert!(checked.status.success(), "{checked:?}");
    }
    let names = std::fs::read_dir(place.folder.path()).expect("the folder is there");
    let left = names
        .filter_map(Result::ok)
        .any(|entry| entry.file_name().to_string_lossy().contains(".new"));
    assert!(!left, "the leftover of the first try is gone");
}

#[test]
fn a_server_does_not_start_on_half_a_copy_and_says_what_to_do() {
    let place = Place::new();
    published(&mut main_client(&place.start()), "kept");
    let database = super::store::database();
    let file = format!("sqlite:{}", place.path("data/consign.db").display());
    for to in [
        database.url(),
        format!("sqlite:{}", place.path("to.db").display()),
    ] {
        let args = ["store", "copy", "--json", "--from", &file, "--to", &to];
        let cut_off = place.consign_with(&args, &[(FAILPOINT, "during-copy:2")]);
        assert!(cut_off.status.signal().is_some(), "{cut_off:?}");
        let (code, said) = refusal(&place.options().arg("--store").arg(&to));
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("holds a part of a copy of sqlite:"), "{said}");
        let plan = printed(&place.consign(&[&args[..], &["--dry-run"]].concat()));
        assert_eq!(
            (&plan["target"], &plan["resumed"]),
            (&"part".into(), &true.into())
        );
        assert_eq!(printed(&place.consign(&args))["resumed"], true);
        start(&place.options().arg("--store").arg(&to));
    }
}
