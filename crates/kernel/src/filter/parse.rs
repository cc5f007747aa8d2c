//! From the text of a filter to its terms; a mistake is reported with its place.

use super::instant::{instant, length_us};
use super::{Filter, FilterTerm, FilterTest, MemberValue, TextPattern};
use crate::ids::IntentId;
use crate::limits::{FILTER_BYTES_MAX, FILTER_TERMS_MAX};
use crate::profile::{Face, ProfileId};

/// How each term begins, for help and errors.
pub const KEYS: &[&str] = &[
    "id:",
    "ns:",
    "goal:",
    "owner:",
    "worker:",
    "state:",
    "face:",
    "error:",
    "age>",
    "age<",
    "created>",
    "created<",
    "payload.NAME=",
];

/// Where a filter is wrong, and what is expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}, {term}: expected {expected}")]
pub struct FilterError {
    /// The first character is column 1.
    pub column: usize,
    /// The term as it was written.
    pub term: String,
    pub expected: String,
}

/// A character of a term. One in quotes or after a backslash stands for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TermChar {
    char: char,
    literal: bool,
    column: usize,
}

struct TermText {
    column: usize,
    /// As it was written.
    source: String,
    chars: Vec<TermChar>,
}

impl Filter {
    /// Parses a filter. An empty text is a filter that matches everything.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > FILTER_BYTES_MAX {
            return Err(FilterError {
                column: 1,
                term: "the filter".to_owned(),
                expected: format!("at most {FILTER_BYTES_MAX} bytes"),
            });
        }
        let texts = split(text)?;
        if let Some(extra) = texts.get(FILTER_TERMS_MAX) {
            return Err(extra.wrong(extra.column, &format!("at most {FILTER_TERMS_MAX} terms")));
        }
        let terms = texts.iter().map(term).collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            terms,
        })
    }
}

impl TermText {
    fn wrong(&self, column: usize, expected: &str) -> FilterError {
        FilterError {
            column,
            term: self.source.clone(),
            expected: expected.to_owned(),
        }
    }
}

/// The terms of a text: what white space separates, unless it is in quotes.
fn split(text: &str) -> Result<Vec<TermText>, FilterError> {
    let mut terms = Vec::new();
    let mut open: Option<TermText> = None;
    let mut quote: Option<usize> = None;
    let mut chars = (1..).zip(text.chars());
    while let Some((column, char)) = chars.next() {
        if quote.is_none() && char.is_whitespace() {
            terms.extend(open.take());
            continue;
        }
        let term = open.get_or_insert_with(|| TermText {
            column,
            source: String::new(),
            chars: Vec::new(),
        });
        term.source.push(char);
        let mut push = |char, literal| {
            term.chars.push(TermChar {
                char,
                literal,
                column,
            });
        };
        match char {
            '"' => quote = if quote.is_some() { None } else { Some(column) },
            '\\' => {
                let Some((_, escaped)) = chars.next() else {
                    return Err(term.wrong(column, "a character after the backslash"));
                };
                push(escaped, true);
                term.source.push(escaped);
            }
            other => push(other, quote.is_some()),
        }
    }
    if let (Some(column), Some(term)) = (quote, &open) {
        return Err(term.wrong(column, "a closing quotation mark"));
    }
    terms.extend(open);
    Ok(terms)
}

fn term(text: &TermText) -> Result<FilterTerm, FilterError> {
    let negated = matches!(text.chars.first(), Some(first) if is(first, '-'));
    let chars = &text.chars[usize::from(negated)..];
    let operator = chars
        .iter()
        .position(|char| !char.literal && ":<>=".contains(char.char));
    let unknown = |column| text.wrong(column, &format!("one of {}", KEYS.join(" ")));
    let Some(operator) = operator else {
        return Err(unknown(text.column));
    };
    let (name, value) = (&chars[..operator], &chars[operator + 1..]);
    let place = value
        .first()
        .map_or(chars[operator].column + 1, |first| first.column);
    let value = TermValue {
        term: text,
        chars: value,
        column: place,
    };
    let path: Vec<String> = name.split(|char| is(char, '.')).map(text_of).collect();
    let begins_in_payload = path.len() > 1 && path[0] == "payload";
    let test = match (text_of(name).as_str(), chars[operator].char) {
        _ if begins_in_payload => {
            if chars[operator].char != '=' {
                return Err(text.wrong(chars[operator].column, "= and a value"));
            }
            if path.iter().any(String::is_empty) {
                return Err(text.wrong(
                    text.column,
                    "names with a dot between them, as in payload.a.b=1",
                ));
            }
            FilterTest::Payload {
                path: path[1..].to_vec(),
                value: value.member()?,
            }
        }
        ("id", ':') => FilterTest::Id(value.ids()?),
        ("ns", ':') => FilterTest::Namespace(value.patterns()?),
        ("goal", ':') => FilterTest::Goal(value.patterns()?),
        ("owner", ':') => FilterTest::Owner(value.patterns()?),
        ("worker", ':') => FilterTest::Worker(value.patterns()?),
        ("state", ':') => FilterTest::State(value.words()?),
        ("face", ':') => FilterTest::Face(value.faces()?),
        ("error", ':') => FilterTest::Error(value.text()?.to_lowercase()),
        ("age", '>') => FilterTest::OlderThan(value.length()?),
        ("age", '<') => FilterTest::YoungerThan(value.length()?),
        ("created", '>') => FilterTest::CreatedAfter(value.instant()?),
        ("created", '<') => FilterTest::CreatedBefore(value.instant()?),
        ("age" | "created", _) => {
            return Err(text.wrong(chars[operator].column, "> or <"));
        }
        _ => return Err(unknown(text.column)),
    };
    Ok(FilterTerm { negated, test })
}

fn is(char: &TermChar, wanted: char) -> bool {
    !char.literal && char.char == wanted
}

fn text_of(chars: &[TermChar]) -> String {
    chars.iter().map(|char| char.char).collect()
}

/// What follows the name of a term.
struct TermValue<'a> {
    term: &'a TermText,
    chars: &'a [TermChar],
    column: usize,
}

impl TermValue<'_> {
    fn wrong(&self, expected: &str) -> FilterError {
        self.term.wrong(self.column, expected)
    }

    fn text(&self) -> Result<String, FilterError> {
        if self.chars.is_empty() {
            return Err(self.wrong("a value"));
        }
        Ok(text_of(self.chars))
    }

    /// The values between the commas.
    fn list(&self) -> Result<Vec<&[TermChar]>, FilterError> {
        let parts: Vec<&[TermChar]> = self.chars.split(|char| is(char, ',')).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(self.wrong("a value, or several with commas between them"));
        }
        Ok(parts)
    }

    fn patterns(&self) -> Result<Vec<TextPattern>, FilterError> {
        let pattern = |part: &[TermChar]| {
            let is_prefix = part.last().is_some_and(|last| is(last, '*'));
            let text = &part[..part.len() - usize::from(is_prefix)];
            if let Some(star) = text.iter().find(|char| is(char, '*')) {
                return Err(self.term.wrong(
                    star.column,
                    "a star only at the end; in quotes it stands for itself",
                ));
            }
            Ok(TextPattern {
                text: text_of(text),
                is_prefix,
            })
        };
        self.list()?.into_iter().map(pattern).collect()
    }

    fn each<T>(
        &self,
        read: impl Fn(&str) -> Option<T>,
        expected: impl Fn() -> String,
    ) -> Result<Vec<T>, FilterError> {
        let value = |part: &[TermChar]| {
            let column = part.first().map_or(self.column, |first| first.column);
            read(&text_of(part)).ok_or_else(|| self.term.wrong(column, &expected()))
        };
        self.list()?.into_iter().map(value).collect()
    }

    fn ids(&self) -> Result<Vec<IntentId>, FilterError> {
        self.each(
            |text| text.parse().ok(),
            || "the id of an intent, 32 hexadecimal digits".to_owned(),
        )
    }

    fn words(&self) -> Result<Vec<String>, FilterError> {
        let known = words();
        self.each(
            |text| known.contains(&text).then(|| text.to_owned()),
            || format!("a state: {}", known.join(", ")),
        )
    }

    fn faces(&self) -> Result<Vec<Face>, FilterError> {
        self.each(
            |text| Face::ALL.iter().find(|face| face.name() == text).copied(),
            || {
                let names: Vec<&str> = Face::ALL.iter().map(|face| face.name()).collect();
                format!("a face: {}", names.join(", "))
            },
        )
    }

    fn length(&self) -> Result<i64, FilterError> {
        length_us(&text_of(self.chars))
            .ok_or_else(|| self.wrong("a length of time such as 30s, 5m, 2h or 7d"))
    }

    fn instant(&self) -> Result<crate::ids::Micros, FilterError> {
        instant(&text_of(self.chars)).ok_or_else(|| {
            self.wrong("a date such as 2026-11-02, or a time such as 2026-11-02T08:30:00Z")
        })
    }

    fn member(&self) -> Result<MemberValue, FilterError> {
        // An empty text in quotes is a value, too.
        let quoted = self.term.source.ends_with('"') && self.chars.iter().all(|char| char.literal);
        if self.chars.is_empty() && !quoted {
            return Err(self.wrong("a value"));
        }
        Ok(MemberValue::new(text_of(self.chars), quoted))
    }
}

/// The words of all protocols for their states, each once.
pub(super) fn words() -> Vec<&'static str> {
    let mut words = Vec::new();
    for id in ProfileId::ALL {
        for (_, _, word) in id.profile().words {
            if !words.contains(word) {
                words.push(*word);
            }
        }
    }
    words
}
