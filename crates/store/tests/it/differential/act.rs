//! The random acts. They use few names and values, so that collisions are frequent.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use consign_kernel::ids::{DAY_US, HOUR_US, SECOND_US};
use consign_kernel::profile::{Face, ProfileId};

/// One act. Numbers that select an intent or a lease count from the newest, modulo the number of them.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Advance(i64),
    /// Steps of one request, with or without a gate.
    Ask(Option<Pass>, Vec<Step>),
}

#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) caller: &'static str,
    pub(super) metered: bool,
    pub(super) nonce: Option<u8>,
    pub(super) cost: u32,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Admit(Vec<Item>, Option<u64>),
    Claim(Wish),
    Extend(Lease, i64),
    Complete(Lease),
    Fail(Lease),
    /// Whether it timed out, and whether it may be retried.
    FailAttempt(Lease, bool, bool),
    /// Recovers the rows that this owner held before a restart.
    Recover(&'static str),
    /// Name and version.
    Expect(u8, u64),
    /// A permission, or a transaction that is leased by its owner.
    Begin(Item, bool),
    Take(usize, &'static str, i64),
    Validate(usize),
    Compensate(usize),
    Deliver(Lease),
    Reject(Lease),
    LetGo(Lease, i64),
    GiveBack(Lease),
    /// A message that is leased by a node; it belongs to its recipient.
    Send(Item),
    HandOver(Lease),
    Cancel(usize, Face),
    Requeue(usize, Face),
    CancelUnfinished(usize, Face),
    RequeueUnfinished(usize, Face),
    Observe(usize),
    Sweep(u32),
    Clean(Face, u32),
    Purge(Option<&'static str>, u32),
    /// Name, value, life in microseconds, expected version.
    Put(u8, u8, Option<i64>, Option<u64>),
    Delete(u8),
    MakeKey,
    RevokeKey,
    ForgetOnce(u32),
    ForgetRecords(u32),
    ForgetFacts(u32),
    /// A message of a mesh.
    Message(Item),
    /// A recipient has the message.
    Delivered(usize),
    /// How far ahead, and how many rows.
    Prune(i64, u32),
    ForgetMessages(i64, u32),
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) profile: ProfileId,
    pub(super) namespace: &'static str,
    pub(super) owner: &'static str,
    pub(super) goal: &'static str,
    pub(super) public: bool,
    pub(super) target: Option<&'static str>,
    pub(super) capability: Option<&'static str>,
    pub(super) priority: i32,
    pub(super) delay_us: i64,
    pub(super) ttl_us: i64,
    pub(super) attempts_max: u32,
    /// Key and fingerprint.
    pub(super) once: Option<(u8, u8)>,
    pub(super) series: Option<&'static str>,
    /// Whether an open row is an acceptable replacement.
    pub(super) unless: Option<bool>,
}

#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) face: Face,
    pub(super) namespace: &'static str,
    pub(super) holder: &'static str,
    pub(super) publisher: Option<&'static str>,
    pub(super) goal: Option<&'static str>,
    pub(super) worker: Option<&'static str>,
    pub(super) capabilities: Vec<&'static str>,
    pub(super) max: u32,
    pub(super) lease_us: i64,
    /// The name of a record without which the claim is refused.
    pub(super) grant: Option<u8>,
}

/// A lease as a holder presents it.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) pick: usize,
    pub(super) shown: Shown,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shown {
    /// As it was granted; stale if the lease was lost meanwhile.
    Right,
    ForeignHolder,
    WrongToken,
}

const NAMESPACES: [&str; 2] = ["a", "b"];
const OWNERS: [&str; 2] = ["alice", "bob"];
const GOALS: [&str; 2] = ["greet", "wave"];
const WORKERS: [&str; 2] = ["w1", "w2"];
const CAPABILITIES: [&str; 2] = ["cpu", "gpu"];
const SERIES: [&str; 2] = ["s1", "s2"];

/// `count` acts, with a long lane among them now and then.
pub(super) fn acts(count: usize) -> impl Strategy<Value = Vec<Act>> {
    let few = prop_oneof![
        24 => act().prop_map(|act| vec![act]),
        1 => long_lane(),
    ];
    vec(few, count).prop_map(|few| few.concat())
}

/// A lane with more rows than a claim takes, whose order depends on every sort key: some rows failed before others were
/// admitted, so that rows with more attempts are due earlier, and priorities are mixed.
fn long_lane() -> impl Strategy<Value = Vec<Act>> {
    let rows = || vec(select(vec![0, 0, 100]), 2..5);
    let tried = 1..4_usize;
    (rows(), tried, rows(), vec(1..3_u32, 3)).prop_map(|(first, tried, later, claims)| {
        let ask = |steps| Act::Ask(None, steps);
        let admit = |priorities: Vec<i32>| {
            let items = priorities.into_iter().map(in_lane).collect();
            ask(vec![Step::Admit(items, None)])
        };
        let fail = |pick| {
            Step::Fail(Lease {
                pick,
                shown: Shown::Right,
            })
        };
        let mut acts = vec![
            admit(first),
            ask(vec![Step::Claim(from_lane(
                u32::try_from(tried).unwrap_or(u32::MAX),
            ))]),
            ask((0..tried).map(fail).collect()),
            // The backoff of the failed rows ends before the others are admitted.
            Act::Advance(10 * SECOND_US),
            admit(later),
        ];
        let claims = claims.into_iter().map(|max| Step::Claim(from_lane(max)));
        acts.extend(claims.map(|claim| ask(vec![claim])));
        acts
    })
}

fn in_lane(priority: i32) -> Item {
    Item {
        profile: ProfileId::Intent,
        namespace: NAMESPACES[0],
        owner: OWNERS[0],
        goal: GOALS[0],
        public: false,
        target: None,
        capability: None,
        priority,
        delay_us: 0,
        ttl_us: DAY_US,
        attempts_max: 3,
        once: None,
        series: None,
        unless: None,
    }
}

fn from_lane(max: u32) -> Wish {
    Wish {
        face: Face::Intent,
        namespace: NAMESPACES[0],
        holder: OWNERS[0],
        publisher: None,
        goal: None,
        worker: None,
        capabilities: Vec::new(),
        max,
        lease_us: 60 * SECOND_US,
        grant: None,
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => advance().prop_map(Act::Advance),
        9 => (option::weighted(0.15, pass()), vec(step(), 1..3))
            .prop_map(|(gate, steps)| Act::Ask(gate, steps)),
    ]
}

fn advance() -> impl Strategy<Value = i64> {
    select(vec![
        1,
        SECOND_US,
        10 * SECOND_US,
        60 * SECOND_US,
        HOUR_US,
        DAY_US,
        8 * DAY_US,
    ])
}

fn pass() -> impl Strategy<Value = Pass> {
    let nonce = option::of(0..3_u8);
    (
        select(&OWNERS[..]),
        any::<bool>(),
        nonce,
        select(vec![0, 1, 25]),
    )
        .prop_map(|(caller, metered, nonce, cost)| Pass {
            caller,
            metered,
            nonce,
            cost,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || 0..8_usize;
    let limit = || select(vec![1_u32, 2, 100]);
    let cap = option::weighted(0.2, 0..6_u64);
    let life = option::of(select(vec![1, SECOND_US, HOUR_US]));
    let expect = option::of(0..4_u64);
    prop_oneof![
        20 => (vec(item(), 1..4), cap).prop_map(|(items, cap)| Step::Admit(items, cap)),
        24 => wish().prop_map(Step::Claim),
        6 => (lease(), select(vec![SECOND_US, 90 * SECOND_US]))
            .prop_map(|(lease, us)| Step::Extend(lease, us)),
        6 => lease().prop_map(Step::Complete),
        9 => lease().prop_map(Step::Fail),
        6 => (lease(), any::<bool>(), any::<bool>())
            .prop_map(|(lease, timed_out, again)| Step::FailAttempt(lease, timed_out, again)),
        2 => select(&OWNERS[..]).prop_map(Step::Recover),
        2 => (0..3_u8, 0..3_u64).prop_map(|(name, version)| Step::Expect(name, version)),
        9 => (item(), any::<bool>()).prop_map(|(item, held)| Step::Begin(item, held)),
        3 => (pick(), select(&OWNERS[..]), select(vec![SECOND_US, 60 * SECOND_US]))
            .prop_map(|(pick, holder, us)| Step::Take(pick, holder, us)),
        3 => pick().prop_map(Step::Validate),
        3 => pick().prop_map(Step::Compensate),
        6 => lease().prop_map(Step::Deliver),
        3 => lease().prop_map(Step::Reject),
        4 => (lease(), select(vec![0, SECOND_US, HOUR_US]))
            .prop_map(|(lease, us)| Step::LetGo(lease, us)),
        3 => lease().prop_map(Step::GiveBack),
        6 => item().prop_map(Step::Send),
        3 => lease().prop_map(Step::HandOver),
        3 => (pick(), face()).prop_map(|(pick, face)| Step::Cancel(pick, face)),
        4 => (pick(), face()).prop_map(|(pick, face)| Step::Requeue(pick, face)),
        2 => (pick(), face()).prop_map(|(pick, face)| Step::CancelUnfinished(pick, face)),
        2 => (pick(), face()).prop_map(|(pick, face)| Step::RequeueUnfinished(pick, face)),
        4 => pick().prop_map(Step::Observe),
        4 => limit().prop_map(Step::Sweep),
        4 => (face(), limit()).prop_map(|(face, limit)| Step::Clean(face, limit)),
        1 => (option::of(select(&NAMESPACES[..])), limit())
            .prop_map(|(namespace, limit)| Step::Purge(namespace, limit)),
        5 => (0..3_u8, any::<u8>(), life, expect)
            .prop_map(|(name, value, life, expect)| Step::Put(name, value, life, expect)),
        2 => (0..3_u8).prop_map(Step::Delete),
        2 => Just(Step::MakeKey),
        1 => Just(Step::RevokeKey),
        1 => limit().prop_map(Step::ForgetOnce),
        1 => limit().prop_map(Step::ForgetRecords),
        1 => limit().prop_map(Step::ForgetFacts),
        6 => item().prop_map(Step::Message),
        3 => pick().prop_map(Step::Delivered),
        1 => (select(vec![0, HOUR_US]), limit()).prop_map(|(us, limit)| Step::Prune(us, limit)),
        1 => (select(vec![0, HOUR_US]), limit())
            .prop_map(|(us, limit)| Step::ForgetMessages(us, limit)),
    ]
}

fn face() -> impl Strategy<Value = Face> {
    prop_oneof![
        6 => Just(Face::Intent),
        2 => Just(Face::Automation),
        2 => Just(Face::Mesh),
        2 => Just(Face::Transaction),
        3 => Just(Face::Beam),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let profile = prop_oneof![
        8 => Just(ProfileId::Intent),
        3 => Just(ProfileId::Automation),
        1 => Just(ProfileId::MeshOutbox),
        1 => Just(ProfileId::MeshDelivery),
        1 => Just(ProfileId::MeshQueue),
    ];
    let names = (
        select(&NAMESPACES[..]),
        select(&OWNERS[..]),
        select(&GOALS[..]),
    );
    let routing = (
        any::<bool>(),
        option::weighted(0.2, select(&WORKERS[..])),
        option::weighted(0.2, select(&CAPABILITIES[..])),
    );
    let times = (
        select(vec![0, 0, 0, SECOND_US, HOUR_US]),
        select(vec![0, SECOND_US, HOUR_US, DAY_US, DAY_US]),
    );
    let once = option::weighted(0.3, (0..3_u8, 0..2_u8));
    let rank = (select(vec![0, 100, 1_000]), 1..4_u32);
    let ties = (
        option::weighted(0.3, select(&SERIES[..])),
        option::weighted(0.5, any::<bool>()),
    );
    (profile, names, routing, times, once, rank, ties).prop_map(
        |(
            profile,
            (namespace, owner, goal),
            (public, target, capability),
            (delay_us, ttl_us),
            once,
            (priority, attempts_max),
            (series, unless),
        )| Item {
            profile,
            namespace,
            owner,
            goal,
            public,
            target,
            capability,
            priority,
            delay_us,
            ttl_us,
            attempts_max,
            once,
            series,
            unless,
        },
    )
}

fn wish() -> impl Strategy<Value = Wish> {
    let who = (
        select(&OWNERS[..]),
        option::weighted(0.2, select(&OWNERS[..])),
        option::weighted(0.1, 0..3_u8),
    );
    let routing = (
        option::weighted(0.3, select(&GOALS[..])),
        option::weighted(0.5, select(&WORKERS[..])),
        vec(select(&CAPABILITIES[..]), 0..3),
    );
    let size = (
        select(vec![1, 2, 10]),
        select(vec![SECOND_US, 60 * SECOND_US]),
    );
    (face(), select(&NAMESPACES[..]), who, routing, size).prop_map(
        |(
            face,
            namespace,
            (holder, publisher, grant),
            (goal, worker, capabilities),
            (max, lease_us),
        )| {
            Wish {
                face,
                namespace,
                holder,
                publisher,
                goal,
                worker,
                capabilities,
                max,
                lease_us,
                grant,
            }
        },
    )
}

fn lease() -> impl Strategy<Value = Lease> {
    let shown = prop_oneof![
        6 => Just(Shown::Right),
        1 => Just(Shown::ForeignHolder),
        1 => Just(Shown::WrongToken),
    ];
    (0..6_usize, shown).prop_map(|(pick, shown)| Lease { pick, shown })
}
