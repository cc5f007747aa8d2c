//! Users, and the log of what operators did.

use consign_engine::{AdminRole, AuditEntry, AuditFilter, Operator};
use consign_kernel::ids::Micros;
use consign_kernel::profile::Face;
use consign_kernel::record::Kind;

use crate::world::World;

#[tokio::test]
async fn a_user_signs_in_with_the_present_password_only() {
    let world = World::new();
    let (engine, operator) = (&world.engine, Operator::vouched());
    let add = |role| engine.add_user(operator, "ann", role, "correct horse battery");
    let added = add(AdminRole::Viewer).await.unwrap().unwrap();
    assert_eq!(
        (added.name.as_str(), added.role),
        ("ann", AdminRole::Viewer)
    );
    assert_eq!(add(AdminRole::Admin).await.unwrap(), None, "she exists");

    let sign_in = async |name: &str, password: &str| engine.sign_in(name, password).await.unwrap();
    // Twice: the second check is remembered.
    for _ in 0..2 {
        let role = sign_in("ann", "correct horse battery").await;
        assert_eq!(role, Some(AdminRole::Viewer));
    }
    for (name, password) in [
        ("ann", "correct horse batter"),
        ("ann", ""),
        ("bob", "correct horse battery"),
        ("Ann", "correct horse battery"),
        ("", ""),
    ] {
        assert_eq!(sign_in(name, password).await, None, "{name} {password}");
    }

    let change = engine.change_user(operator, "ann", Some(AdminRole::Operator), None);
    assert_eq!(change.await.unwrap().unwrap().role, AdminRole::Operator);
    let role = sign_in("ann", "correct horse battery").await;
    assert_eq!(role, Some(AdminRole::Operator), "also a remembered check");
    let change = engine.change_user(operator, "ann", None, Some("another long one"));
    assert_eq!(change.await.unwrap().unwrap().role, AdminRole::Operator);
    assert_eq!(sign_in("ann", "correct horse battery").await, None);
    assert!(sign_in("ann", "another long one").await.is_some());

    let stored = engine.records(Kind::User, "", "", 9).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert!(!stored[0].value.contains("another"), "only its hash");
    assert!(engine.remove_user(operator, "ann").await.unwrap());
    assert!(!engine.remove_user(operator, "ann").await.unwrap());
    assert_eq!(sign_in("ann", "another long one").await, None);
    assert_eq!(engine.users(operator).await.unwrap(), []);
}

fn entry(actor: &str, action: &str) -> AuditEntry {
    AuditEntry {
        at: 0,
        actor: actor.to_owned(),
        address: "192.0.2.1".to_owned(),
        user_agent: String::new(),
        action: action.to_owned(),
        target: "t".to_owned(),
        outcome: String::new(),
        request_id: String::new(),
    }
}

#[tokio::test]
async fn the_audit_log_is_read_from_its_newest_entry_in_pages_and_ends_with_its_retention() {
    let world = World::new();
    let (engine, operator) = (&world.engine, Operator::vouched());
    for n in 0..5 {
        let actor = if n % 2 == 0 {
            "user ann"
        } else {
            "admin-token"
        };
        let open = engine.begin_audit(entry(actor, "key.create"), 2).await;
        world.clock.advance_s(1);
        if n != 4 {
            engine.end_audit(open, "done", Some(format!("k{n}"))).await;
        }
    }
    let targets = async |filter: AuditFilter| {
        let page = engine.audit(operator, &filter).await.unwrap();
        let entries = page.entries.iter();
        let shown: Vec<String> = entries
            .map(|(_, entry)| format!("{} {}", entry.target, entry.outcome))
            .collect();
        (shown, page.next)
    };
    let first = AuditFilter {
        limit: 3,
        ..AuditFilter::default()
    };
    let (shown, next) = targets(first.clone()).await;
    assert_eq!(shown, ["t started", "k3 done", "k2 done"]);
    let rest = AuditFilter {
        after: next.unwrap(),
        ..first.clone()
    };
    assert_eq!(
        targets(rest).await,
        (vec!["k1 done".to_owned(), "k0 done".to_owned()], None)
    );
    let of_ann = AuditFilter {
        limit: 9,
        actor: Some("ann".to_owned()),
        since: Some(Micros(engine.wall().0 - 4_000_000)),
        ..AuditFilter::default()
    };
    assert_eq!(targets(of_ann).await.0, ["t started", "k2 done"]);

    world.clock.advance_s(2 * 86_400);
    engine.cleanup(operator, Face::Intent).await.unwrap();
    assert_eq!(targets(first).await.0, Vec::<String>::new());
    let left = engine.records(Kind::AuditEntry, "", "", 9).await.unwrap();
    assert_eq!(left, []);
}
