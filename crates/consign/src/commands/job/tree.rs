//! A job and its descendants as a table with indented ids, each below its parent.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::commands::automation::request::{JOB_COLUMNS, rows};

/// The position of a job in a pipeline.
pub(super) const STEP_COLUMNS: &[(&str, &str)] = &[("PIPELINE", "pipeline"), ("STEP", "step_id")];

pub(crate) fn job_tree_table(jobs: &Value) -> String {
    let jobs: Vec<&Value> = jobs.as_array().into_iter().flatten().collect();
    let ids: HashSet<&str> = jobs.iter().map(|job| id(job)).collect();
    let mut children: HashMap<Option<&str>, Vec<&Value>> = HashMap::new();
    for job in jobs.iter().rev() {
        // A job whose parent is not listed starts a tree.
        let parent = job["parent_job_id"].as_str();
        let parent = parent.filter(|parent| ids.contains(parent));
        children.entry(parent).or_default().push(job);
    }
    let first = children.remove(&None).unwrap_or_default();
    let mut waiting: Vec<(usize, &Value)> = first.into_iter().map(|job| (0, job)).collect();
    let mut listed = Vec::with_capacity(jobs.len());
    while let Some((depth, job)) = waiting.pop() {
        let mut shown = job.clone();
        if let Some(shown) = shown.as_object_mut() {
            let indented = format!("{}{}", "  ".repeat(depth), id(job));
            shown.insert("job_id".to_owned(), indented.into());
        }
        listed.push(shown);
        let below = children.remove(&Some(id(job))).unwrap_or_default();
        waiting.extend(below.into_iter().map(|job| (depth + 1, job)));
    }
    let columns = [JOB_COLUMNS, STEP_COLUMNS].concat();
    rows(&Value::Array(listed), &columns)
}

fn id(job: &Value) -> &str {
    job["job_id"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_stands_below_the_one_that_it_came_from() {
        let text = job_tree_table(&json!([
            {"job_id": "a", "parent_job_id": "gone"},
            {"job_id": "b", "parent_job_id": "a"},
            {"job_id": "c", "parent_job_id": "a", "pipeline": "p", "step_id": "s"},
            {"job_id": "d", "parent_job_id": "b"},
        ]));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("PIPELINE  STEP"), "{text}");
        assert_eq!(lines[1..4], ["a", "  b", "    d"]);
        assert!(lines[4].starts_with("  c ") && lines[4].ends_with("p         s"));
    }
}
