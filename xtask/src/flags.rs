//! Command line flags: reads `--name` and `--name VALUE`, and refuses flags that the command does not have.
//!
//! There are no positional arguments and no short forms: the commands have too few flags to need them.

/// A flag of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    takes_value: bool,
}

impl Flag {
    /// A flag without a value.
    pub(crate) const fn switch(name: &'static str) -> Self {
        Self {
            name,
            takes_value: false,
        }
    }

    /// A flag with a value.
    pub(crate) const fn valued(name: &'static str) -> Self {
        Self {
            name,
            takes_value: true,
        }
    }
}

/// The flags of a command line, in order.
#[derive(Debug)]
pub(crate) struct Flags {
    given: Vec<(&'static str, String)>,
}

impl Flags {
    pub(crate) fn parse(words: &[String], known: &[Flag]) -> Result<Self, String> {
        let mut given = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (name, attached) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let flag = known
                .iter()
                .find(|flag| flag.name == name)
                .ok_or_else(|| format!("`{word}` is not a flag of this command; see --help"))?;
            let value = match (flag.takes_value, attached) {
                (true, Some(value)) => value,
                (true, None) => words
                    .next()
                    .cloned()
                    .ok_or_else(|| format!("{name} needs a value; see --help"))?,
                (false, None) => String::new(),
                (false, Some(_)) => return Err(format!("{name} takes no value; see --help")),
            };
            given.push((flag.name, value));
        }
        Ok(Self { given })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The last value wins, as in most tools.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).pop()
    }

    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        self.given
            .iter()
            .filter(|(given, _)| *given == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// A whole number, or a refusal that names the flag.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, String> {
        self.value(name)
            .map(|text| {
                text.parse()
                    .map_err(|_| format!("{name} needs a whole number, not `{text}`"))
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Flag] = &[Flag::valued("--only"), Flag::switch("--list")];

    fn parse(line: &str) -> Result<Flags, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Flags::parse(&words, KNOWN)
    }

    #[test]
    fn values_repeat_and_may_be_attached() {
        let flags = parse("--only a --only=b --list").unwrap();
        assert_eq!(flags.values("--only"), ["a", "b"]);
        assert!(flags.has("--list"));
    }

    #[test]
    fn what_is_unknown_or_incomplete_is_refused() {
        assert!(parse("--onyl a").is_err());
        assert!(parse("--only").is_err());
        assert!(parse("--list=yes").is_err());
        assert!(parse("--only x").unwrap().number("--only").is_err());
    }
}
