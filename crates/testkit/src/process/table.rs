//! The process table from `/proc`: the state, the parent and the start time of each process.

use std::fs;

/// The entry of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub state: String,
    pub parent: u32,
    /// In ticks since the boot. Process ids are reused; id and start time together are unique.
    pub started: u64,
}

impl Row {
    pub fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses, before the other fields, may contain any characters.
    fn read(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            state: (*fields.first()?).to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Whether the process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    Row::of(pid).is_some_and(|row| row.state != "Z" && row.state != "X")
}

/// The ids of all processes.
pub fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.collect()
}

/// A process and all its descendants.
pub fn family(first: u32) -> Vec<u32> {
    let rows = pids().into_iter();
    let parents: Vec<(u32, u32)> = rows
        .filter_map(|pid| Some((pid, Row::of(pid)?.parent)))
        .collect();
    let mut family = vec![first];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        let children = parents.iter().filter(|(_, parent)| *parent == member);
        family.extend(children.map(|(pid, _)| *pid));
        next += 1;
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_past_odd_names() {
        let text = "12 (a) b) S 7 1 1 0 -1 0 0 0 0 0 100 50 25 25 20 0 1 0 99 5 5";
        let row = Row::read(text).unwrap();
        assert_eq!((row.state.as_str(), row.parent, row.started), ("S", 7, 99));
        assert_eq!(Row::read(""), None);
    }

    #[test]
    fn a_family_has_its_children_and_the_dead_are_not_alive() {
        let mut sleep = std::process::Command::new("sleep");
        let mut child = sleep.arg("60").spawn().unwrap();
        let (pid, own) = (child.id(), std::process::id());
        assert!(family(own).contains(&pid) && is_alive(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(pid) && !family(own).contains(&pid));
    }
}
