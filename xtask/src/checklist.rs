//! The checklists in `docs/conformance`: the requirements of each face, one row each.
//!
//! Invariant: a checklist does not claim coverage. Its status column is empty, or `n/a` with the reason. While a face is
//! being built, a line outside of the table says so, with the reason.

use crate::context::Context;
use crate::markdown;

const FOLDER: &str = "docs/conformance";

/// Files of the folder that are no checklist.
const OTHERS: &[&str] = &["mutations", "README"];

/// Starts the line with the reason why open rows of this face do not fail yet.
const BEING_BUILT: &str = "being_built:";

const COLUMNS: &[&str] = &["id", "section", "statement", "status"];

/// The faces that have a checklist, or the requested one.
pub(crate) fn faces(context: &Context, wanted: Option<&str>) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(context.root.join(FOLDER))
        .map_err(|error| format!("cannot list {FOLDER}: {error}"))?;
    let mut faces: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".md")?.to_owned()))
        .filter(|name| !OTHERS.contains(&name.as_str()))
        .collect();
    faces.sort();
    if let Some(wanted) = wanted {
        if !faces.iter().any(|face| face == wanted) {
            return Err(format!(
                "face `{wanted}` has no checklist; there are: {}",
                faces.join(", ")
            ));
        }
        faces.retain(|face| face == wanted);
    }
    if faces.is_empty() {
        return Err(format!("there is no checklist in {FOLDER}"));
    }
    Ok(faces)
}

pub(crate) fn load(context: &Context, face: &str) -> Result<Checklist, String> {
    let path = format!("{FOLDER}/{face}.md");
    Checklist::parse(face, &context.read(&path)?).map_err(|error| format!("{path}:{error}"))
}

/// One requirement.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) section: String,
    /// The reason why no test of a server can prove it.
    pub(crate) set_aside: Option<String>,
}

/// All requirements of one face, in the order of the document.
#[derive(Debug)]
pub(crate) struct Checklist {
    pub(crate) face: String,
    /// The prefix of its ids: `IP` of `IP-012`.
    pub(crate) prefix: String,
    /// The reason why open requirements are only listed.
    pub(crate) being_built: Option<String>,
    pub(crate) items: Vec<Item>,
}

impl Checklist {
    pub(crate) fn parse(face: &str, text: &str) -> Result<Self, String> {
        let mut items: Vec<Item> = Vec::new();
        for row in markdown::rows(text, COLUMNS) {
            let [id, section, statement, status] = row.cells.as_slice() else {
                return Err(format!("{}: a row needs {} cells", row.line, COLUMNS.len()));
            };
            if statement.is_empty() || section.is_empty() {
                return Err(format!(
                    "{}: {id} needs a section and a statement",
                    row.line
                ));
            }
            let set_aside = match status.strip_prefix("n/a:").map(str::trim) {
                Some("") => {
                    return Err(format!("{}: {id} is marked n/a without a reason", row.line));
                }
                Some(reason) => Some(reason.to_owned()),
                None if status.is_empty() => None,
                None => {
                    let line = row.line;
                    return Err(format!(
                        "{line}: the status of {id} is empty or `n/a: reason`, not `{status}`"
                    ));
                }
            };
            if items.iter().any(|item| item.id == *id) {
                return Err(format!("{}: {id} is listed twice", row.line));
            }
            items.push(Item {
                id: id.clone(),
                section: section.clone(),
                set_aside,
            });
        }
        let Some((prefix, _)) = items.first().and_then(|item| item.id.split_once('-')) else {
            return Err(format!(
                "1: there is no table with the columns {}",
                COLUMNS.join(", ")
            ));
        };
        let prefix = prefix.to_owned();
        let being_built = match text.lines().find_map(|line| line.strip_prefix(BEING_BUILT)) {
            Some(reason) if reason.trim().is_empty() => {
                return Err("1: the face is being built without a reason".to_owned());
            }
            reason => reason.map(|reason| reason.trim().to_owned()),
        };
        if let Some(stray) = items.iter().find(|item| !is_id(&item.id, &prefix)) {
            return Err(format!(
                "1: `{}` is no id of the form {prefix}-000",
                stray.id
            ));
        }
        Ok(Self {
            face: face.to_owned(),
            prefix,
            being_built,
            items,
        })
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.items.iter().any(|item| item.id == id)
    }
}

fn is_id(id: &str, prefix: &str) -> bool {
    let number = id
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| number.len() == 3 && number.bytes().all(|b| b.is_ascii_digit()))
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

    #[test]
    fn a_checklist_may_not_claim_its_own_coverage() {
        let refusal =
            |from: &str, to: &str| Checklist::parse("intent", &LIST.replace(from, to)).unwrap_err();
        assert!(refusal("Two. | |", "Two. | covered |").contains("not `covered`"));
        assert!(refusal("n/a: a duty of others", "n/a:").contains("without a reason"));
        assert!(refusal("IP-002", "IP-001").contains("twice"));
        assert!(refusal("IP-002", "IP-2").contains("no id"));
        assert!(Checklist::parse("intent", "nothing").is_err());
    }

    #[test]
    fn a_face_is_being_built_for_a_reason() {
        let parsed = |line: &str| Checklist::parse("intent", &format!("{line}\n\n{LIST}"));
        assert_eq!(parsed("").unwrap().being_built, None);
        let built = parsed("being_built: not joined yet").unwrap().being_built;
        assert_eq!(built.as_deref(), Some("not joined yet"));
        assert!(parsed("being_built:").unwrap_err().contains("a reason"));
    }

    #[test]
    fn the_checklists_of_this_repository_can_be_read() {
        let context = Context::discover().unwrap();
        for face in faces(&context, None).unwrap() {
            load(&context, &face).unwrap();
        }
    }
}
