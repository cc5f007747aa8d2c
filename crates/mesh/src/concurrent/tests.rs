//! The three policies, and connections to which none applies.

use super::*;

fn connection(number: u64, session_id: &str, is_daemon: bool) -> MemberConnection {
    MemberConnection {
        number,
        session_id: Some(session_id.to_owned()),
        has_session_key: !is_daemon,
        has_negotiated: is_daemon,
    }
}

fn closed(
    policy: ClonePolicy,
    new: &MemberConnection,
    existing: &[MemberConnection],
) -> (Option<u16>, Vec<(u64, u16)>, bool) {
    let decision = decide_connection(policy, new, existing);
    let codes = decision
        .closed
        .iter()
        .map(|(number, code)| (*number, code.code()));
    (
        decision.refused.map(MeshCloseCode::code),
        codes.collect(),
        decision.is_concurrent,
    )
}

#[test]
fn each_policy_decides_between_two_daemons() {
    let (old, new) = (connection(1, "a", true), connection(2, "b", true));
    let decided = |policy| closed(policy, &new, std::slice::from_ref(&old));
    assert_eq!(
        decided(ClonePolicy::PreferNewest),
        (None, vec![(1, 4003)], true)
    );
    assert_eq!(
        decided(ClonePolicy::PreferOldest),
        (Some(4004), vec![], true)
    );
    assert_eq!(decided(ClonePolicy::AllowConcurrent), (None, vec![], true));
}

#[test]
fn sessions_coexist_under_every_policy() {
    let (daemon, session) = (connection(1, "a", true), connection(2, "b", false));
    let passing = MemberConnection {
        has_negotiated: false,
        ..connection(3, "c", true)
    };
    for policy in ClonePolicy::ALL {
        for (new, old) in [
            (&session, &daemon),
            (&daemon, &session),
            (&passing, &daemon),
            (&daemon, &passing),
        ] {
            let decided = closed(*policy, new, std::slice::from_ref(old));
            assert_eq!(decided, (None, vec![], false), "{policy}");
        }
    }
}

#[test]
fn a_connection_with_the_same_session_id_is_a_continuation() {
    let (old, new) = (connection(1, "a", true), connection(2, "a", true));
    for policy in ClonePolicy::ALL {
        let decided = closed(*policy, &new, &[old.clone(), new.clone()]);
        assert_eq!(decided, (None, vec![(1, 1000)], false), "{policy}");
    }
    let unnamed = |number| MemberConnection {
        session_id: None,
        ..connection(number, "", true)
    };
    let decided = closed(ClonePolicy::PreferNewest, &unnamed(2), &[unnamed(1)]);
    assert_eq!(decided, (None, vec![(1, 4003)], true));
}

#[test]
fn cm_019_cm_020_of_two_nodes_exactly_one_keeps_its_daemon() {
    let of = |session_id, at| NodeConnection {
        session_id: Some(session_id),
        since: (at, session_id),
    };
    let (old, new) = (of("a", 1), of("b", 2));
    let both = |policy, one: &NodeConnection<'_>, two: &NodeConnection<'_>| {
        let code = |own, other| decide_across_nodes(policy, own, other).map(MeshCloseCode::code);
        (code(one, two), code(two, one))
    };
    assert_eq!(
        both(ClonePolicy::PreferNewest, &old, &new),
        (Some(4003), None)
    );
    assert_eq!(
        both(ClonePolicy::PreferOldest, &old, &new),
        (None, Some(4004))
    );
    assert_eq!(both(ClonePolicy::AllowConcurrent, &old, &new), (None, None));
    // They connected in the same millisecond.
    let twin = of("b", 1);
    assert_eq!(
        both(ClonePolicy::PreferOldest, &old, &twin),
        (None, Some(4004))
    );
    for policy in ClonePolicy::ALL {
        let (first, again) = (of("a", 1), of("a", 2));
        assert_eq!(both(*policy, &first, &again), (Some(1000), None));
    }
}
