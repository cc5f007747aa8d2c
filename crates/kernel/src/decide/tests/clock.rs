//! Passed deadlines, by shelf and by how late they are processed.

use super::{LEASE_US, NOW, changed, facts, row};
use crate::decide::{Cx, Sweeps, on_time};
use crate::ids::{Entropy, Micros, SECOND_US};
use crate::intent::{Intent, Shelf};
use crate::profile::ProfileId;
use crate::state::{State, Verb};

/// The shelf of the row after its deadline was applied, and the facts; `None` if nothing was written.
fn acted(row: &Intent, now: Micros) -> Option<(Shelf, Vec<Verb>)> {
    let (mut entropy, mut last_seq, mut last_fact) = (Entropy::new([3; 32]), 0, 0);
    let mut cx = Cx {
        now,
        wall: now,
        entropy: &mut entropy,
        last_seq: &mut last_seq,
        last_fact: &mut last_fact,
        sweeps: &mut Sweeps::default(),
    };
    let writes = on_time(row.clone(), &mut cx);
    let told = facts(&writes).iter().map(|fact| fact.verb).collect();
    changed(&writes).last().map(|row| (row.shelf, told))
}

fn on(shelf: Shelf) -> Intent {
    let queued = || row(ProfileId::Intent, State::Queued);
    let held = || row(ProfileId::Intent, State::Dispatched);
    match shelf {
        Shelf::Ready => queued(),
        Shelf::Delayed => {
            let mut row = queued();
            row.run_at = NOW.plus(SECOND_US);
            row.reshelve(NOW);
            row
        }
        Shelf::Leased => held(),
        Shelf::Lapsed => {
            let mut row = held();
            (row.shelf, row.wake_at) = (Shelf::Lapsed, row.expires_at);
            row
        }
        Shelf::Parked => {
            let mut row = queued();
            (row.shelf, row.wake_at) = (Shelf::Parked, Micros::MAX);
            row
        }
        Shelf::Done => row(ProfileId::Intent, State::Acked),
    }
}

#[test]
fn every_shelf_waits_for_its_deadline_and_then_moves_on() {
    let moves = |shelf| match shelf {
        Shelf::Delayed => Some(Shelf::Ready),
        Shelf::Ready => Some(Shelf::Parked),
        Shelf::Leased => Some(Shelf::Lapsed),
        Shelf::Lapsed => Some(Shelf::Parked),
        // The cleanup pass alone removes these.
        Shelf::Parked | Shelf::Done => None,
    };
    for &shelf in Shelf::ALL {
        let row = on(shelf);
        assert_eq!(row.shelf, shelf);
        assert_eq!(acted(&row, row.wake_at.minus(1)), None, "{shelf:?} before");
        for late_us in [0, 1, SECOND_US] {
            let expected = moves(shelf).map(|to| (to, Vec::new()));
            let found = acted(&row, row.wake_at.plus(late_us));
            assert_eq!(found, expected, "{shelf:?} {late_us} late");
        }
    }
}

#[test]
fn the_end_of_life_comes_before_delay_and_lapse() {
    let mut delayed = on(Shelf::Delayed);
    delayed.expires_at = NOW.plus(SECOND_US / 2);
    delayed.reshelve(NOW);
    assert_eq!(
        delayed.wake_at, delayed.expires_at,
        "the earlier of the two"
    );
    let parked = Some((Shelf::Parked, Vec::new()));
    assert_eq!(acted(&delayed, delayed.expires_at), parked);
    let mut leased = on(Shelf::Leased);
    leased.expires_at = NOW.plus(SECOND_US);
    assert_eq!(
        acted(&leased, leased.expires_at),
        None,
        "its holder may finish"
    );
    assert_eq!(acted(&leased, NOW.plus(LEASE_US)), parked);
}

#[test]
fn each_profile_says_what_follows_a_lost_lease_ip_016_ip_017_ip_026() {
    use ProfileId::{AtpTransaction, Automation, BeamBus, BeamDirectory, Intent, MeshOutbox};
    use Verb::{Expire, Kill, Retry};
    type After = (Shelf, &'static [Verb]);
    let cases: [(ProfileId, After, After); 6] = [
        // Profile, with attempts left, without.
        (Intent, (Shelf::Lapsed, &[]), (Shelf::Done, &[Expire])),
        (
            Automation,
            (Shelf::Delayed, &[Expire, Retry]),
            (Shelf::Done, &[Expire, Kill]),
        ),
        (
            BeamDirectory,
            (Shelf::Done, &[Expire]),
            (Shelf::Done, &[Expire]),
        ),
        (
            BeamBus,
            (Shelf::Ready, &[Expire]),
            (Shelf::Ready, &[Expire]),
        ),
        (
            MeshOutbox,
            (Shelf::Delayed, &[Expire]),
            (Shelf::Delayed, &[Expire]),
        ),
        (AtpTransaction, (Shelf::Lapsed, &[]), (Shelf::Lapsed, &[])),
    ];
    for (profile, left, used_up) in cases {
        let mut held = row(profile, State::Dispatched);
        for (attempts, (shelf, told)) in [(1, left), (3, used_up)] {
            held.attempts = attempts;
            assert_eq!(
                acted(&held, NOW.plus(LEASE_US)),
                Some((shelf, told.to_vec())),
                "{profile:?} after {attempts}"
            );
        }
    }
}
