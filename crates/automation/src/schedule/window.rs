//! The hours and weekdays in which a schedule may fire.
//!
//! A closed window delays a run without dropping it: the entry stays due until the window opens.

use consign_kernel::plant::{self, Plant};
use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("only_between `{0}` is not a window; write two different times as 08:00-22:00")]
    Between(String),
    #[error(
        "not_on {0} is not a weekday; write mon to sun, monday to sunday, or 0-7 with 0 and 7 as Sunday"
    )]
    Weekday(String),
    #[error("not_on must be a list of weekdays, such as [sat, sun]")]
    Weekdays,
    #[error(
        "not_on names all seven days, so the schedule could never fire; leave one out or remove the entry"
    )]
    NoDayLeft,
}

/// Why a due entry is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayReason {
    Hours,
    Weekday,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FiringWindow {
    /// First minute inside and first minute outside; the first may be later than the second, across midnight.
    between: Option<(Time, Time)>,
    /// Bit n set: not on day n, 0 = Sunday.
    not_on: u8,
}

impl FiringWindow {
    pub fn parse(between: Option<&str>, not_on: Option<&Value>) -> Result<Self, Error> {
        let between = between.map(parse_between).transpose()?;
        let days = match not_on {
            None | Some(Value::Null) => &[],
            Some(Value::Array(days)) => days.as_slice(),
            Some(_) => return Err(Error::Weekdays),
        };
        let mut not_on = 0;
        for day in days {
            let found = parse_weekday(day).ok_or_else(|| Error::Weekday(day.to_string()))?;
            not_on |= 1 << found;
        }
        if not_on == 0b111_1111 {
            return Err(Error::NoDayLeft);
        }
        Ok(Self { between, not_on })
    }

    /// `None` if open at `now`; otherwise the reason, and when it opens again.
    pub fn closed(&self, now: Timestamp, zone: &TimeZone) -> Option<(DelayReason, Timestamp)> {
        let reason = self.reason(now, zone)?;
        let mut at = now;
        // Each step moves to the start of the window or of a day. At least one day in seven is open, and a clock change may
        // remove that one.
        for _ in 0..40 {
            at = self.next_edge(at, zone);
            if self.reason(at, zone).is_none() {
                break;
            }
        }
        Some((reason, at))
    }

    fn reason(&self, now: Timestamp, zone: &TimeZone) -> Option<DelayReason> {
        let wall = now.to_zoned(zone.clone());
        let day = wall.weekday().to_sunday_zero_offset();
        if self.not_on & (1 << day) != 0 {
            return Some(DelayReason::Weekday);
        }
        let (start, end) = self.between?;
        let time = wall.time();
        let inside = if plant::on(Plant::OpenEnd) && time == end {
            true
        } else if start < end {
            start <= time && time < end
        } else {
            start <= time || time < end
        };
        (!inside).then_some(DelayReason::Hours)
    }

    fn next_edge(&self, at: Timestamp, zone: &TimeZone) -> Timestamp {
        let wall = at.to_zoned(zone.clone());
        let today = self.between.map(|(start, _)| (Span::new(), start));
        let tomorrow = Some((1.day(), Time::midnight()));
        [today, tomorrow]
            .into_iter()
            .flatten()
            .filter_map(|(days, time)| {
                let date = wall.date().checked_add(days).ok()?;
                let edge = date.to_datetime(time).to_zoned(zone.clone()).ok()?;
                Some(edge.timestamp())
            })
            .filter(|edge| *edge > at)
            .min()
            .unwrap_or(Timestamp::MAX)
    }
}

fn parse_between(text: &str) -> Result<(Time, Time), Error> {
    let unfit = || Error::Between(text.to_owned());
    let (start, end) = text.split_once('-').ok_or_else(unfit)?;
    let start = parse_time(start.trim()).ok_or_else(unfit)?;
    let end = parse_time(end.trim()).ok_or_else(unfit)?;
    if start == end {
        return Err(unfit());
    }
    Ok((start, end))
}

fn parse_time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |part: &str| {
        let two = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        two.then(|| part.parse::<i8>().ok()).flatten()
    };
    Time::new(digits(hour)?, digits(minute)?, 0, 0).ok()
}

fn parse_weekday(day: &Value) -> Option<u8> {
    const NAMES: [&[&str]; 7] = [
        &["sun", "sunday"],
        &["mon", "monday"],
        &["tue", "tues", "tuesday"],
        &["wed", "weds", "wednesday"],
        &["thu", "thur", "thurs", "thursday"],
        &["fri", "friday"],
        &["sat", "saturday"],
    ];
    let number = |number: u64| u8::try_from(number).ok().filter(|day| *day <= 7);
    let found = match day {
        Value::Number(day) => number(day.as_u64()?)?,
        Value::String(day) => {
            let day = day.trim().to_ascii_lowercase();
            let named = (0..)
                .zip(NAMES)
                .find(|(_, names)| names.contains(&day.as_str()));
            match named {
                Some((found, _)) => found,
                None => number(day.parse().ok()?)?,
            }
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(found % 7)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn hours_include_their_start_and_exclude_their_end_also_over_midnight_du_066() {
        consign_testkit::plants::from_environment();
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let day = FiringWindow::parse(Some("08:00-22:00"), None).unwrap();
        let open = |window: &FiringWindow, text| window.closed(at(text), &berlin).is_none();
        assert!(open(&day, "2026-01-05T07:00:00Z") && open(&day, "2026-01-05T20:59:59Z"));
        assert!(!open(&day, "2026-01-05T06:59:59Z") && !open(&day, "2026-01-05T21:00:00Z"));
        assert_eq!(
            day.closed(at("2026-01-05T21:00:00Z"), &berlin),
            Some((DelayReason::Hours, at("2026-01-06T07:00:00Z")))
        );
        let night = FiringWindow::parse(Some("22:00-06:00"), None).unwrap();
        assert!(open(&night, "2026-01-05T21:00:00Z") && open(&night, "2026-01-05T04:59:00Z"));
        assert!(!open(&night, "2026-01-05T05:00:00Z") && !open(&night, "2026-01-05T20:59:00Z"));
        for bad in [
            "08:00",
            "8:00-9:00",
            "08:00-08:00",
            "25:00-26:00",
            "08:00-24:00",
            "a-b",
            "08:60-09:00",
        ] {
            assert!(FiringWindow::parse(Some(bad), None).is_err(), "{bad}");
        }
    }

    #[test]
    fn weekdays_are_known_by_name_and_number_du_067() {
        let monday = "2026-01-05T12:00:00Z";
        for day in [
            json!("mon"),
            json!("Monday"),
            json!("MON"),
            json!(1),
            json!("1"),
        ] {
            let window = FiringWindow::parse(None, Some(&json!([day]))).unwrap();
            assert_eq!(
                window.closed(at(monday), &TimeZone::UTC),
                Some((DelayReason::Weekday, at("2026-01-06T00:00:00Z"))),
                "{day}"
            );
        }
        let tuesday = FiringWindow::parse(None, Some(&json!(["tues"]))).unwrap();
        assert_eq!(tuesday.closed(at(monday), &TimeZone::UTC), None);
        for sunday in [json!([0]), json!([7]), json!(["sunday"])] {
            let window = FiringWindow::parse(None, Some(&sunday)).unwrap();
            assert!(
                window
                    .closed(at("2026-01-04T12:00:00Z"), &TimeZone::UTC)
                    .is_some()
            );
            // Sunday evening in New York is Monday in UTC: the zone decides.
            let york = TimeZone::get("America/New_York").unwrap();
            assert!(window.closed(at("2026-01-05T02:00:00Z"), &york).is_some());
        }
        for bad in [
            json!([8]),
            json!(["funday"]),
            json!([-1]),
            json!("sat"),
            json!([1.5]),
            json!([true]),
        ] {
            assert!(FiringWindow::parse(None, Some(&bad)).is_err(), "{bad}");
        }
        let all = json!([0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(FiringWindow::parse(None, Some(&all)), Err(Error::NoDayLeft));
    }

    proptest! {
        #[test]
        fn a_closed_window_opens_at_the_instant_it_names_du_066(
            start in 0u32..1_440, length in 1u32..1_440, not_on in 0u8..127, now in 1_700_000_000i64..1_800_000_000,
        ) {
            let time = |minute: u32| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
            let between = format!("{}-{}", time(start), time(start + length));
            let days: Vec<u8> = (0..7).filter(|day| not_on & (1 << day) != 0).collect();
            let window = FiringWindow::parse(Some(&between), Some(&json!(days))).unwrap();
            let zone = TimeZone::get("America/New_York").unwrap();
            let now = Timestamp::from_second(now).unwrap();
            if let Some((_, opens)) = window.closed(now, &zone) {
                prop_assert!(opens > now);
                // A window inside the hour that a clock change skips stays closed that day and opens on the next edge.
                prop_assert!(window.closed(opens, &zone).is_none());
            }
        }
    }
}
