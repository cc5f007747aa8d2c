//! Licence expressions: `MIT OR Apache-2.0`, `(A OR B) AND C`, `A WITH exception`, and the old `A/B` for `OR`.
//!
//! `AND` binds tighter than `OR`, as SPDX has it. What cannot be read is not satisfied.

/// Whether the expression can be met with licences that are `allowed`.
pub(super) fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = Words {
        all: spaced.split_whitespace().collect(),
        at: 0,
        allowed,
    };
    let met = words.disjunction();
    met == Some(true) && words.at == words.all.len()
}

struct Words<'a> {
    all: Vec<&'a str>,
    at: usize,
    allowed: &'a dyn Fn(&str) -> bool,
}

impl Words<'_> {
    fn disjunction(&mut self) -> Option<bool> {
        let mut met = self.conjunction()?;
        while self.take("OR") {
            // Both sides are read whatever the first says, or the reading would stop in the middle.
            met |= self.conjunction()?;
        }
        Some(met)
    }

    fn conjunction(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.take("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let met = self.disjunction()?;
            return self.take(")").then_some(met);
        }
        let licence = self.word()?;
        if self.take("WITH") {
            let exception = self.word()?;
            return Some((self.allowed)(&format!("{licence} WITH {exception}")));
        }
        Some((self.allowed)(&licence))
    }

    fn word(&mut self) -> Option<String> {
        let word = self.all.get(self.at)?;
        self.at += 1;
        let plain = !matches!(*word, "(" | ")" | "OR" | "AND" | "WITH");
        plain.then(|| (*word).to_owned())
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.all.get(self.at) == Some(&word);
        self.at += usize::from(found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_spdx_says() {
        let allowed =
            |licence: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&licence);
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND ISC", true),
            ("MIT AND GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT AND ISC", true),
            ("(GPL-3.0-only OR MIT) AND ISC", true),
            ("(MIT OR ISC) AND GPL-3.0-only", false),
            ("Apache-2.0", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH LLVM-exception", false),
            ("", false),
            ("MIT ISC", false),
            ("(MIT", false),
            ("MIT OR", false),
        ] {
            assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
        }
    }
}
