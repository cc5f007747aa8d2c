//! Shared by the checks of Rust sources: a walk over the lines of a file that finds the tokens a rule forbids.

use super::Finding;
use crate::rust::has_token;

/// A violation for each of `tokens` on each of `lines`, with the text that `message` gives for the token.
pub(super) fn forbidden<'a>(
    path: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
    tokens: &[&str],
    message: impl Fn(&str) -> String,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, code) in lines {
        for token in tokens.iter().filter(|token| has_token(code, token)) {
            findings.push(Finding::violation(path, line, message(token)));
        }
    }
    findings
}

/// The lines of the findings that a check has in a tree of one file.
#[cfg(test)]
pub(super) fn lines_found(check: super::Check, path: &str, text: &str) -> Vec<usize> {
    let findings = check(&crate::tree::Tree::of(&[(path, text)]));
    findings.into_iter().map(|finding| finding.line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_of_every_line_is_a_finding() {
        let lines = [(1, "dbg!(todo!())"), (2, "operand"), (3, "todo!()")];
        let findings = forbidden(
            "a.rs",
            lines.into_iter(),
            &["dbg!", "todo!", "rand"],
            |token| format!("`{token}` is left over"),
        );
        let found: Vec<(usize, &str)> = findings
            .iter()
            .map(|finding| (finding.line, finding.message.as_str()))
            .collect();
        let (dbg, todo) = ("`dbg!` is left over", "`todo!` is left over");
        assert_eq!(found, [(1, dbg), (1, todo), (3, todo)]);
    }
}
