//! How fast the ledger is without a network in front of it: groups of publishes, claims and settlements.
//!
//! `cargo run --release -p consign-store --example cycles -- [GROUP [SECONDS [SQL]]]`. The SQL is carried out on the
//! fresh file first, such as `DROP INDEX intents_by_owner`, to see what something costs.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring tool")]

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use consign_kernel::command::{
    Admit, Answer, Audience, Claim, Command, NewIntent, OnRefusal, Request, Settle, Settlement,
};
use consign_kernel::ids::Micros;
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::profile::{Face, ProfileId};
use consign_store::sqlite::{Options, QUEUE_REQUESTS_MAX, Sqlite};
use consign_store::{Clock, Store};

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Micros(i64::try_from(since.as_micros()).unwrap())
    }
}

fn publish() -> Command {
    Command::Admit(Admit {
        items: vec![NewIntent {
            profile: ProfileId::Intent,
            namespace: "default".to_owned(),
            goal: "bench".to_owned(),
            owner: "main".to_owned(),
            public: false,
            target: None,
            capability: None,
            priority: 0,
            payload: format!("{{\"data\":\"{}\"}}", "x".repeat(190)),
            ties: Ties::default(),
            unless: None,
            traceparent: None,
            delay_us: 0,
            ttl_us: 86_400_000_000,
            attempts_max: 3,
            backoff_us: 1_000_000,
            once: None,
        }],
        cap: None,
    })
}

fn claim() -> Command {
    Command::Claim(Claim {
        face: Face::Intent,
        namespace: "default".to_owned(),
        goal: None,
        holder: "main".to_owned(),
        audience: Audience::Caller,
        worker_id: None,
        capabilities: Vec::new(),
        max: 1,
        lease_us: 60_000_000,
        grant: None,
    })
}

fn settle(intent: &Intent) -> Command {
    Command::Settle(Settle {
        detail: None,
        id: intent.id,
        holder: "main".to_owned(),
        token: intent.token.unwrap(),
        how: Settlement::Complete { result: None },
    })
}

fn main() {
    let mut args = std::env::args().skip(1);
    let group: usize = args.next().map_or(64, |text| text.parse().unwrap());
    let seconds: u64 = args.next().map_or(5, |text| text.parse().unwrap());
    let sql = args.next();
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<Sqlite> = Arc::new(
        Sqlite::open(Options {
            path: dir.path().join("ledger.db"),
            clock: Arc::new(Wall),
            queue_max: QUEUE_REQUESTS_MAX,
        })
        .unwrap(),
    );
    if let Some(sql) = sql {
        let beside = rusqlite::Connection::open(dir.path().join("ledger.db")).unwrap();
        beside.execute_batch(&sql).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut seed = 0_u64;
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut spent = [Duration::ZERO; 3];
        let mut cycles = 0_u32;
        let before = cpu_seconds();
        while Instant::now() < end {
            let start = Instant::now();
            run(&store, (0..group).map(|_| publish()).collect(), &mut seed).await;
            let published = Instant::now();
            let answers = run(&store, (0..group).map(|_| claim()).collect(), &mut seed).await;
            let claimed = Instant::now();
            let held: Vec<Intent> = answers
                .into_iter()
                .flat_map(|answer| {
                    if let Answer::Claimed(intents) = answer {
                        intents
                    } else {
                        Vec::new()
                    }
                })
                .collect();
            assert_eq!(held.len(), group);
            run(&store, held.iter().map(settle).collect(), &mut seed).await;
            spent[0] += published - start;
            spent[1] += claimed - published;
            spent[2] += claimed.elapsed();
            cycles += u32::try_from(group).unwrap();
        }
        let total: Duration = spent.iter().sum();
        let cpu = cpu_seconds() - before;
        println!(
            "groups of {group}: {:.0} cycles/s; us each: publish {:.2}, claim {:.2}, settle {:.2}; CPU us a cycle {:.2}; {:?}",
            f64::from(cycles) / total.as_secs_f64(),
            spent[0].as_secs_f64() * 1e6 / f64::from(cycles),
            spent[1].as_secs_f64() * 1e6 / f64::from(cycles),
            spent[2].as_secs_f64() * 1e6 / f64::from(cycles),
            cpu * 1e6 / f64::from(cycles),
            store.stats(),
        );
    });
}

async fn run(store: &Arc<Sqlite>, commands: Vec<Command>, seed: &mut u64) -> Vec<Answer> {
    let mut next = || {
        *seed += 1;
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes
    };
    let mut handles = Vec::with_capacity(commands.len());
    for command in commands {
        let request = Request {
            gate: None,
            steps: vec![command],
            on_refusal: OnRefusal::Continue,
            seed: next(),
        };
        let store = Arc::clone(store);
        handles.push(tokio::spawn(async move {
            store
                .execute(request)
                .await
                .unwrap()
                .unwrap()
                .pop()
                .unwrap()
                .unwrap()
        }));
    }
    let mut answers = Vec::with_capacity(handles.len());
    for handle in handles {
        answers.push(handle.await.unwrap());
    }
    answers
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = stat.rsplit(')').next().unwrap();
    let ticks: f64 = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|text| text.parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}
