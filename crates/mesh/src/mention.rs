//! Mentions in the text of a message: `@` and a name.
//!
//! Invariant: an `@` inside of a word, as in an e-mail address, is no mention, and a name is matched as a whole, without
//! regard to case.

#[cfg(test)]
mod tests;

/// Whether the text mentions the name, which may contain spaces.
pub fn mentions(text: &str, name: &str) -> bool {
    !name.is_empty() && starts(text).any(|after| is_name_at(after, name))
}

/// The names that the text mentions, in the order of the list.
pub fn mentioned<'a>(text: &str, names: &[&'a str]) -> Vec<&'a str> {
    names
        .iter()
        .copied()
        .filter(|name| mentions(text, name))
        .collect()
}

/// What follows each `@` that begins a mention.
fn starts(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('@').filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let begins = before.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        begins.then(|| &text[at + 1..])
    })
}

fn is_name_at(text: &str, name: &str) -> bool {
    let mut rest = text.chars();
    let mut wanted = name.chars();
    let matches = wanted.all(|c| {
        rest.next()
            .is_some_and(|other| other.to_lowercase().eq(c.to_lowercase()))
    });
    // A hyphen or a dot continues a name only if more of it follows.
    let mut after = rest.clone();
    let continues = match after.next() {
        Some('-' | '.') => after.next().is_some_and(char::is_alphanumeric),
        Some(c) => c.is_alphanumeric() || c == '_',
        None => false,
    };
    matches && !continues
}
