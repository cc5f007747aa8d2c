//! Arbitrary variables and arguments: each is accepted or refused, and no output contains a secret.

use clap::Parser as _;
use consign_intent::settings::IntentSettings;
use consign_web::credentials::SECRET_CHARS_MIN;
use proptest::prelude::*;

use crate::cli::Cli;
use crate::config::database_path;
use crate::data_dir::DataDir;
use crate::input;

const SECRETS: [&str; 4] = [
    "BUS_SECRET",
    "BUS_ADMIN_SECRET",
    "DASHBOARD_PASSWORD",
    "BUS_METRICS_TOKEN",
];

/// Words of the command line, and anything else.
fn word() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "serve",
        "intent",
        "publish",
        "claim",
        "fulfil",
        "fail",
        "show",
        "list",
        "key",
        "create",
        "revoke",
        "receipt",
        "verify",
        "store",
        "check",
        "backup",
        "import",
        "intent-bus",
        "--data",
        "--server",
        "--listen",
        "--timeout",
        "--json",
        "--limit",
        "--priority",
        "--delay",
        "--max",
        "--wait",
        "--token",
        "--result",
        "--cursor",
        "--store",
        "--log-format",
        "--owner",
        "--",
    ]);
    let value =
        "-?[0-9]{1,22}(\\.[0-9]{1,3})?|127\\.0\\.0\\.1:[0-9]{0,6}|sqlite:.{0,5}|\\{\"a\":.?\\}";
    prop_oneof![4 => known.prop_map(str::to_owned), 2 => value, 1 => any::<String>()]
}

proptest! {
    #[test]
    fn a_secret_is_taken_as_it_is_or_refused_without_being_shown(value in ".{0,20}[ -~]{0,20}", which in 0..4_usize) {
        let lookup = |name: &str| (name == SECRETS[which]).then(|| format!("{value}#hidden#{value}"));
        let sendable = lookup(SECRETS[which]).unwrap();
        let is_long = sendable.len() >= SECRET_CHARS_MIN;
        let sendable = sendable.trim() == sendable && sendable.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let read = IntentSettings::read(lookup);
        prop_assert_eq!(read.is_ok(), sendable && is_long);
        let shown = format!("{read:?}");
        prop_assert!(!shown.contains("#hidden#"));
        prop_assert!(read.err().is_none_or(|error| !error.to_string().contains("#hidden#")));
    }

    #[test]
    fn the_interval_of_cleanup_is_within_its_bounds_whatever_is_set(
        value in prop_oneof![any::<String>(), "[ +-]{0,2}[0-9]{0,30} ?"],
    ) {
        let settings = IntentSettings::read(|name| (name == "BUS_CLEANUP_INTERVAL_SECONDS").then(|| value.clone()));
        prop_assert!((300..=86_400).contains(&settings.unwrap().cleanup_interval_s));
    }

    #[test]
    fn a_store_is_named_by_a_path_or_refused(url in prop_oneof![any::<String>(), "sqlite:.{0,9}"]) {
        let data = DataDir::new(std::path::Path::new("data"));
        let path = database_path(Some(&url), None, &data);
        let expected = url.strip_prefix("sqlite:").filter(|path| !path.is_empty());
        prop_assert_eq!(path.ok(), expected.map(std::path::PathBuf::from));
    }

    #[test]
    fn any_command_line_is_understood_or_refused_as_wrong_usage(words in prop::collection::vec(word(), 0..9)) {
        let words = std::iter::once("consign".to_owned()).chain(words);
        if let Err(refused) = Cli::try_parse_from(words) {
            prop_assert!(matches!(refused.exit_code(), 0 | 2), "{}", refused);
        }
    }

    #[test]
    fn a_key_among_the_arguments_is_never_repeated(words in prop::collection::vec(word(), 0..5)) {
        // After `--` it would be an unknown argument instead of a flag, and the error repeats unknown arguments.
        let words = words.into_iter().filter(|word| word != "--");
        let words = ["consign", "intent", "list"].map(str::to_owned).into_iter().chain(words);
        if let Err(refused) = Cli::try_parse_from(words.chain(["--key=#hidden#".to_owned()])) {
            prop_assert!(!refused.to_string().contains("#hidden#"), "{}", refused);
        }
    }

    #[test]
    fn json_arguments_are_kept_as_written_or_refused(text in prop_oneof!["[^@-].{0,20}", "\\{\"a\": ?[0-9]{1,25}\\}"]) {
        if let Ok(kept) = input::json("payload", &text) {
            prop_assert_eq!(kept.get(), text.trim_matches([' ', '\n', '\r', '\t']));
        }
    }
}
