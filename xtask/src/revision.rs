//! The revision of the code: the commit, and whether files differ from it. It is part of the results of campaigns.

use std::process::Output;

use crate::context::Context;

/// The commit, with `+dirty` when files differ from it; `unknown` without git.
pub(crate) fn revision(context: &Context) -> String {
    let git = |args: &[&str]| {
        let output = context.program("git", args).output().ok();
        output.and_then(stdout_of)
    };
    let commit = git(&["rev-parse", "--verify", "HEAD"]);
    named(commit, git(&["status", "--porcelain"]))
}

fn stdout_of(output: Output) -> Option<String> {
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Files count as changed if git does not list the changes.
fn named(commit: Option<String>, changes: Option<String>) -> String {
    match (commit, changes) {
        (None, _) => "unknown".to_owned(),
        (Some(commit), Some(none)) if none.is_empty() => commit,
        (Some(commit), _) => format!("{commit}+dirty"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_a_commit_alone_only_if_nothing_differs_from_it() {
        let check = |commit: Option<&str>, changes: Option<&str>, expected: &str| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            assert_eq!(named(owned(commit), owned(changes)), expected);
        };
        check(Some("abc"), Some(""), "abc");
        check(Some("abc"), Some(" M src/main.rs"), "abc+dirty");
        check(Some("abc"), None, "abc+dirty");
        check(None, Some(""), "unknown");
    }
}
