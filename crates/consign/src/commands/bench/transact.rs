//! `consign bench --work transact`: agent transactions compared with whole cycles on the same server, and the cost of
//! verifying a receipt.
//!
//! Invariant: every intent is signed before the measurement, so that the generator spends no more time on a
//! transaction than on a cycle. Running out of signed intents is an error.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use consign_bench::{BenchPlan, BenchReport, TransactionOrder, Workload};
use consign_client::{Bytes, Client, HeaderMap, HeaderName, HeaderValue, Method, Options};
use consign_kernel::ids::Micros;
use consign_kernel::json;
use consign_kernel::receipt::Signer;
use consign_transactions::document::{AtpDocument, AtpPublicKey, VERIFY_BYTES_MAX};
use consign_transactions::instant;
use consign_transactions::keyring::{KeyStanding, Keyring, SiteKey};
use data_encoding::{BASE64, HEXLOWER};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::ask::ask;
use super::load;
use super::private_server::SITE;

/// Transactions are expected to stay below this share of the cycles.
const ORDERS_PER_CYCLE: f64 = 1.0;
/// For the time around the rounds, in which clients run too.
const ORDERS_MIN: usize = 1_000;
const LIFE: Duration = Duration::from_mins(10);

/// Verifications that are timed together, and the number of such rounds.
const VERIFIED_AT_ONCE: u32 = 200;
const VERIFIED_ROUNDS: usize = 21;

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct TransactReport {
    work: Workload,
    /// Transactions for each cycle.
    ratio: f64,
    receipt: ReceiptTimes,
    /// The larger value of the two runs.
    stolen_share: Option<f64>,
    pub(super) transactions: BenchReport,
    pub(super) cycles: BenchReport,
}

/// The cost of reading and verifying a receipt: medians of rounds.
#[derive(Debug, Serialize)]
struct ReceiptTimes {
    bytes: usize,
    read_us: f64,
    verify_us: f64,
    read_and_verify_us: f64,
}

/// Cycles first, because they tell how many intents must be signed.
pub(super) async fn measure(
    plan: BenchPlan,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<TransactReport> {
    let cycling = BenchPlan {
        work: Workload::Cycle,
        ..plan.clone()
    };
    let cycles = load(cycling, tell).await?;
    let agent = BenchAgent::new()?;
    let enough = cycles.cycles_per_s.max * plan.length().as_secs_f64() * ORDERS_PER_CYCLE;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate times a few minutes"
    )]
    let count = enough as usize + ORDERS_MIN;
    tell(&format!("signing {count} intents"));
    let transacting = BenchPlan {
        orders: (0..count).map(|index| agent.order(index)).collect(),
        // They are stored already.
        backlog: 0,
        finished: 0,
        ..plan
    };
    let server = transacting.target.server.to_string();
    let transactions = load(transacting, tell).await?;
    tell("verifying a receipt");
    let receipt = receipt(&server, &agent.order(count)).await?;
    let stolen = [&transactions, &cycles].map(|report| report.usage.stolen_share);
    Ok(TransactReport {
        work: Workload::Transact,
        ratio: transactions.cycles_per_s.median / cycles.cycles_per_s.median,
        receipt,
        stolen_share: stolen.into_iter().flatten().reduce(f64::max),
        transactions,
        cycles,
    })
}

pub(super) fn table(report: &TransactReport) -> String {
    let ReceiptTimes {
        bytes,
        read_us,
        verify_us,
        read_and_verify_us,
    } = &report.receipt;
    format!(
        "{}\n{}\n{:<15}{:.2} transactions a cycle\n\
         {:<15}{read_and_verify_us:.0} us to read and verify {bytes} bytes (read {read_us:.0}, verify {verify_us:.0})\n",
        consign_bench::table(&report.cycles),
        consign_bench::table(&report.transactions),
        "ratio",
        report.ratio,
        "receipt",
    )
}

/// Signs intents with a temporary key.
struct BenchAgent {
    signer: Signer,
    public: AtpPublicKey,
    /// Tells the intents of this run from those of others in the same ledger.
    run: String,
}

impl BenchAgent {
    fn new() -> anyhow::Result<Self> {
        let (mut seed, mut run) = ([0; 32], [0; 8]);
        for bytes in [&mut seed[..], &mut run[..]] {
            getrandom::fill(bytes).context("no source of random numbers")?;
        }
        let signer = Signer::from_seed(&seed);
        Ok(Self {
            public: AtpPublicKey::from(signer.public().clone()),
            signer,
            run: HEXLOWER.encode(&run),
        })
    }

    fn order(&self, index: usize) -> TransactionOrder {
        let id = format!("bench-{}-{index}", self.run);
        let now = Timestamp::now().as_microsecond();
        let until = now.saturating_add(i64::try_from(LIFE.as_micros()).unwrap_or(i64::MAX));
        let intent = json!({
            "type": "atp.intent.v1",
            "intent_id": id,
            "site": SITE,
            "agent_id": "bench",
            "agent_key": self.public.to_string(),
            "purpose": "Measure how fast a transaction is",
            "scope": {"actions": ["pay"]},
            "amount_cents": 1500,
            "nonce": id,
            "issued_at": instant::print(Micros(now)),
            "expires_at": instant::print(Micros(until)),
        });
        TransactionOrder {
            authorize: self.signed(&intent),
            execute: json!({ "intent_id": id }).to_string(),
            key: id,
        }
    }

    fn signed(&self, intent: &Value) -> String {
        let canonical = json::canonical_value(intent).unwrap_or_default();
        let signature = BASE64.encode(&self.signer.sign_bytes(&canonical));
        let canonical = String::from_utf8_lossy(&canonical);
        let members = canonical.strip_suffix('}').unwrap_or_default();
        format!("{members},\"signature\":\"ed25519:{signature}\"}}")
    }
}

/// Has one more order carried out, and verifies its receipt with the site's published key, as a stranger would.
async fn receipt(server: &str, order: &TransactionOrder) -> anyhow::Result<ReceiptTimes> {
    let client = Client::new(Options {
        server: server.to_owned(),
        ..Options::default()
    })?;
    post(&client, "/api/atp/authorize", order, &order.authorize).await?;
    let executed = post(&client, "/api/atp/execute", order, &order.execute).await?;
    let receipt = executed["receipt"].to_string();
    let published = get(&client, "/api/atp/keys").await?;
    let key = published["keys"][0]["public_key"].as_str();
    let key = key.and_then(AtpPublicKey::parse);
    let key = SiteKey {
        key: key.context("the site publishes no key")?,
        standing: KeyStanding::Current,
        valid_from: None,
    };
    let keyring = Keyring::new(SITE, vec![key])?;
    time(&receipt, &keyring)
}

fn time(receipt: &str, keyring: &Keyring) -> anyhow::Result<ReceiptTimes> {
    let now = Micros(Timestamp::now().as_microsecond());
    let read = || AtpDocument::read(receipt.as_bytes(), VERIFY_BYTES_MAX);
    let document = read().map_err(|problem| anyhow!("no receipt: {problem}"))?;
    let verified = keyring.verify(&document, now);
    if !verified.ok {
        return Err(anyhow!(
            "the server's receipt does not verify: {verified:?}"
        ));
    }
    Ok(ReceiptTimes {
        bytes: receipt.len(),
        read_us: median_us(read),
        verify_us: median_us(|| keyring.verify(&document, now)),
        read_and_verify_us: median_us(|| read().map(|document| keyring.verify(&document, now))),
    })
}

fn median_us<T>(work: impl Fn() -> T) -> f64 {
    let round = |_| {
        let began = Instant::now();
        for _ in 0..VERIFIED_AT_ONCE {
            black_box(work());
        }
        began.elapsed() / VERIFIED_AT_ONCE
    };
    let mut rounds: Vec<Duration> = (0..VERIFIED_ROUNDS).map(round).collect();
    rounds.sort();
    rounds[VERIFIED_ROUNDS / 2].as_secs_f64() * 1e6
}

async fn post(
    client: &Client,
    path: &str,
    order: &TransactionOrder,
    body: &str,
) -> anyhow::Result<Value> {
    let name = HeaderName::from_static("idempotency-key");
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(&order.key)?)]);
    let body = Bytes::from(body.to_owned());
    ask(client, Method::POST, path, headers, body).await
}

async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    ask(client, Method::GET, path, HeaderMap::new(), Bytes::new()).await
}

#[cfg(test)]
mod tests {
    use consign_transactions::document::REQUEST_BYTES_MAX;
    use consign_transactions::intent::SignedIntent;

    use super::*;

    #[test]
    fn orders_are_signed_by_their_agent_and_no_two_are_the_same() {
        let agent = BenchAgent::new().unwrap();
        let read = |order: &TransactionOrder| {
            let document =
                AtpDocument::read(order.authorize.as_bytes(), REQUEST_BYTES_MAX).unwrap();
            SignedIntent::read(document).unwrap()
        };
        let (first, second) = (agent.order(0), agent.order(1));
        for order in [&first, &second] {
            read(order).check_signature().unwrap();
            read(order).check_site(SITE).unwrap();
        }
        assert_ne!(read(&first).nonce, read(&second).nonce);
        assert_ne!(first.key, second.key);
    }
}
