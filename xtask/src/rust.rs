//! A lexer for Rust sources: code without comments, and string literals separately, each with its line.
//!
//! It recognises comments, strings, raw strings and character literals, so that a rule about code does not apply to prose,
//! and a rule about strings does not apply to names. It is no parser.

/// One source file, split into code and string literals.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// One entry per line: comments gone, strings emptied to `""`.
    pub(crate) code: Vec<String>,
    /// The line, counted from 1, on which a literal starts, and its content.
    pub(crate) strings: Vec<(usize, String)>,
}

impl Source {
    pub(crate) fn read(text: &str) -> Self {
        Reader {
            letters: text.chars().collect(),
            at: 0,
            source: Self {
                code: vec![String::new()],
                strings: Vec::new(),
            },
        }
        .read()
    }

    /// The number of lines before the test module, which is last in a file by convention.
    pub(crate) fn lines_before_tests(&self) -> usize {
        for (index, line) in self.code.iter().enumerate() {
            if line.trim() != "#[cfg(test)]" {
                continue;
            }
            let marked = self.code[index + 1..]
                .iter()
                .find(|line| !line.trim().is_empty());
            // The tests of `#[cfg(test)] mod tests;` are in another file; the following lines are shipped code.
            if !marked.is_some_and(|line| line.trim_end().ends_with(';')) {
                return index;
            }
        }
        self.code.len()
    }

    /// Lines of shipped code, counted from 1.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code[..self.lines_before_tests()].iter();
        lines
            .enumerate()
            .map(|(index, line)| (index + 1, line.as_str()))
    }

    /// Every line of code, tests too, counted from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.iter().enumerate();
        lines.map(|(index, line)| (index + 1, line.as_str()))
    }
}

/// Whether `code` contains `token` on its own, not as part of a longer name.
pub(crate) fn has_token(code: &str, token: &str) -> bool {
    let part_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(token).any(|(at, _)| {
        let starts = token.starts_with(part_of_name) && code[..at].ends_with(part_of_name);
        let ends =
            token.ends_with(part_of_name) && code[at + token.len()..].starts_with(part_of_name);
        !starts && !ends
    })
}

struct Reader {
    letters: Vec<char>,
    at: usize,
    source: Source,
}

impl Reader {
    fn read(mut self) -> Source {
        while let Some(letter) = self.peek(0) {
            match (letter, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(0, false),
                ('r', Some('"' | '#')) if !self.inside_name() && self.raw_hashes().is_some() => {
                    let hashes = self.raw_hashes().unwrap_or(0);
                    self.at += 1 + hashes;
                    self.string(hashes, true);
                }
                ('\'', _) => self.quote(),
                _ => self.keep(letter),
            }
        }
        self.source
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.at + ahead).copied()
    }

    fn line(&self) -> usize {
        self.source.code.len()
    }

    fn keep(&mut self, letter: char) {
        self.at += 1;
        if letter == '\n' {
            self.source.code.push(String::new());
        } else if let Some(line) = self.source.code.last_mut() {
            line.push(letter);
        }
    }

    /// Skips a letter, but counts its line.
    fn drop(&mut self) -> Option<char> {
        let letter = self.peek(0)?;
        self.at += 1;
        if letter == '\n' {
            self.source.code.push(String::new());
        }
        Some(letter)
    }

    /// `br"` starts a raw string and `for"` does not.
    fn inside_name(&self) -> bool {
        let before = |back: usize| self.at.checked_sub(back).map(|at| self.letters[at]);
        let in_name =
            |letter: Option<char>| letter.is_some_and(|c| c.is_alphanumeric() || c == '_');
        match before(1) {
            Some('b' | 'c') => in_name(before(2)),
            other => in_name(other),
        }
    }

    fn raw_hashes(&self) -> Option<usize> {
        let rest = &self.letters[self.at + 1..];
        let hashes = rest.iter().take_while(|letter| **letter == '#').count();
        (rest.get(hashes) == Some(&'"')).then_some(hashes)
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|letter| letter != '\n') {
            self.at += 1;
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(letter) = self.peek(0) {
            match (letter, self.peek(1)) {
                ('/', Some('*')) => {
                    depth += 1;
                    self.at += 2;
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    self.at += 2;
                }
                _ => {
                    self.drop();
                }
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Starts at the opening quote.
    fn string(&mut self, hashes: usize, raw: bool) {
        let line = self.line();
        let mut text = String::new();
        self.at += 1;
        while let Some(letter) = self.drop() {
            if letter == '\\' && !raw {
                text.extend(self.drop());
            } else if letter == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                self.at += hashes;
                break;
            } else {
                text.push(letter);
            }
        }
        self.source.strings.push((line, text));
        if let Some(code) = self.source.code.last_mut() {
            code.push_str("\"\"");
        }
    }

    /// A character literal is dropped; a lifetime is kept.
    fn quote(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => {
                self.at += 3;
                while self.peek(0).is_some_and(|letter| letter != '\'') {
                    self.at += 1;
                }
                self.at += 1;
            }
            (Some(_), Some('\'')) => self.at += 3,
            _ => self.keep('\''),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_leave_the_code() {
        let text =
            "let a = \"std::fs // no\"; // tokio\n/* one /* two */\nthree */ b('\"', '\\'', 'x);\n";
        let source = Source::read(text);
        assert_eq!(source.code, ["let a = \"\"; ", "", " b(, , 'x);", ""]);
        assert_eq!(source.strings, [(1, "std::fs // no".to_owned())]);
    }

    #[test]
    fn raw_strings_end_where_their_hashes_do() {
        let source = Source::read("x(r#\"a \" b\"#, br\"\\\", rest)\nfor_r\"y\"");
        assert_eq!(source.strings[0].1, "a \" b");
        assert_eq!(source.strings[1].1, "\\");
        assert_eq!(source.strings[2], (2, "y".to_owned()));
        assert!(source.code[0].ends_with("rest)"));
    }

    #[test]
    fn a_string_over_several_lines_keeps_the_count() {
        let source = Source::read("a(\"one\ntwo\");\nlast");
        assert_eq!(source.lines().last(), Some((3, "last")));
    }

    #[test]
    fn shipped_code_ends_at_the_test_module_but_not_at_a_test_file() {
        let inline = Source::read("a\n#[cfg(test)]\nmod tests {\nb\n}");
        assert_eq!(inline.shipped().count(), 1);
        let apart = Source::read("#[cfg(test)]\nmod tests;\nb");
        assert_eq!(apart.shipped().count(), 3);
    }

    #[test]
    fn tokens_are_whole_names() {
        assert!(has_token("use std::time::Duration", "std::time"));
        assert!(!has_token("operand + brand", "rand"));
        assert!(!has_token("InstantLike", "Instant"));
        assert!(has_token("println!()", "println!"));
    }
}
