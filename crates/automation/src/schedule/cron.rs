//! Cron expressions of exactly five fields: minute, hour, day of month, month, day of week.
//!
//! The matching library accepts more notations (seconds, `L`, `W`, `#`, `@daily`); only those that every cron knows are allowed
//! here, so that an expression means the same everywhere.
//!
//! Clock changes: an expression with fixed minutes and hours keeps its runs: a skipped time fires right after the change, and a
//! repeated time fires once. With a `*` in minute or hour, the expression follows the minutes that actually pass.

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp, ToSpan};

const YEARS_MAX: i64 = 5;
/// Longer than any current clock change.
const SKIPPED_HOURS_MAX: i64 = 3;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "cron `{0}` does not have five fields; write minute hour day-of-month month day-of-week, such as `*/15 8-18 * * mon-fri`"
    )]
    Fields(String),
    #[error(
        "`{field}` in cron `{text}` is not a {name}; write *, a value, a-b, a step as */n or a-b/n, or a list of these, within {min}-{max}"
    )]
    Field {
        text: String,
        field: String,
        name: &'static str,
        min: u8,
        max: u8,
    },
    #[error("cron `{0}` matches no minute within five years; correct its day or month")]
    Never(String),
}

#[derive(Clone, Debug)]
pub struct Cron {
    text: String,
    /// Boxed because the table is large compared to the other modes.
    pattern: Box<croner::Cron>,
    /// Minute or hour has a `*`.
    follows_minutes: bool,
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Cron {
    /// The original text.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(Error::Fields(text.to_owned()));
        }
        let mut plain = Vec::with_capacity(FIELDS.len());
        for (field, rule) in fields.iter().zip(&FIELDS) {
            plain.push(rule.plain(field).ok_or_else(|| Error::Field {
                text: text.to_owned(),
                field: (*field).to_owned(),
                name: rule.name,
                min: rule.min,
                max: rule.max,
            })?);
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let never = || Error::Never(text.to_owned());
        let cron = parser.parse(&plain.join(" ")).map_err(|_| never())?;
        let found = Self {
            text: text.to_owned(),
            pattern: Box::new(cron),
            follows_minutes: fields.iter().take(2).any(|field| field.contains('*')),
        };
        // The calendar repeats, so any five years with a leap day show whether a date exists at all.
        let somewhen = Timestamp::UNIX_EPOCH;
        found
            .next(somewhen, true, &TimeZone::UTC)
            .ok_or_else(never)?;
        Ok(found)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first matching minute after `from`, or at it if `inclusive`; `None` if there is none within five years.
    pub fn next(&self, from: Timestamp, inclusive: bool, zone: &TimeZone) -> Option<Timestamp> {
        let wall = from.to_zoned(zone.clone());
        let limit = wall
            .checked_add(Span::new().years(YEARS_MAX))
            .map_or(Timestamp::MAX, |limit| limit.timestamp());
        let found = if self.follows_minutes {
            let found = self.pattern.find_next_occurrence(&wall, inclusive).ok()?;
            found.timestamp()
        } else {
            self.next_named(wall.datetime(), from, inclusive, zone)?
        };
        Some(found).filter(|found| *found <= limit)
    }

    /// The library treats a list of hours like a `*`, so times are computed on the wall clock and converted by [`instant_of`].
    fn next_named(
        &self,
        wall: DateTime,
        from: Timestamp,
        inclusive: bool,
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        // A time that was just skipped lies before the wall clock but is still due.
        let mut start = (wall.checked_sub(SKIPPED_HOURS_MAX.hours()).ok()?, true);
        loop {
            let time = self.pattern.find_next_occurrence(&start.0, start.1).ok()?;
            let instant = instant_of(time, zone)?;
            if instant > from || (inclusive && instant == from) {
                return Some(instant);
            }
            start = (time, false);
        }
    }
}

/// For a skipped time, the clock change; for a repeated time, the first of its two instants.
fn instant_of(time: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(time);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
            ambiguous.earlier().ok()
        }
        AmbiguousOffset::Gap { after, .. } => {
            let before_change = after.to_timestamp(time).ok()?;
            let change = zone.following(before_change).next()?;
            Some(change.timestamp())
        }
    }
}

struct FieldRule {
    name: &'static str,
    min: u8,
    max: u8,
    /// Names of the values, starting with `first_named`.
    names: &'static [&'static str],
    first_named: u8,
}

const FIELDS: [FieldRule; 5] = [
    FieldRule::numeric("minute", 0, 59),
    FieldRule::numeric("hour", 0, 23),
    FieldRule::numeric("day of month", 1, 31),
    FieldRule {
        name: "month",
        min: 1,
        max: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
        first_named: 1,
    },
    FieldRule {
        name: "day of week",
        min: 0,
        max: 7,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
        first_named: 0,
    },
];

impl FieldRule {
    const fn numeric(name: &'static str, min: u8, max: u8) -> Self {
        Self {
            name,
            min,
            max,
            names: &[],
            first_named: 0,
        }
    }

    /// The field with names replaced by numbers, if it is well formed.
    fn plain(&self, field: &str) -> Option<String> {
        if field == "*" {
            return Some(field.to_owned());
        }
        let parts: Option<Vec<String>> = field.split(',').map(|part| self.part(part)).collect();
        Some(parts?.join(","))
    }

    fn part(&self, part: &str) -> Option<String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            None if range == "*" => (self.min, self.last()),
            // A step needs a range.
            None if step.is_some() => return None,
            None => (self.value(range)?, self.value(range)?),
        };
        if first > last {
            return None;
        }
        // Expanded, because the library refuses a step longer than its range, and `*/1` must count as a restriction of its day
        // field.
        let values = (first..=last).step_by(usize::from(step.unwrap_or(1)));
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        Some(values.join(","))
    }

    /// The end of `*`: seven is an alias for Sunday and must not count as another day.
    fn last(&self) -> u8 {
        if self.max == 7 { 6 } else { self.max }
    }

    fn value(&self, text: &str) -> Option<u8> {
        let named = self
            .names
            .iter()
            .zip(self.first_named..)
            .find_map(|(name, value)| name.eq_ignore_ascii_case(text).then_some(value));
        named
            .or_else(|| number(text))
            .filter(|value| (self.min..=self.max).contains(value))
    }
}

/// Digits only: the standard parser would also accept a sign.
fn number(text: &str) -> Option<u8> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
