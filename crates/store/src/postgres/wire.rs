//! A blocking PostgreSQL connection, driven by the thread that uses it: statements are sent and answered together.
//!
//! A driver that sends a Sync after each statement makes the server answer each one separately, with a system call and a
//! wake on both sides. Here one Sync follows all of them.
//!
//! Invariant: every call reads up to the server's "ready for query", or returns [`WireError::Lost`] or an error that
//! [`ServerError::is_last`]; after that the connection must not be used.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the protocol has thirty kinds of messages, and each place waits for a few"
)]

mod open;
mod row;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{ErrorFields, Header, Message};
use postgres_protocol::message::frontend::{self, BindError};
use tokio_postgres::error::SqlState;
use tokio_postgres::fallible_iterator::FallibleIterator as _;
use tokio_postgres::types::{Kind, ToSql, Type};

pub(super) use open::{NO_PASSWORD, open};
pub(super) use row::Row;

/// How long the server may take to respond before the connection counts as lost: longer than its statement timeout.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);

/// How many bytes may be sent after a query for rows before its result is read. More could deadlock: each side would wait
/// until the other reads.
const UNREAD_MAX: usize = 16 * 1_024;

/// The size of one read.
const READ_BYTES: usize = 16 * 1_024;

/// Our rows are far smaller. Without a limit, a faulty server could make the client allocate gigabytes.
const MESSAGE_BYTES_MAX: i32 = 64 << 20;

/// A socket, with or without TLS.
pub(super) trait WireStream: Read + Write + Send {
    /// Sets the timeout of reads and writes.
    fn set_timeout(&self, timeout_after: Duration) -> io::Result<()>;
}

/// A statement with its parameters.
pub(super) struct BoundStatement<'a> {
    pub(super) text: &'static str,
    pub(super) parameters: Vec<&'a (dyn ToSql + Sync)>,
}

/// The parameters of a statement.
pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// The result of a statement.
#[derive(Debug, Default)]
pub(super) struct StatementResult {
    pub(super) rows: Vec<Row>,
    /// The number of rows read or written.
    pub(super) count: u64,
    /// A COMMIT of a failed transaction: the server rolls back, and reports no error.
    pub(super) undone: bool,
}

/// Why a statement failed.
#[derive(Debug)]
pub(super) enum WireError {
    /// The server refused the statement, and the transaction failed.
    Refused(ServerError),
    /// The connection ended or timed out. The effect of the statement is unknown.
    Lost(io::Error),
}

#[derive(Debug)]
pub(super) struct ServerError {
    pub(super) code: SqlState,
    severity: String,
    message: String,
    detail: Option<String>,
    /// The function of the server that raised the error. Never translated.
    routine: String,
}

impl ServerError {
    /// Whether the server stopped waiting for its standby: the commit exists, and may be lost with this one machine. The text
    /// may be in any language, and not every server of this protocol names routines.
    fn doubts_commit(&self) -> bool {
        self.severity == "WARNING"
            && (self.routine == "SyncRepWaitForLSN"
                || self.code == SqlState::ADMIN_SHUTDOWN
                || self.message.contains("synchronous replication"))
    }

    /// Whether the server ended the connection with this error.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }

    fn read(mut fields: ErrorFields<'_>) -> io::Result<Self> {
        let mut refusal = Self {
            code: SqlState::from_code(""),
            severity: String::new(),
            message: String::new(),
            detail: None,
            routine: String::new(),
        };
        while let Some(field) = fields.next()? {
            let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => refusal.code = SqlState::from_code(&text),
                // Never translated.
                b'V' => refusal.severity = text,
                b'M' => refusal.message = text,
                b'D' => refusal.detail = Some(text),
                b'R' => refusal.routine = text,
                _ => {}
            }
        }
        Ok(refusal)
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.message)?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Lost(error) if is_timeout(error) => f.write_str(SILENT),
            Self::Lost(error) => write!(f, "the connection to the database was lost: {error}"),
        }
    }
}

impl From<WireError> for crate::Error {
    fn from(failure: WireError) -> Self {
        let code = match &failure {
            WireError::Refused(refusal) => Some(&refusal.code),
            WireError::Lost(_) => None,
        };
        Self::of_server(code, failure.to_string())
    }
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

const SILENT: &str = "the database did not answer in time";

pub(super) fn silent() -> crate::Error {
    crate::Error::Unavailable(SILENT.to_owned())
}

pub(super) fn is_silent(error: &crate::Error) -> bool {
    matches!(error, crate::Error::Unavailable(why) if why == SILENT)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// A statement that is prepared at the server.
struct PreparedStatement {
    name: String,
    parameters: Vec<Type>,
    columns: Arc<[String]>,
}

pub(super) struct WireConnection {
    stream: Box<dyn WireStream>,
    incoming: BytesMut,
    outgoing: BytesMut,
    statements: HashMap<&'static str, PreparedStatement>,
    /// How many statement names were used. The name of a failed statement may still exist at the server.
    names: usize,
    /// The types of our schema, which are looked up once.
    types: HashMap<u32, Type>,
    /// Why a commit since the last check may not be on the standby.
    doubt: Option<String>,
    /// A Sync was sent: the server will be ready after it, whatever fails before.
    ended: bool,
}

impl WireConnection {
    fn new(stream: Box<dyn WireStream>) -> Self {
        Self {
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            statements: HashMap::new(),
            names: 0,
            types: HashMap::new(),
            doubt: None,
            ended: true,
        }
    }

    /// Executes all statements. Returns a result for each that was reached; after the first failure the rest are skipped, and
    /// the last result is the failure.
    pub(super) fn ask(
        &mut self,
        asked: &[BoundStatement<'_>],
    ) -> Vec<Result<StatementResult, WireError>> {
        let mut answers = Vec::with_capacity(asked.len());
        if let Err(failure) = self.try_ask(asked, &mut answers) {
            answers.push(Err(failure));
        }
        answers
    }

    fn try_ask(
        &mut self,
        asked: &[BoundStatement<'_>],
        answers: &mut Vec<Result<StatementResult, WireError>>,
    ) -> Result<(), WireError> {
        for asked in asked {
            self.prepare(asked.text)?;
        }
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        self.ended = false;
        let mut columns = Vec::with_capacity(asked.len());
        for asked in asked {
            let prepared = &self.statements[asked.text];
            columns.push(Arc::clone(&prepared.columns));
            let start = self.outgoing.len();
            bind(prepared, &asked.parameters, &mut self.outgoing)?;
            frontend::execute("", 0, &mut self.outgoing)?;
            let before = &columns[answers.len()..columns.len() - 1];
            // A statement that only writes has a short response.
            let has_rows = before.iter().any(|columns| !columns.is_empty());
            if has_rows && self.outgoing.len() > UNREAD_MAX {
                // The statements before it are sent first, and their results are read before more is sent.
                let later = self.outgoing.split_off(start);
                frontend::flush(&mut self.outgoing);
                self.send()?;
                for columns in before {
                    let answer = self.answer(columns, deadline)?;
                    answers.push(Ok(answer));
                }
                self.outgoing = later;
            }
        }
        self.end();
        self.send()?;
        for columns in &columns[answers.len()..] {
            let answer = self.answer(columns, deadline)?;
            answers.push(Ok(answer));
        }
        self.ready(deadline)
    }

    /// Executes a rare statement, planned for the current content of the tables. Its parameters must be of built-in types: it
    /// is unnamed, and the lookup of a type would replace it.
    pub(super) fn ask_anew(
        &mut self,
        text: &str,
        parameters: Parameters<'_>,
    ) -> Result<StatementResult, WireError> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        let prepared = self.parse(String::new(), text)?;
        bind(&prepared, parameters, &mut self.outgoing)?;
        frontend::execute("", 0, &mut self.outgoing)?;
        self.end();
        self.send()?;
        let answer = self.answer(&prepared.columns, deadline)?;
        self.ready(deadline)?;
        Ok(answer)
    }

    /// Executes a text without parameters, which may be several statements.
    pub(super) fn run(&mut self, text: &str) -> Result<Vec<Row>, WireError> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        frontend::query(text, &mut self.outgoing)?;
        self.send()?;
        let (mut rows, mut columns): (Vec<Row>, Arc<[String]>) = (Vec::new(), Arc::from([]));
        loop {
            match self.receive(deadline)? {
                Message::ReadyForQuery(_) => return Ok(rows),
                Message::RowDescription(body) => {
                    let names = body.fields().map(|field| Ok(field.name().to_owned()));
                    columns = names.collect::<Vec<_>>()?.into();
                }
                Message::DataRow(body) => rows.push(Row::new(body, &columns)?),
                Message::ErrorResponse(body) => return Err(self.refused(body.fields(), deadline)),
                _ => {}
            }
        }
    }

    /// Why a commit since the last call may not be on the standby.
    pub(super) fn take_doubt(&mut self) -> Option<String> {
        self.doubt.take()
    }

    /// Whether the server sends anything or closes the connection within this time.
    pub(super) fn is_readable_within(&mut self, time: Duration) -> bool {
        let waited = self.stream.set_timeout(time);
        let read = waited.and_then(|()| self.stream.read(&mut [0; 1]));
        !read.is_err_and(|error| is_timeout(&error))
    }

    /// Prepares a statement, if it is not prepared yet.
    pub(super) fn prepare(&mut self, text: &'static str) -> Result<(), WireError> {
        if !self.statements.contains_key(text) {
            let name = format!("s{}", self.names);
            self.names += 1;
            let prepared = self.parse(name, text)?;
            self.statements.insert(text, prepared);
        }
        Ok(())
    }

    fn parse(&mut self, name: String, text: &str) -> Result<PreparedStatement, WireError> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        frontend::parse(&name, text, [], &mut self.outgoing)?;
        frontend::describe(b'S', &name, &mut self.outgoing)?;
        self.end();
        self.send()?;
        let (mut parameters, mut columns) = (Vec::new(), Vec::new());
        loop {
            match self.receive(deadline)? {
                Message::ParameterDescription(body) => parameters = body.parameters().collect()?,
                Message::RowDescription(body) => {
                    let names = body.fields().map(|field| Ok(field.name().to_owned()));
                    columns = names.collect()?;
                }
                Message::ErrorResponse(body) => return Err(self.refused(body.fields(), deadline)),
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
        }
        let parameters = parameters.into_iter().map(|oid| self.type_of(oid));
        Ok(PreparedStatement {
            name,
            parameters: parameters.collect::<Result<_, _>>()?,
            columns: columns.into(),
        })
    }

    /// The array of a row type is built from its element type.
    fn type_of(&mut self, oid: u32) -> Result<Type, WireError> {
        if let Some(known) = Type::from_oid(oid).or_else(|| self.types.get(&oid).cloned()) {
            return Ok(known);
        }
        let rows = self.run(&format!(
            "SELECT typelem FROM pg_catalog.pg_type WHERE oid = {oid}"
        ))?;
        let element = rows.first().and_then(Row::number_as_text).unwrap_or(0);
        let named = |oid, kind| Type::new(format!("type {oid}"), oid, kind, "consign".to_owned());
        let element = named(element, Kind::Simple);
        let array = named(oid, Kind::Array(element));
        self.types.insert(oid, array.clone());
        Ok(array)
    }

    fn send(&mut self) -> Result<(), WireError> {
        self.stream.write_all(&self.outgoing)?;
        self.stream.flush()?;
        self.outgoing.clear();
        Ok(())
    }

    /// Reads the result of one statement.
    fn answer(
        &mut self,
        columns: &Arc<[String]>,
        deadline: Instant,
    ) -> Result<StatementResult, WireError> {
        let mut answer = StatementResult::default();
        loop {
            match self.receive(deadline)? {
                Message::DataRow(body) => answer.rows.push(Row::new(body, columns)?),
                Message::CommandComplete(body) => {
                    let tag = body.tag()?;
                    let count = tag.rsplit(' ').next();
                    answer.count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
                    answer.undone = tag == "ROLLBACK";
                    return Ok(answer);
                }
                Message::ErrorResponse(body) => return Err(self.refused(body.fields(), deadline)),
                Message::ReadyForQuery(_) => {
                    return Err(io::Error::other("a response is missing").into());
                }
                _ => {}
            }
        }
    }

    /// After an error the server skips everything up to the next Sync.
    fn refused(&mut self, fields: ErrorFields<'_>, deadline: Instant) -> WireError {
        let refusal = match ServerError::read(fields) {
            Ok(refusal) => refusal,
            Err(error) => return WireError::Lost(error),
        };
        if refusal.is_last() {
            return WireError::Refused(refusal);
        }
        self.outgoing.clear();
        let synced = if self.ended {
            Ok(())
        } else {
            self.end();
            self.send()
        };
        match synced.and_then(|()| self.ready(deadline)) {
            Ok(()) => WireError::Refused(refusal),
            Err(failure) => failure,
        }
    }

    fn end(&mut self) {
        frontend::sync(&mut self.outgoing);
        self.ended = true;
    }

    fn ready(&mut self, deadline: Instant) -> Result<(), WireError> {
        loop {
            if let Message::ReadyForQuery(_) = self.receive(deadline)? {
                return Ok(());
            }
        }
    }

    /// The next message that is a response.
    fn receive(&mut self, deadline: Instant) -> Result<Message, WireError> {
        loop {
            let header = Header::parse(&self.incoming)?;
            if header.is_some_and(|header| header.len() > MESSAGE_BYTES_MAX) {
                return Err(io::Error::other("it announced a message that is too large").into());
            }
            match Message::parse(&mut self.incoming)? {
                Some(Message::NoticeResponse(body)) => {
                    let notice = ServerError::read(body.fields())?;
                    if notice.doubts_commit() {
                        self.doubt = Some(notice.message);
                    }
                }
                Some(Message::ParameterStatus(_) | Message::NotificationResponse(_)) => {}
                Some(message) => return Ok(message),
                None => self.fill(deadline)?,
            }
        }
    }

    fn fill(&mut self, deadline: Instant) -> Result<(), WireError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        let length = self.incoming.len();
        self.incoming.resize(length + READ_BYTES, 0);
        let read = self.stream.read(&mut self.incoming[length..]);
        self.incoming
            .truncate(length + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn bind(
    prepared: &PreparedStatement,
    parameters: Parameters<'_>,
    out: &mut BytesMut,
) -> Result<(), WireError> {
    let values = parameters.iter().zip(&prepared.parameters);
    let bound = frontend::bind(
        "",
        &prepared.name,
        [1],
        values,
        |(value, of), out| match value.to_sql_checked(of, out)? {
            tokio_postgres::types::IsNull::Yes => Ok(IsNull::Yes),
            tokio_postgres::types::IsNull::No => Ok(IsNull::No),
        },
        [1],
        out,
    );
    bound.map_err(|error| match error {
        BindError::Serialization(error) => WireError::Lost(error),
        BindError::Conversion(error) => WireError::Lost(io::Error::other(error)),
    })
}
