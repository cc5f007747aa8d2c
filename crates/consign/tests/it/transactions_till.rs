//! A payment rail for tests that keeps its own records: the charges that it reports are those that it made. It can ignore
//! idempotency keys, and respond late, twice, never, or with garbage.
#![cfg(feature = "planted")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::PATIENCE;

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The reaction to a repeated idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Repeats the stored response.
    Honoured,
    /// Executes the request again: each prepare request makes another payment.
    Ignored,
}

/// The kind of response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Plain,
    /// Executes the request, then closes the connection.
    Mute,
    /// Executes the request, then sends garbage.
    Garbage,
    /// Executes the request once, and sends the response twice.
    Twice,
    /// Executes the request, and never responds.
    Never,
    /// Closes the connection before it executes the request.
    Away,
    /// Neither executes nor responds until it is released, then executes the request.
    Late,
    /// Reports that the payment is processing, and charges later.
    Processing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payment {
    Prepared,
    Processing,
    Paid,
    Cancelled,
}

#[derive(Debug)]
struct Made {
    reference: String,
    money: (Value, Value),
    payment: Payment,
}

#[derive(Debug)]
struct Books {
    keys: Keys,
    /// By verb. The default is `Plain`.
    manners: BTreeMap<String, Manner>,
    /// The stored responses, by `webhook-id`, which is the idempotency key.
    given: BTreeMap<String, Value>,
    payments: Vec<Made>,
    charges: usize,
    /// By reference.
    refunds: BTreeSet<String>,
    heard: Vec<String>,
    /// The number of requests that wait to be released, and the number of releases.
    waiting: usize,
    let_go: usize,
}

#[derive(Debug)]
struct Shared {
    books: Mutex<Books>,
    changed: Condvar,
}

#[derive(Debug)]
pub(crate) struct Till {
    pub(crate) base: String,
    shared: Arc<Shared>,
}

impl Till {
    pub(crate) fn open(keys: Keys) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        let shared = Arc::new(Shared {
            changed: Condvar::new(),
            books: Mutex::new(Books {
                keys,
                manners: BTreeMap::new(),
                given: BTreeMap::new(),
                payments: Vec::new(),
                charges: 0,
                refunds: BTreeSet::new(),
                heard: Vec::new(),
                waiting: 0,
                let_go: 0,
            }),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // The client may disconnect or be killed at any time.
                thread::spawn(move || shared.serve(stream).ok());
            }
        });
        Self { base, shared }
    }

    /// Sets the kind of response for this verb.
    pub(crate) fn answer(&self, verb: &str, manner: Manner) {
        self.books().manners.insert(verb.to_owned(), manner);
    }

    pub(crate) fn be_plain(&self) {
        self.books().manners.clear();
    }

    /// Executes all waiting requests.
    pub(crate) fn let_go(&self) {
        let mut books = self.books();
        books.let_go += 1;
        self.shared.changed.notify_all();
        while books.waiting > 0 {
            books = self.shared.wait(books);
        }
    }

    /// The number of charges.
    pub(crate) fn charges(&self) -> usize {
        self.books().charges
    }

    /// The number of refunds.
    pub(crate) fn refunds(&self) -> usize {
        self.books().refunds.len()
    }

    pub(crate) fn payments(&self) -> Vec<Payment> {
        self.books()
            .payments
            .iter()
            .map(|made| made.payment)
            .collect()
    }

    /// Completes the payments that are processing.
    pub(crate) fn take_the_money(&self) {
        let mut books = self.books();
        let books = &mut *books;
        for made in &mut books.payments {
            if made.payment == Payment::Processing {
                made.payment = Payment::Paid;
                books.charges += 1;
            }
        }
    }

    /// The number of requests with this verb, or of all requests if it is empty.
    pub(crate) fn heard(&self, verb: &str) -> usize {
        let books = self.books();
        books
            .heard
            .iter()
            .filter(|heard| heard.starts_with(verb))
            .count()
    }

    pub(crate) fn wait_until_heard(&self, verb: &str, times: usize) {
        let until = Instant::now() + PATIENCE;
        while self.heard(verb) < times {
            assert!(Instant::now() < until, "nobody asks to {verb}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.shared.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, books: MutexGuard<'a, Books>) -> MutexGuard<'a, Books> {
        let waited = self.changed.wait(books);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn until_let_go<'a>(&self, mut books: MutexGuard<'a, Books>) -> MutexGuard<'a, Books> {
        let before = books.let_go;
        books.waiting += 1;
        while books.let_go == before {
            books = self.wait(books);
        }
        books
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some((verb, key, asked)) = read(&mut stream)? {
            let mut books = self.lock();
            books.heard.push(verb.clone());
            let manner = books.manner(&verb);
            if manner == Manner::Away {
                return Ok(());
            }
            let late = manner == Manner::Late;
            if late {
                books = self.until_let_go(books);
            }
            let told = books.act(&verb, &key, &asked).to_string();
            books.waiting -= usize::from(late);
            self.changed.notify_all();
            drop(books);
            let answer = match manner {
                Manner::Mute | Manner::Away => return Ok(()),
                Manner::Never => String::new(),
                Manner::Garbage => whole("<html>Bad day</html>"),
                Manner::Twice => whole(&told).repeat(2),
                Manner::Plain | Manner::Late | Manner::Processing => whole(&told),
            };
            stream.get_mut().write_all(answer.as_bytes())?;
        }
        Ok(())
    }
}

fn whole(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// The last segment of the path, the `webhook-id`, and the body. None if the client has disconnected.
fn read(stream: &mut impl BufRead) -> std::io::Result<Option<(String, String, Value)>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default();
    let verb = path.rsplit('/').next().unwrap_or_default().to_owned();
    let (mut key, mut length) = (String::new(), 0);
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "webhook-id" => value.trim().clone_into(&mut key),
            "content-length" => length = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some((verb, key, serde_json::from_slice(&body)?)))
}

impl Books {
    fn manner(&self, verb: &str) -> Manner {
        self.manners.get(verb).copied().unwrap_or(Manner::Plain)
    }

    /// Queries always return the current state. A repeated change may return the stored response.
    fn act(&mut self, verb: &str, key: &str, asked: &Value) -> Value {
        let changes = matches!(verb, "prepare" | "confirm" | "refund");
        let remembered = self.given.get(key);
        if let Some(given) = remembered.filter(|_| changes && self.keys == Keys::Honoured) {
            return given.clone();
        }
        let told = match verb {
            "prepare" => self.prepare(asked),
            "confirm" => self.confirm(asked),
            "cancel" => self.cancel(asked),
            "refund" => self.refund(asked),
            _ => self.show(self.find(asked)),
        };
        self.given.insert(key.to_owned(), told.clone());
        told
    }

    fn prepare(&mut self, asked: &Value) -> Value {
        let reference = asked["reference"].as_str().unwrap_or_default().to_owned();
        self.payments.push(Made {
            reference,
            money: (asked["amount_cents"].clone(), asked["currency"].clone()),
            payment: Payment::Prepared,
        });
        self.show(Some(self.payments.len() - 1))
    }

    fn confirm(&mut self, asked: &Value) -> Value {
        let slowly = self.manner("confirm") == Manner::Processing;
        let found = self.find(asked);
        if let Some(made) = found.and_then(|at| self.payments.get_mut(at))
            && made.payment == Payment::Prepared
        {
            made.payment = if slowly {
                Payment::Processing
            } else {
                Payment::Paid
            };
            self.charges += usize::from(!slowly);
        }
        self.show(found)
    }

    fn cancel(&mut self, asked: &Value) -> Value {
        let mut paid = None;
        for (at, made) in self.payments.iter_mut().enumerate() {
            if asked["reference"] == made.reference.as_str() {
                match made.payment {
                    Payment::Paid => paid = Some(at),
                    Payment::Prepared | Payment::Processing | Payment::Cancelled => {
                        made.payment = Payment::Cancelled;
                    }
                }
            }
        }
        match paid {
            Some(at) => self.show(Some(at)),
            None => json!({"status": "failed"}),
        }
    }

    /// One refund per reference, as every endpoint must ensure.
    fn refund(&mut self, asked: &Value) -> Value {
        let reference = asked["refund_reference"].as_str().unwrap_or_default();
        self.refunds.insert(reference.to_owned());
        let mut told = self.show(self.find(asked));
        told["refund_id"] = format!("refund of {reference}").into();
        told
    }

    fn find(&self, asked: &Value) -> Option<usize> {
        if let Some(id) = asked["payment_id"].as_str() {
            return id.strip_prefix("p_")?.parse().ok();
        }
        let ours = |made: &Made| asked["reference"] == made.reference.as_str();
        self.payments.iter().position(ours)
    }

    fn show(&self, at: Option<usize>) -> Value {
        let Some((at, made)) = at.and_then(|at| Some((at, self.payments.get(at)?))) else {
            return json!({"status": "not_found"});
        };
        let status = match made.payment {
            Payment::Prepared => "unconfirmed",
            Payment::Processing => "processing",
            Payment::Paid => "succeeded",
            Payment::Cancelled => "failed",
        };
        json!({
            "status": status,
            "payment_id": format!("p_{at}"),
            "amount_cents": made.money.0,
            "currency": made.money.1,
        })
    }
}
