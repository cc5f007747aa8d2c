//! `cargo xtask conformance`: which requirements of a protocol the last run of the tests proved.
//!
//! Invariant: coverage is measured, never claimed. A requirement is covered when a test with its id ran and passed,
//! and no test with its id failed. A requirement marked `n/a` needs a reason in the checklist.

use std::collections::{BTreeMap, BTreeSet};

use crate::TaskResult;
use crate::checklist::{self, Checklist};
use crate::context::{self, Context};
use crate::flags::{Flag, Flags};
use crate::outcome::{Outcomes, ids_in};
use crate::report;

pub(crate) const HELP: &str = "
Usage: cargo xtask conformance [--face FACE] [--json]

Compares the checklist docs/conformance/FACE.md with the logs that `cargo xtask test` left in target/xtask.
A requirement is covered when a test with its id in the name (ip_012 for IP-012) ran and passed.
Fails if one is open, or if a test has more than six ids or one that is not in the checklist.
The open ones of a face whose checklist says `being_built: reason` are listed and do not fail.

  --face FACE  one face only, such as intent; all by default
  --json       print the report as JSON
";

/// The logs that hold test results. Those of planted runs are not among them.
pub(crate) const RESULT_LOGS: &[&str] = &[
    "tests",
    "tests-postgres",
    "tests-memory",
    "security",
    "security-postgres",
    "real_client",
    "schemas",
    "crash",
    "cluster",
    "browser",
];

/// A test with more ids is too broad to prove each of them.
const IDS_PER_TEST_MAX: usize = 6;

const TEST_FAILED: &str = "a test with its id failed";

const FLAGS: &[Flag] = &[Flag::valued("--face"), Flag::switch("--json")];

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    let flags = Flags::parse(words, FLAGS)?;
    run(context, flags.value("--face"), flags.has("--json"))
}

pub(crate) fn run(context: &Context, face: Option<&str>, json: bool) -> TaskResult {
    let faces = checklist::faces(context, face)?;
    let outcomes = evidence(context);
    let results: Vec<(&str, bool)> = outcomes.iter().flat_map(Outcomes::iter).collect();
    let mut reports = Vec::new();
    for face in faces {
        reports.push(Report::new(&checklist::load(context, &face)?, &results));
    }
    if json {
        let objects: Vec<String> = reports.iter().map(Report::json).collect();
        println!("[{}]", objects.join(","));
    } else {
        for report in &reports {
            print!("{}", report.text());
        }
    }
    let unproven: usize = reports.iter().map(Report::unproven).sum();
    let problems: usize = reports.iter().map(|report| report.problems.len()).sum();
    match (unproven, problems) {
        (0, 0) => Ok(()),
        _ => Err(format!(
            "conformance: {unproven} requirements open, {problems} problems"
        )),
    }
}

/// The results in the captured logs; a missing log is named in a note.
fn evidence(context: &Context) -> Vec<Outcomes> {
    let mut outcomes = Vec::new();
    for name in RESULT_LOGS {
        let path = context.log(name);
        match context::read(&path) {
            Ok(text) => outcomes.push(Outcomes::read(&text)),
            Err(_) => eprintln!(
                "note: no {}; it comes from: cargo xtask test",
                path.display()
            ),
        }
    }
    outcomes
}

/// A checklist compared with the results of the tests.
#[derive(Debug)]
struct Report {
    face: String,
    total: usize,
    being_built: Option<String>,
    /// Requirement and how many tests prove it.
    covered: Vec<(String, usize)>,
    /// Requirement and why it is open.
    open: Vec<(String, &'static str)>,
    set_aside: Vec<(String, String)>,
    problems: Vec<String>,
    /// Per section: covered, open, set aside.
    sections: Vec<(String, [usize; 3])>,
}

impl Report {
    fn new(checklist: &Checklist, results: &[(&str, bool)]) -> Self {
        let mut passes: BTreeMap<String, usize> = BTreeMap::new();
        let mut failures: BTreeSet<String> = BTreeSet::new();
        let mut problems = Vec::new();
        for (name, passed) in results {
            let ids = ids_in(name, &checklist.prefix);
            if ids.len() > IDS_PER_TEST_MAX {
                let count = ids.len();
                problems.push(format!(
                    "{name} has {count} ids, and {IDS_PER_TEST_MAX} is the limit"
                ));
                continue;
            }
            for id in ids {
                if !checklist.has(&id) {
                    problems.push(format!(
                        "{name} has the id {id}, which is not in the checklist"
                    ));
                } else if *passed {
                    *passes.entry(id).or_default() += 1;
                } else {
                    failures.insert(id);
                }
            }
        }
        let mut report = Self {
            face: checklist.face.clone(),
            total: checklist.items.len(),
            being_built: checklist.being_built.clone(),
            covered: Vec::new(),
            open: Vec::new(),
            set_aside: Vec::new(),
            problems,
            sections: Vec::new(),
        };
        for item in &checklist.items {
            let id = item.id.clone();
            let column = match (&item.set_aside, passes.get(&item.id)) {
                _ if failures.contains(&item.id) => {
                    report.open.push((id, TEST_FAILED));
                    1
                }
                (None, Some(count)) => {
                    report.covered.push((id, *count));
                    0
                }
                (None, None) => {
                    report.open.push((id, "no test with its id ran"));
                    1
                }
                (Some(_), Some(_)) => {
                    report.problems.push(format!(
                        "{id} is marked n/a, yet a test proves it: empty its status"
                    ));
                    2
                }
                (Some(reason), None) => {
                    report.set_aside.push((id, reason.clone()));
                    2
                }
            };
            report.count(&item.section, column);
        }
        report
    }

    /// The open requirements that fail. One whose test failed does so even while the face is being built.
    fn unproven(&self) -> usize {
        let open = self.open.iter();
        open.filter(|(_, why)| self.being_built.is_none() || *why == TEST_FAILED)
            .count()
    }

    fn count(&mut self, section: &str, column: usize) {
        if self.sections.last().is_none_or(|(last, _)| last != section) {
            self.sections.push((section.to_owned(), [0; 3]));
        }
        if let Some((_, counts)) = self.sections.last_mut() {
            counts[column] += 1;
        }
    }

    fn text(&self) -> String {
        let mut rows = vec![
            ["section", "covered", "open", "n/a"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for (section, counts) in &self.sections {
            let counts = counts.iter().map(ToString::to_string);
            rows.push([section.clone()].into_iter().chain(counts).collect());
        }
        let ids: Vec<&str> = self.covered.iter().map(|(id, _)| id.as_str()).collect();
        let mut lines = vec![format!("{}: {} requirements\n", self.face, self.total)];
        lines.push(report::table(&rows));
        lines.push(format!("covered ({}):", ids.len()));
        lines.extend(ids.chunks(12).map(|line| format!("  {}", line.join(" "))));
        let being_built = self.being_built.as_ref();
        let being_built = being_built.map(|reason| format!(" being built: {reason}"));
        let being_built = being_built.unwrap_or_default();
        lines.push(format!("\nopen ({}):{being_built}", self.open.len()));
        lines.extend(self.open.iter().map(|(id, why)| format!("  {id}: {why}")));
        lines.push(format!("\nn/a ({}):", self.set_aside.len()));
        lines.extend(
            self.set_aside
                .iter()
                .map(|(id, reason)| format!("  {id}: {reason}")),
        );
        lines.extend(
            self.problems
                .iter()
                .map(|problem| format!("problem: {problem}")),
        );
        lines.push(String::new());
        lines.join("\n")
    }

    fn json(&self) -> String {
        let covered = self.covered.iter().map(|(id, _)| id.as_str());
        let open = self.open.iter().map(|(id, _)| id.as_str());
        let set_aside: Vec<String> = self
            .set_aside
            .iter()
            .map(|(id, reason)| {
                format!(
                    "{}:{}",
                    report::json_string(id),
                    report::json_string(reason)
                )
            })
            .collect();
        format!(
            "{{\"face\":{},\"total\":{},\"covered\":{},\"open\":{},\"not_applicable\":{{{}}},\"problems\":{}}}",
            report::json_string(&self.face),
            self.total,
            report::json_strings(covered),
            report::json_strings(open),
            set_aside.join(","),
            report::json_strings(self.problems.iter().map(String::as_str)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
| id | section | statement | status |
|---|---|---|---|
| IP-001 | 2 | One. | |
| IP-002 | 2 | Two. | |
| IP-003 | 3.1 | Three. | n/a: a duty of others |
";

    fn judge(results: &[(&str, bool)]) -> Report {
        Report::new(&Checklist::parse("intent", LIST).unwrap(), results)
    }

    fn open(report: &Report) -> Vec<&str> {
        report.open.iter().map(|(id, _)| id.as_str()).collect()
    }

    #[test]
    fn a_requirement_is_covered_by_a_test_that_passed() {
        let report = judge(&[("intent::ip_001_holds", true)]);
        assert_eq!(report.covered, [("IP-001".to_owned(), 1)]);
        assert_eq!(open(&report), ["IP-002"]);
        assert_eq!(report.sections[0].1, [1, 1, 0]);
        assert_eq!(report.sections[1].1, [0, 0, 1]);
    }

    #[test]
    fn one_failure_outweighs_a_success() {
        let report = judge(&[("ip_001_a", true), ("ip_001_b", false), ("ip_002", true)]);
        assert_eq!(open(&report), ["IP-001"]);
    }

    #[test]
    fn greedy_unknown_and_contradicting_names_are_problems() {
        let greedy = "ip_001_ip_002_ip_003_ip_004_ip_005_ip_006_ip_007";
        let report = judge(&[(greedy, true)]);
        assert_eq!(report.problems.len(), 1);
        assert!(report.covered.is_empty());
        assert!(judge(&[("ip_999", true)]).problems[0].contains("IP-999"));
        assert!(judge(&[("ip_003", true)]).problems[0].contains("marked n/a"));
    }

    #[test]
    fn open_rows_of_a_face_being_built_do_not_fail_but_failures_and_unknown_ids_do() {
        let list = format!("being_built: soon\n\n{LIST}");
        let checklist = Checklist::parse("intent", &list).unwrap();
        let report = Report::new(&checklist, &[("ip_001", true)]);
        assert_eq!((report.open.len(), report.unproven()), (1, 0));
        assert!(report.text().contains("open (1): being built: soon"));
        let report = Report::new(&checklist, &[("ip_001", false), ("ip_777", true)]);
        assert_eq!((report.unproven(), report.problems.len()), (1, 1));
        assert_eq!(judge(&[("ip_001", true)]).unproven(), 1);
    }

    #[test]
    fn the_json_has_every_list() {
        let json = judge(&[("ip_001", true)]).json();
        let expected = "{\"face\":\"intent\",\"total\":3,\"covered\":[\"IP-001\"],\"open\":[\"IP-002\"],\
                        \"not_applicable\":{\"IP-003\":\"a duty of others\"},\"problems\":[]}";
        assert_eq!(json, expected);
    }
}
