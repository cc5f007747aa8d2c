//! The list of error codes, read from the kernel's source, and the page of each.
//!
//! The source is read instead of the compiled list, because this crate depends on nothing.

use crate::TaskResult;
use crate::context::Context;
use crate::flags::Flags;
use crate::report;

pub(crate) const HELP: &str = "
Usage: cargo xtask errors

Prints every error code of crates/kernel/src/error.rs and whether docs/errors has its page.
Fails if a page is missing.
";

/// The file with `codes! { ... }`.
pub(crate) const SOURCE: &str = "crates/kernel/src/error.rs";
pub(crate) const PAGES: &str = "docs/errors";

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) name: String,
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
    let mut rows = vec![vec!["code".to_owned(), "page".to_owned()]];
    for code in &codes {
        let page = page_of(&code.name);
        let there = context.root.join(&page).is_file();
        missing += usize::from(!there);
        let shown = if there { page } else { "missing".to_owned() };
        rows.push(vec![code.name.clone(), shown]);
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

/// Lines such as `LeaseLost => "lease_lost", Gone;` between `codes! {` and its closing brace.
pub(crate) fn codes(source: &str) -> Vec<Code> {
    let mut found = Vec::new();
    let mut inside = false;
    for (index, line) in source.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("codes! {") {
            inside = true;
        } else if inside && line.starts_with('}') {
            break;
        } else if inside && !line.starts_with("//") {
            found.extend(code_in(line).map(|name| Code {
                name: name.to_owned(),
                line: index + 1,
            }));
        }
    }
    found
}

fn code_in(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("=>")?;
    let (name, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_from_the_invocation_and_not_from_the_macro() {
        let source = "macro_rules! codes {\n    ($a:ident => \"trap\", $b:ident;) => {};\n}\n\
                      codes! {\n    /// Says why => \"no\".\n    LeaseLost => \"lease_lost\", Gone;\n    \
                      Busy   => \"store_busy\",\n}\nconst X: &str = \"y => \\\"z\\\"\";\n";
        let names: Vec<(String, usize)> = codes(source)
            .into_iter()
            .map(|c| (c.name, c.line))
            .collect();
        assert_eq!(
            names,
            [("lease_lost".to_owned(), 6), ("store_busy".to_owned(), 7)]
        );
    }
}
