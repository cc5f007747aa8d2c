//! Reads test results from logs: the lines of cargo-nextest, and the `test NAME ... ok` lines of libtest,
//! which the programs for real clients, crashes and the browser print as well.
//!
//! Only final results count: a failed attempt that nextest retries is not one.
//! nextest indents the output of a failing test, so its lines are not read as results.

use std::collections::{BTreeMap, BTreeSet};

/// The test results in the log of one program.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    /// Keyed by test binary and test name, as two binaries may hold tests of one name.
    results: BTreeMap<(String, String), bool>,
    /// Tests that failed first and passed when nextest retried them: binary and name.
    flaky: BTreeSet<(String, String)>,
    closing: Option<String>,
}

impl Outcomes {
    pub(crate) fn read(log: &str) -> Self {
        let mut outcomes = Self::default();
        let mut binary = String::new();
        for line in log.lines() {
            if let Some(result) = nextest_line(line) {
                outcomes.record(result.binary, result.name, result.passed);
                if result.flaky {
                    let test = (result.binary.to_owned(), result.name.to_owned());
                    outcomes.flaky.insert(test);
                }
            } else if let Some((name, passed)) = libtest_line(line) {
                outcomes.record(&binary, name, passed);
            } else if let Some(running) = line.trim_start().strip_prefix("Running ") {
                running.clone_into(&mut binary);
            }
            let trimmed = line.trim();
            if trimmed.starts_with("Summary [") || line.starts_with("test result: ") {
                outcomes.closing = Some(trimmed.to_owned());
            }
        }
        outcomes
    }

    /// Invariant: a failure is never overwritten by a success of the same test.
    fn record(&mut self, binary: &str, name: &str, passed: bool) {
        self.results
            .entry((binary.to_owned(), name.to_owned()))
            .and_modify(|known| *known &= passed)
            .or_insert(passed);
    }

    /// Test names with whether they passed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, bool)> {
        self.results
            .iter()
            .map(|((_, name), passed)| (name.as_str(), *passed))
    }

    pub(crate) fn passed(&self) -> usize {
        self.results.values().filter(|passed| **passed).count()
    }

    pub(crate) fn failed(&self) -> usize {
        self.results.len() - self.passed()
    }

    /// The tests that passed only when they were retried, as `binary name`.
    pub(crate) fn flaky(&self) -> impl Iterator<Item = String> {
        let tests = self.flaky.iter();
        tests.map(|(binary, name)| format!("{binary} {name}"))
    }

    /// The last line of the test runner, such as nextest's `Summary [...]`.
    pub(crate) fn closing(&self) -> Option<&str> {
        self.closing.as_deref()
    }
}

struct NextestResult<'a> {
    binary: &'a str,
    name: &'a str,
    passed: bool,
    flaky: bool,
}

/// `    PASS [   0.007s] (1/7) crate::binary module::name`, also with `TRY 2` before the status.
fn nextest_line(line: &str) -> Option<NextestResult<'_>> {
    let (status, rest) = line.split_once('[')?;
    let status = status.trim();
    let tried = status.strip_prefix("TRY ");
    let (attempt, status) = match tried {
        Some(tried) => tried.split_once(' ')?,
        None => ("1", status),
    };
    // The summary counts attempts: `FLAKY 2/2`.
    let status = status.split_whitespace().next()?;
    let passed = match status {
        "PASS" | "LEAK" | "FLAKY" => true,
        "FAIL" | "TIMEOUT" | "ABORT" | "XFAIL" | "LEAK-FAIL" | "FLKY-FL" => false,
        "SLOW" | "TERMINATING" | "TRMNTG" | "START" | "DELAY" | "RETRY" => return None,
        // For a retried test nextest prints short forms of signals and time-outs: ABRT, SEGV, TMT.
        _ if tried.is_some() => false,
        signal if signal.starts_with("SIG") => false,
        _ => return None,
    };
    let (seconds, rest) = rest.split_once(']')?;
    if !seconds.trim().ends_with('s') {
        return None;
    }
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('(') {
        Some(counter) => {
            let (counter, rest) = counter.split_once(')')?;
            // An attempt that is retried has dashes in place of its number in the run.
            counter.contains('/').then_some(rest)?
        }
        None => rest,
    };
    let (binary, name) = rest.trim().split_once(' ')?;
    Some(NextestResult {
        binary,
        name: name.trim(),
        passed,
        flaky: (passed && attempt != "1") || matches!(status, "FLAKY" | "FLKY-FL"),
    })
}

/// `test NAME ... ok` at the very start of a line; ignored tests are no result.
fn libtest_line(line: &str) -> Option<(&str, bool)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    match verdict.split_whitespace().next()? {
        "ok" => Some((name, true)),
        "FAILED" => Some((name, false)),
        _ => None,
    }
}

/// The ids of the checklist, such as `IP-012`, that the name of a test has, such as `ip_012`.
pub(crate) fn ids_in(name: &str, prefix: &str) -> Vec<String> {
    let mark = format!("{}_", prefix.to_lowercase());
    let mut ids: Vec<String> = Vec::new();
    for (at, _) in name.match_indices(&mark) {
        let inside_a_word = name[..at].ends_with(|before: char| before.is_alphanumeric());
        let rest = &name[at + mark.len()..];
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let ends_the_word = !rest[digits.len()..].starts_with(char::is_alphanumeric);
        if !inside_a_word && digits.len() == 3 && ends_the_word {
            let id = format!("{prefix}-{digits}");
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by cargo-nextest 0.9.143.
    const NEXTEST: &str = "\
 Nextest run ID 75c7a10c with nextest profile: default
    Starting 7 tests across 2 binaries (1 test skipped)
        PASS [   0.007s] (1/7) probe intent::ip_012_ok
        FAIL [   0.085s] (2/7) probe intent::ip_013_bad
  stdout ---

    running 1 test
    test intent::ip_013_bad ... FAILED
    test intent::ip_099_printed_by_a_test ... ok
     SIGABRT [   0.006s] (3/7) probe intent::ip_015_abort
        SLOW [>  1.000s] (---) probe intent::ip_014_slow
        PASS [   3.005s] (4/7) probe intent::ip_014_slow
  TRY 1 FAIL [   0.086s] (---) probe intent::ip_018_flaky
  TRY 2 PASS [   0.004s] (5/7) probe intent::ip_018_flaky
        PASS [   0.005s] (6/7) probe::it ip_020_it
 TERMINATING [>  4.000s] (---) probe intent::ip_016_late
   TRY 2 TMT [   4.006s] ( 7/7) probe intent::ip_016_late
     Summary [   4.098s] 7 tests run: 4 passed (1 slow), 2 failed, 1 timed out, 1 skipped
        FAIL [   0.085s] (2/7) probe intent::ip_013_bad
error: test run failed
";

    #[test]
    fn nextest_results_are_final_and_counted_once() {
        let outcomes = Outcomes::read(NEXTEST);
        let failed: Vec<&str> = outcomes
            .iter()
            .filter_map(|(name, passed)| (!passed).then_some(name))
            .collect();
        assert_eq!(
            failed,
            [
                "intent::ip_013_bad",
                "intent::ip_015_abort",
                "intent::ip_016_late"
            ]
        );
        assert_eq!((outcomes.passed(), outcomes.failed()), (4, 3));
        assert!(
            outcomes
                .closing()
                .unwrap()
                .starts_with("Summary [   4.098s] 7 tests")
        );
    }

    /// Printed by cargo-nextest 0.9.143 with `retries = 1`, without what the tests printed.
    const RETRIED: &str = "\
 Nextest run ID c5ba2f5e-179e-464b-98a0-f1da3c093a88 with nextest profile: default
    Starting 6 tests across 1 binary
        PASS [   0.004s] (1/6) probe intent::ip_012_ok
  TRY 1 FAIL [   0.061s] (───) probe intent::ip_013_bad
  TRY 1 FAIL [   0.063s] (───) probe intent::ip_018_flaky
  TRY 2 PASS [   0.004s] (2/6) probe intent::ip_018_flaky
  TRY 1 ABRT [   0.004s] (───) probe intent::ip_019_aborts_once
  TRY 2 PASS [   0.003s] (3/6) probe intent::ip_019_aborts_once
  TRY 2 FAIL [   0.062s] (4/6) probe intent::ip_013_bad
  TRY 1 FAIL [   0.063s] (───) probe intent::ip_021_leaks
  TRY 2 PASS [   0.205s] (5/6) probe intent::ip_021_leaks
        SLOW [>  1.000s] (───) probe intent::ip_022_slow_once
TRY 1 TRMNTG [>  2.000s] (───) probe intent::ip_022_slow_once
   TRY 1 TMT [   2.006s] (───) probe intent::ip_022_slow_once
  TRY 2 PASS [   0.004s] (6/6) probe intent::ip_022_slow_once
────────────
     Summary [   2.136s] 6 tests run: 5 passed (4 flaky, 1 leaky), 1 failed, 0 skipped
   FLAKY 2/2 [   0.004s] (2/6) probe intent::ip_018_flaky
   FLAKY 2/2 [   0.003s] (3/6) probe intent::ip_019_aborts_once
   FLAKY 2/2 [   0.205s] (5/6) probe intent::ip_021_leaks
   FLAKY 2/2 [   0.004s] (6/6) probe intent::ip_022_slow_once
  TRY 2 FAIL [   0.062s] (4/6) probe intent::ip_013_bad
error: test run failed
";

    #[test]
    fn a_test_that_passed_when_retried_passed_and_is_flaky() {
        let outcomes = Outcomes::read(RETRIED);
        assert_eq!((outcomes.passed(), outcomes.failed()), (5, 1));
        let flaky: Vec<String> = outcomes.flaky().collect();
        assert_eq!(
            flaky,
            [
                "probe intent::ip_018_flaky",
                "probe intent::ip_019_aborts_once",
                "probe intent::ip_021_leaks",
                "probe intent::ip_022_slow_once",
            ]
        );
        assert!(outcomes.closing().unwrap().contains("4 flaky"));
        assert_eq!(Outcomes::read(NEXTEST).flaky().count(), 1);
    }

    #[test]
    fn a_flaky_test_is_a_failure_if_nextest_says_so() {
        // Printed with `--flaky-result fail`.
        let log = "\
  TRY 1 FAIL [   0.077s] (───) probe intent::ip_018_flaky
  TRY 2 PASS [   0.009s] (2/6) probe intent::ip_018_flaky
     Summary [   2.169s] 6 tests run: 1 passed (1 leaky), 5 failed, 0 skipped
 FLKY-FL 2/2 [   0.009s] (2/6) probe intent::ip_018_flaky
";
        let outcomes = Outcomes::read(log);
        assert_eq!((outcomes.failed(), outcomes.flaky().count()), (1, 1));
    }

    #[test]
    fn libtest_results_of_different_binaries_are_separate() {
        let log = "\
     Running unittests src/lib.rs (target/debug/deps/a-1)
test same ... ok
test skipped ... ignored
     Running tests/it.rs (target/debug/deps/it-2)
test same ... FAILED
test panics - should panic ... ok
test result: FAILED. 1 passed; 1 failed; 0 ignored
";
        let outcomes = Outcomes::read(log);
        assert_eq!((outcomes.passed(), outcomes.failed()), (2, 1));
        assert!(
            outcomes
                .closing()
                .unwrap()
                .starts_with("test result: FAILED")
        );
    }

    #[test]
    fn a_failure_outlives_a_later_success() {
        let outcomes = Outcomes::read("test x ... FAILED\ntest x ... ok\n");
        assert_eq!((outcomes.passed(), outcomes.failed()), (0, 1));
    }

    #[test]
    fn ids_are_whole_words_of_three_digits() {
        let cases: &[(&str, &[&str])] = &[
            ("intent::ip_012_ip_013_claim", &["IP-012", "IP-013"]),
            ("ip_012_and_again_ip_012", &["IP-012"]),
            ("skip_012_this", &[]),
            ("ip_12_short", &[]),
            ("ip_0123_long", &[]),
            ("worker_extends_ip_111", &["IP-111"]),
        ];
        for (name, expected) in cases {
            assert_eq!(&ids_in(name, "IP"), expected, "{name}");
        }
    }
}
