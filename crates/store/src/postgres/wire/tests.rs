//! Rare behaviour of a server, from a script; and behaviour that needs a real server.

use std::io::Cursor;
use std::sync::Mutex;

use super::super::address::DatabaseAddress;
use super::super::rows;
use super::*;

/// Returns scripted bytes, and records what was sent.
struct ScriptedStream {
    says: Cursor<Vec<u8>>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Read for ScriptedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.says.read(into)
    }
}

impl Write for ScriptedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WireStream for ScriptedStream {
    fn set_timeout(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// A connection to a server that sends all of this, and the bytes that it receives.
fn scripted(says: &[Vec<u8>]) -> (WireConnection, Arc<Mutex<Vec<u8>>>) {
    let heard = Arc::default();
    let stream = ScriptedStream {
        says: Cursor::new(says.concat()),
        heard: Arc::clone(&heard),
    };
    (WireConnection::new(Box::new(stream)), heard)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[tag], &length.to_be_bytes()[..], body].concat()
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn error() -> Vec<u8> {
    message(b'E', b"VERROR\0C57014\0Mcanceled\0\0")
}

fn real() -> WireConnection {
    let cluster = consign_testkit::postgres::shared().unwrap();
    let address = DatabaseAddress::parse(&cluster.url("postgres"), None).unwrap();
    address.open().unwrap()
}

fn lost<T: fmt::Debug>(failed: Result<T, WireError>) -> String {
    match failed {
        Err(WireError::Lost(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn questions_and_answers_of_many_megabytes_do_not_wait_for_each_other() {
    const MANY: &str = "SELECT repeat('x', 1000000) FROM generate_series(1, 24)";
    const LONG: &str = "SELECT octet_length($1::bytea)";
    let bytes = vec![7_u8; 24_000_000];
    let many = || BoundStatement {
        text: MANY,
        parameters: Vec::new(),
    };
    let long = || BoundStatement {
        text: LONG,
        parameters: vec![&bytes],
    };
    let mut wire = real();
    let answers = wire.ask(&[many(), long(), many(), many(), long()]);
    let answers: Vec<StatementResult> = answers.into_iter().map(Result::unwrap).collect();
    let found: Vec<_> = answers.iter().map(|answer| answer.rows.len()).collect();
    assert_eq!(found, [24, 1, 24, 24, 1]);
    for index in [1, 4] {
        let length: i32 = rows::get(&answers[index].rows[0], 0).unwrap();
        assert_eq!(length, 24_000_000);
    }
}

#[test]
fn a_refusal_of_what_was_sent_early_leaves_the_connection_usable() {
    const DIVIDE: &str = "SELECT 6 / $1::int4";
    const LONG: &str = "SELECT octet_length($1::bytea)";
    fn divide(by: &i32) -> BoundStatement<'_> {
        BoundStatement {
            text: DIVIDE,
            parameters: vec![by],
        }
    }
    let (zero, two, bytes) = (0_i32, 2_i32, vec![7_u8; 100_000]);
    let mut wire = real();
    for _ in 0..3 {
        let asked = [
            divide(&two),
            divide(&zero),
            BoundStatement {
                text: LONG,
                parameters: vec![&bytes],
            },
            divide(&two),
        ];
        let answers = wire.ask(&asked);
        assert!(
            matches!(&answers[..], [Ok(_), Err(WireError::Refused(refusal))] if refusal.code == SqlState::DIVISION_BY_ZERO),
            "{answers:?}"
        );
        assert!(wire.outgoing.is_empty());
        let again = wire.ask(&asked[2..]).pop().unwrap().unwrap();
        assert_eq!(rows::get::<i32>(&again.rows[0], 0).unwrap(), 3);
    }
}

#[test]
fn a_statement_that_could_not_be_made_ready_does_not_leave_its_name_in_the_way() {
    // It is parsed and has a parameter of a schema type, and the lookup of that type is refused.
    let described = message(b't', &[&[0, 1][..], &99_999_u32.to_be_bytes()].concat());
    let parsed = [message(b'1', b""), described, message(b'n', b""), ready()].concat();
    let refused = [error(), ready()].concat();
    let (mut wire, heard) = scripted(&[parsed.clone(), refused.clone(), parsed, refused]);
    for name in [b"s0\0", b"s1\0"] {
        heard.lock().unwrap().clear();
        assert!(matches!(wire.prepare("SELECT"), Err(WireError::Refused(_))));
        let heard = heard.lock().unwrap();
        assert_eq!(&heard[5..8], name);
    }
}

#[test]
fn a_message_without_bounds_ends_the_connection_before_room_is_made_for_it() {
    let huge = [&b"D"[..], &i32::MAX.to_be_bytes()].concat();
    let (mut wire, _) = scripted(&[huge]);
    assert!(lost(wire.run("SELECT 1")).contains("too large"));
    assert!(wire.incoming.capacity() < 1 << 20);
}

#[test]
fn an_answer_that_is_missing_ends_the_connection() {
    let parsed = [message(b'1', b""), message(b'n', b""), ready()].concat();
    let (mut wire, _) = scripted(&[parsed, message(b'I', b""), ready()]);
    let asked = BoundStatement {
        text: "",
        parameters: Vec::new(),
    };
    assert!(lost(wire.ask(&[asked]).pop().unwrap()).contains("missing"));
}

#[test]
fn a_server_that_lets_us_in_without_its_own_proof_is_left() {
    let sasl = message(
        b'R',
        &[&10_u32.to_be_bytes()[..], b"SCRAM-SHA-256\0\0"].concat(),
    );
    let welcome = [message(b'R', &0_u32.to_be_bytes()), ready()].concat();
    let mut config = tokio_postgres::Config::new();
    config.user("app").password("hidden");
    let (mut wire, heard) = scripted(&[sasl, welcome.clone()]);
    assert!(lost(wire.authenticate(&config, RESPONSE_TIMEOUT)).contains("prove"));
    let heard = heard.lock().unwrap();
    assert!(!String::from_utf8_lossy(&heard).contains("hidden"));
    // A server that requests no password has nothing to prove.
    let (mut wire, _) = scripted(&[welcome]);
    wire.authenticate(&config, RESPONSE_TIMEOUT).unwrap();
}

#[test]
fn only_a_warning_about_the_standby_leaves_a_commit_in_doubt() {
    let doubted = |fields: &[u8]| {
        let (mut wire, _) = scripted(&[message(b'N', fields), ready()]);
        wire.run("COMMIT").unwrap();
        wire.take_doubt()
    };
    // As PostgreSQL reports it, in any language, and as another server may.
    let routine = b"VWARNING\0C01000\0Mrien\0RSyncRepWaitForLSN\0\0";
    assert_eq!(doubted(routine).as_deref(), Some("rien"));
    let words = b"VWARNING\0C01000\0Mcanceling wait for synchronous replication\0\0";
    assert!(doubted(words).is_some());
    assert!(doubted(b"VWARNING\0C57P01\0Mbye\0\0").is_some());
    assert_eq!(doubted(b"VWARNING\0C01000\0Mold collation\0\0"), None);
}
