//! The table of error codes, read from the kernel's source, and the page of each.
//!
//! The source is read instead of the compiled list, because this crate depends on nothing.

use crate::TaskResult;
use crate::context::Context;
use crate::flags::Flags;
use crate::report;

pub(crate) const HELP: &str = "
Usage: cargo xtask errors

Prints every error code of crates/kernel/src/error.rs with its protocols, and whether docs/errors has its page.
Fails if a page is missing.
";

/// The file with `codes! { ... }`.
pub(crate) const SOURCE: &str = "crates/kernel/src/error.rs";
pub(crate) const PAGES: &str = "docs/errors";

/// A code of the table. Its name may be in several rows, which differ in their class.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) name: String,
    /// The protocols of all its rows, as documents call them.
    pub(crate) protocols: Vec<&'static str>,
    /// Counted from 1.
    pub(crate) line: usize,
}

pub(crate) fn page_of(code: &str) -> String {
    format!("{PAGES}/{code}.md")
}

pub(crate) fn command(context: &Context, words: &[String]) -> TaskResult {
    Flags::parse(words, &[])?;
    let codes = codes(&context.read(SOURCE)?);
    if codes.is_empty() {
        return Err(format!("{SOURCE} has no code in `codes! {{ ... }}`"));
    }
    let mut missing = 0;
    let mut rows = vec![["code", "protocols", "page"].map(str::to_owned).to_vec()];
    for code in &codes {
        let page = page_of(&code.name);
        let there = context.root.join(&page).is_file();
        missing += usize::from(!there);
        let shown = if there { page } else { "missing".to_owned() };
        rows.push(vec![code.name.clone(), code.protocols.join(", "), shown]);
    }
    print!("{}", report::table(&rows));
    match missing {
        0 => Ok(()),
        _ => Err(format!(
            "{missing} of {} codes have no page in {PAGES}",
            codes.len()
        )),
    }
}

/// Lines such as `LeaseLost => "lease_lost", Gone, [Intent];` between `codes! {` and its closing brace.
pub(crate) fn codes(source: &str) -> Vec<Code> {
    let mut found: Vec<Code> = Vec::new();
    let mut inside = false;
    for (index, line) in source.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("codes! {") {
            inside = true;
        } else if inside && line.starts_with('}') {
            break;
        } else if inside
            && !line.starts_with("//")
            && let Some(name) = code_in(line)
        {
            let position = found.iter().position(|code| code.name == name);
            let position = position.unwrap_or_else(|| {
                found.push(Code {
                    name: name.to_owned(),
                    protocols: Vec::new(),
                    line: index + 1,
                });
                found.len() - 1
            });
            for protocol in protocols_in(line) {
                if !found[position].protocols.contains(&protocol) {
                    found[position].protocols.push(protocol);
                }
            }
        }
    }
    found
}

fn code_in(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("=>")?;
    let (name, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    Some(name)
}

fn protocols_in(line: &str) -> impl Iterator<Item = &'static str> {
    let faces = line.split_once('[').and_then(|(_, rest)| {
        let (faces, _) = rest.split_once(']')?;
        Some(faces.split(','))
    });
    let faces = faces.into_iter().flatten();
    faces.map(|face| match face.trim() {
        "Intent" => "Intent Protocol",
        "Automation" => "Automations",
        "Transaction" => "Agent transactions",
        "Beam" => "Beam",
        "Mesh" => "Mesh",
        _ => "a protocol without a title in xtask/src/errors.rs",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_from_the_invocation_and_not_from_the_macro() {
        let source = "macro_rules! codes {\n    ($a:ident => \"trap\", $b:ident;) => {};\n}\n\
                      codes! {\n    /// Says why => \"no\".\n    LeaseLost => \"lease_lost\", Gone, [Intent];\n    \
                      Busy   => \"store_busy\", Busy, [Intent, Automation];\n    \
                      Late => \"lease_lost\", Busy, [Transaction, Intent];\n}\nconst X: &str = \"y => \\\"z\\\"\";\n";
        let found: Vec<(String, Vec<&str>, usize)> = codes(source)
            .into_iter()
            .map(|code| (code.name, code.protocols, code.line))
            .collect();
        let several = vec!["Intent Protocol", "Agent transactions"];
        let both = vec!["Intent Protocol", "Automations"];
        assert_eq!(
            found,
            [
                ("lease_lost".to_owned(), several, 6),
                ("store_busy".to_owned(), both, 7)
            ]
        );
    }
}
