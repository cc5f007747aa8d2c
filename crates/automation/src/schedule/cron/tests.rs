//! Cron expressions against known calendars, clock changes and a slow model.

use proptest::prelude::*;

use super::*;

/// The next `count` slots, as wall-clock time with offset.
fn slots(text: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let cron = Cron::parse(text).unwrap();
    let zone = TimeZone::get(zone).unwrap();
    let mut at: Timestamp = from.parse().unwrap();
    let mut found = Vec::new();
    for _ in 0..count {
        at = cron.next(at, false, &zone).unwrap();
        found.push(
            at.to_zoned(zone.clone())
                .strftime("%m-%d %H:%M%:z")
                .to_string(),
        );
    }
    found
}

#[test]
fn fields_names_lists_and_steps_are_matched_du_062() {
    let days = |text: &str, count| -> Vec<String> {
        let found = slots(text, "UTC", "2026-02-01T00:00:00Z", count);
        found.iter().map(|slot| slot[..11].to_owned()).collect()
    };
    assert_eq!(
        days("*/20 * * * *", 3),
        ["02-01 00:20", "02-01 00:40", "02-01 01:00"]
    );
    assert_eq!(
        days("5,35 8-10/2 * * *", 3),
        ["02-01 08:05", "02-01 08:35", "02-01 10:05"]
    );
    assert_eq!(days("0 0 * MAR,apr Sun", 1), ["03-01 00:00"]);
    assert_eq!(days("0 9 * * mon-fri", 2), ["02-02 09:00", "02-03 09:00"]);
    assert_eq!(days("0 9 * * 7", 1), ["02-01 09:00"]);
    assert_eq!(
        days("0 9 * * 5-7", 3),
        ["02-01 09:00", "02-06 09:00", "02-07 09:00"]
    );
    assert_eq!(days("0 0 29 2 *", 1), ["02-29 00:00"]);
    assert_eq!(days("0 0-10/20 * * *", 1), ["02-02 00:00"]);
}

#[test]
fn either_day_field_matches_when_both_are_restricted_du_062() {
    let both = slots("0 0 13 * fri", "UTC", "2026-02-01T00:00:00Z", 3);
    assert_eq!(
        both,
        [
            "02-06 00:00+00:00",
            "02-13 00:00+00:00",
            "02-20 00:00+00:00"
        ]
    );
    // `*/2` is a restriction although it looks open: the odd days of the month or any Monday.
    let stepped = slots("0 0 */2 * mon", "UTC", "2026-02-01T00:00:00Z", 3);
    assert_eq!(
        stepped,
        [
            "02-02 00:00+00:00",
            "02-03 00:00+00:00",
            "02-05 00:00+00:00"
        ]
    );
    let every = slots("0 0 1-31 * mon", "UTC", "2026-02-01T00:00:00Z", 2);
    assert_eq!(every, ["02-02 00:00+00:00", "02-03 00:00+00:00"]);
}

#[test]
fn what_is_no_plain_cron_is_refused_with_what_to_write_du_062() {
    for bad in [
        "",
        "* * * *",
        "* * * * * *",
        "@daily",
        "0 0 * * * 2026",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "* * * * fri-sun",
        "*/0 * * * *",
        "5/10 * * * *",
        "/5 * * * *",
        "1,,2 * * * *",
        ", * * * *",
        "mon * * * *",
        "* * * mon *",
        "* * L * *",
        "* * 15W * *",
        "* * * * 5#2",
        "* * * * 5L",
        "* * ? * *",
        "* * 1 * +mon",
        "-1 * * * *",
        "1-2-3 * * * *",
        "+1 * * * *",
        "* * * * funday",
        "1/2/3 * * * *",
    ] {
        let found = Cron::parse(bad).map(|_| ()).unwrap_err();
        assert!(found.to_string().contains("write"), "{bad}: {found}");
    }
    for never in ["0 0 30 2 *", "0 0 31 4,6 *"] {
        assert_eq!(Cron::parse(never), Err(Error::Never(never.to_owned())));
    }
    assert!(Cron::parse("0 0 30 2 mon").is_ok(), "a Monday will do");
}

#[test]
fn skipped_hour_moves_a_fixed_time_and_drops_wildcard_minutes_du_062() {
    let berlin = slots("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3);
    assert_eq!(
        berlin,
        [
            "03-28 02:30+01:00",
            "03-29 03:00+02:00",
            "03-30 02:30+02:00"
        ]
    );
    let york = slots("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 2);
    assert_eq!(york, ["03-08 03:00-04:00", "03-09 02:30-04:00"]);
    let half_hours = slots("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z", 2);
    assert_eq!(half_hours, ["03-29 01:30+01:00", "03-29 03:00+02:00"]);
}

#[test]
fn lists_of_hours_keep_their_runs_like_single_hours_du_062() {
    let skipped = slots(
        "0,30 2,14 * * *",
        "Europe/Berlin",
        "2026-03-28T14:00:00Z",
        3,
    );
    assert_eq!(
        skipped,
        [
            "03-29 03:00+02:00",
            "03-29 14:00+02:00",
            "03-29 14:30+02:00"
        ]
    );
    let repeated = slots("0 2,14 * * *", "Europe/Berlin", "2026-10-24T14:00:00Z", 3);
    assert_eq!(
        repeated,
        [
            "10-25 02:00+02:00",
            "10-25 14:00+01:00",
            "10-26 02:00+01:00"
        ]
    );
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let change: Timestamp = "2026-03-29T01:00:00Z".parse().unwrap();
    let cron = Cron::parse("30 2 * * *").unwrap();
    assert_eq!(
        cron.next(change, true, &berlin),
        Some(change),
        "due in the minute of the change"
    );
}

#[test]
fn repeated_hour_runs_a_fixed_time_once_and_wildcard_minutes_twice_du_062() {
    let berlin = slots("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(berlin, ["10-25 02:30+02:00", "10-26 02:30+01:00"]);
    let york = slots("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2);
    assert_eq!(york, ["11-01 01:30-04:00", "11-02 01:30-05:00"]);
    let half_hours = slots("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:15:00Z", 3);
    assert_eq!(
        half_hours,
        [
            "10-25 02:30+02:00",
            "10-25 02:00+01:00",
            "10-25 02:30+01:00"
        ]
    );
}

proptest! {
    #[test]
    fn each_named_time_runs_once_a_day_whatever_the_clock_does_du_062(
        minute in 0u8..60, hour in 0u8..24, zone in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    ) {
        let cron = Cron::parse(&format!("{minute} {hour} * * *")).unwrap();
        let zone = TimeZone::get(zone).unwrap();
        let start: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let end = start + std::time::Duration::from_hours(24 * 365);
        let mut days = std::collections::BTreeSet::new();
        let mut at = start;
        while let Some(next) = cron.next(at, false, &zone).filter(|next| *next < end) {
            prop_assert!(days.insert(next.to_zoned(zone.clone()).date()), "twice on one day");
            at = next;
        }
        prop_assert!(days.len() >= 364, "{} days", days.len());
    }

    #[test]
    fn next_slot_matches_its_minute_and_is_later_du_062(
        minute in 0i8..60, hour in 0i8..24, start in 1_700_000_000i64..1_900_000_000,
    ) {
        let cron = Cron::parse(&format!("{minute} {hour} * * *")).unwrap();
        let from = Timestamp::from_second(start).unwrap();
        let next = cron.next(from, false, &TimeZone::UTC).unwrap();
        let wall = next.to_zoned(TimeZone::UTC);
        prop_assert!(next > from && next.duration_since(from).as_secs() <= 86_400);
        prop_assert_eq!((wall.minute(), wall.hour(), wall.second()), (minute, hour, 0));
    }
}

/// A field as text, and its values.
fn field(min: u8, max: u8) -> impl Strategy<Value = (String, Vec<u8>)> {
    let all = move || (min..=max).collect::<Vec<u8>>();
    prop_oneof![
        Just(("*".to_owned(), all())),
        (min..=max).prop_map(|value| (value.to_string(), vec![value])),
        (min..=max, min..=max).prop_map(|(a, b)| (format!("{a},{b}"), vec![a, b])),
        (min..=max, min..=max, 1u8..9).prop_map(|(a, b, step)| {
            let (a, b) = (a.min(b), a.max(b));
            (
                format!("{a}-{b}/{step}"),
                (a..=b).step_by(step.into()).collect(),
            )
        }),
        (1u8..20).prop_map(move |step| {
            let text = format!("*/{step}");
            (text, (min..=max).step_by(step.into()).collect())
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn next_slot_is_the_one_that_a_walk_over_all_minutes_finds_du_062(
        minute in field(0, 59), hour in field(0, 23), day in field(1, 31), month in field(1, 12), weekday in field(0, 6),
        start in 28_000_000i64..30_000_000,
    ) {
        let text = [&minute.0, &hour.0, &day.0, &month.0, &weekday.0].map(String::as_str).join(" ");
        let Ok(cron) = Cron::parse(&text) else {
            // Only a date that no month has may be refused.
            prop_assert!(weekday.0 == "*" && day.1.iter().all(|day| *day > 29));
            return Ok(());
        };
        let found = cron.next(Timestamp::from_second(start * 60).unwrap(), false, &TimeZone::UTC).unwrap();
        let has = |values: &[u8], value: i8| values.contains(&value.unsigned_abs());
        let matches = |at: Timestamp| {
            let wall = at.to_zoned(TimeZone::UTC);
            let by_day = has(&day.1, wall.day());
            let by_weekday = has(&weekday.1, wall.weekday().to_sunday_zero_offset());
            let on_day = if day.0 == "*" || weekday.0 == "*" { by_day && by_weekday } else { by_day || by_weekday };
            on_day && has(&month.1, wall.month()) && has(&hour.1, wall.hour()) && has(&minute.1, wall.minute())
        };
        prop_assert!(matches(found), "{} at {}", text, found);
        let minutes = (found.as_second() / 60 - start).min(60 * 24 * 40);
        for earlier in 1..minutes {
            let earlier = Timestamp::from_second((start + earlier) * 60).unwrap();
            prop_assert!(!matches(earlier), "{} missed {}", text, earlier);
        }
    }
}
