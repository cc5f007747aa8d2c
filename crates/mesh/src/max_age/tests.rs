//! The published table, and the bounds.

use super::*;

fn age(days: u32, override_hours: Option<u32>) -> Result<MaxAge, MaxAgeAboveWindow> {
    let settings = MaxAgeSettings {
        override_hours,
        ..MaxAgeSettings::default()
    };
    max_age(DedupeWindow::Days(days), &settings)
}

#[test]
fn cm_082_the_published_table_holds() {
    for (days, hours) in [
        (3, 72),
        (4, 72),
        (5, 96),
        (7, 144),
        (10, 216),
        (11, 237),
        (14, 302),
        (30, 648),
        (90, 1944),
        (365, 7884),
    ] {
        assert_eq!(age(days, None).unwrap().hours, hours, "{days} days");
    }
}

#[test]
fn cm_084_the_cutoff_is_an_hour_inside_of_the_window() {
    consign_testkit::plants::from_environment();
    assert_eq!(age(3, None).unwrap().cutoff_hours, 71);
    for days in 3..5_000 {
        let age = age(days, None).unwrap();
        assert!(age.cutoff_hours < days * 24, "{days} days");
        assert!(age.cutoff_hours >= 71);
        assert_eq!(age.cutoff_hours, age.hours.min(days * 24 - 1));
    }
}

#[test]
fn cm_085_permanent_mode_has_168_hours_and_at_most_720() {
    let age = |permanent_hours, override_hours| {
        let settings = MaxAgeSettings {
            permanent_hours,
            override_hours,
            ..MaxAgeSettings::default()
        };
        let age = max_age(DedupeWindow::Permanent, &settings).unwrap();
        (age.cutoff_hours, age.warning)
    };
    assert_eq!(MaxAgeSettings::default().permanent_hours, 168);
    assert_eq!(age(168, None), (168, None));
    assert_eq!(age(720, None), (720, None));
    assert_eq!(age(721, None), (720, Some(MaxAgeWarning::Clamped)));
    assert_eq!(age(168, Some(9_000)), (720, Some(MaxAgeWarning::Clamped)));
    assert_eq!(age(168, Some(2)), (2, None));
}

#[test]
fn cm_086_an_override_must_be_inside_of_the_window() {
    for (days, bound) in [(3, 71), (4, 95), (30, 719), (365, 8759)] {
        let allowed = age(days, Some(bound)).unwrap();
        assert_eq!((allowed.hours, allowed.cutoff_hours), (bound, bound));
        let refused = age(days, Some(bound + 1)).unwrap_err();
        assert_eq!(refused.hours_max, bound);
        assert!(
            refused
                .to_string()
                .starts_with("outbox_max_age_above_dedupe_window")
        );
    }
}

#[test]
fn an_override_within_the_last_day_is_reported() {
    assert_eq!(
        age(30, Some(697)).unwrap().warning,
        Some(MaxAgeWarning::NearWindow)
    );
    assert_eq!(age(30, Some(696)).unwrap().warning, None);
    assert_eq!(age(30, Some(1)).unwrap().cutoff_hours, 1);
}

#[test]
fn huge_windows_do_not_overflow() {
    let age = age(u32::MAX, None).unwrap();
    assert!(age.cutoff_hours < u32::MAX);
}

#[test]
fn cm_087_a_row_is_given_up_only_if_both_clocks_say_that_it_is_too_old() {
    let age = max_age(DedupeWindow::Days(3), &MaxAgeSettings::default()).unwrap();
    let cutoff_ms = i64::from(age.cutoff_hours) * 3_600_000;
    assert!(age.is_past(cutoff_ms, cutoff_ms));
    assert!(!age.is_past(cutoff_ms - 1, cutoff_ms));
    assert!(!age.is_past(cutoff_ms, cutoff_ms - 1));
    // The wall clock was a year behind when the row was made, or the process started with one that is ahead.
    assert!(!age.is_past(0, 365 * 24 * 3_600_000));
    assert!(!age.is_past(365 * 24 * 3_600_000, -1));
}
