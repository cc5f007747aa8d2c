//! Legal walks: the steps that an imported history lacks.

use std::collections::VecDeque;

use consign_kernel::profile::Profile;
use consign_kernel::state::State;

/// In the order in which a walk prefers them.
const STATES: [State; 8] = [
    State::Received,
    State::Validated,
    State::Queued,
    State::Dispatched,
    State::Delivered,
    State::Acked,
    State::Failed,
    State::DeadLetter,
];

/// The states between two others on the shortest legal walk; none if one step joins them. `None` if there is no such walk.
/// An end is never passed, because no intent leaves it by itself.
pub(super) fn between(profile: &Profile, from: Option<State>, to: State) -> Option<Vec<State>> {
    if profile.joins(from, to) {
        return Some(Vec::new());
    }
    let mut walks: VecDeque<Vec<State>> = VecDeque::from([Vec::new()]);
    let mut seen: Vec<State> = from.into_iter().collect();
    while let Some(walk) = walks.pop_front() {
        let last = walk.last().copied().or(from);
        if !walk.is_empty() && profile.joins(last, to) {
            return Some(walk);
        }
        for next in STATES {
            if profile.joins(last, next) && !seen.contains(&next) && !profile.is_terminal(next) {
                seen.push(next);
                let mut longer = walk.clone();
                longer.push(next);
                walks.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use consign_kernel::profile::ProfileId;

    use super::*;

    #[test]
    fn be_008_missing_steps_are_the_shortest_legal_ones() {
        use State::{Acked, Delivered, Dispatched, Failed, Queued, Received, Validated};
        let directory = ProfileId::BeamDirectory.profile();
        for (from, to, expected) in [
            (None, Received, Some(vec![])),
            (
                Some(Received),
                Acked,
                Some(vec![Validated, Dispatched, Delivered]),
            ),
            (None, Delivered, Some(vec![Received, Validated, Dispatched])),
            (Some(Dispatched), Acked, Some(vec![Delivered])),
            (Some(Failed), Delivered, Some(vec![Queued, Dispatched])),
            (Some(Acked), Failed, None),
            (Some(Queued), Received, None),
        ] {
            assert_eq!(between(directory, from, to), expected, "{from:?} {to:?}");
        }
        let bus = ProfileId::BeamBus.profile();
        let missing = between(bus, Some(Received), Acked);
        assert_eq!(missing, Some(vec![Dispatched, Delivered]));
    }
}
