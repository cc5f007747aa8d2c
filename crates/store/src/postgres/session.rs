//! The connection of a writer, and its failures.
//!
//! Invariant: after an error the connection is either usable or discarded; a new one is opened when it is needed.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use super::address::DatabaseAddress;
use super::wire::{BoundStatement, Parameters, Row, StatementResult, WireConnection, WireError};
use crate::Error;

pub(super) const COMMIT: &str = "COMMIT";

/// Bounds of [`Session::reserve`].
const RESERVE_MIN: Duration = Duration::from_secs(4);
const RESERVE_MAX: Duration = Duration::from_mins(5);
/// How long a request waits for the end of an abandoned connection.
const GLANCE: Duration = Duration::from_millis(50);

pub(super) struct Session {
    address: DatabaseAddress,
    wire: Option<WireConnection>,
    /// A connection that was abandoned during a commit, and until when the session waits for it.
    abandoned: Option<(WireConnection, Instant)>,
    /// How long the session waits for the next one: longer each time, so that a server that waits for its standby for an hour
    /// does not get ever more connections, and a connection that hangs once is soon replaced.
    reserve: Duration,
    /// The connection cannot be used any more: a response is missing, or the server has ended the session.
    spent: bool,
}

impl Session {
    pub(super) fn new(address: DatabaseAddress) -> Self {
        Self {
            address,
            wire: None,
            abandoned: None,
            reserve: RESERVE_MIN,
            spent: false,
        }
    }

    /// Whether the connection can be used for another statement.
    pub(super) fn is_usable(&self) -> bool {
        !self.spent && self.wire.is_some()
    }

    /// Opens a connection if there is none.
    pub(super) fn ready(&mut self) -> Result<(), Error> {
        if !self.is_usable() {
            self.discard();
            self.await_abandoned()?;
            self.wire = Some(self.address.open()?);
        }
        Ok(())
    }

    /// Discards the connection; the server rolls back its open transaction.
    pub(super) fn discard(&mut self) {
        self.wire = None;
        self.spent = false;
    }

    /// Runs one statement, which is prepared once for the connection.
    pub(super) fn query(
        &mut self,
        text: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        let asked = BoundStatement {
            text,
            parameters: parameters.to_vec(),
        };
        let answers = self.ask(&[asked])?;
        Ok(answers.into_iter().flat_map(|answer| answer.rows).collect())
    }

    /// Executes all statements together, all of them or none.
    pub(super) fn ask(
        &mut self,
        asked: &[BoundStatement<'_>],
    ) -> Result<Vec<StatementResult>, Error> {
        self.with(|wire| wire.ask(asked).into_iter().collect())
    }

    /// Runs a rare statement, which is planned for the current content of the tables.
    pub(super) fn query_anew(
        &mut self,
        text: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.with(|wire| wire.ask_anew(text, parameters))
            .map(|answer| answer.rows)
    }

    /// The same for a statement that writes; returns the number of rows.
    pub(super) fn execute_anew(
        &mut self,
        text: &str,
        parameters: Parameters<'_>,
    ) -> Result<u64, Error> {
        self.with(|wire| wire.ask_anew(text, parameters))
            .map(|answer| answer.count)
    }

    /// A statement without parameters.
    pub(super) fn run(&mut self, text: &str) -> Result<(), Error> {
        self.with(|wire| wire.run(text)).map(drop)
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut WireConnection) -> Result<T, WireError>,
    ) -> Result<T, Error> {
        let wire = self.wire.as_mut().ok_or(Error::Closed)?;
        work(wire).map_err(|failure| {
            self.note(&failure);
            failure.into()
        })
    }

    fn note(&mut self, failure: &WireError) {
        self.spent |= match failure {
            WireError::Lost(_) => true,
            WireError::Refused(refusal) => refusal.is_last() || is_over(&refusal.code),
        };
    }

    /// Executes the last statements and commits, in one round trip.
    ///
    /// An error is [`Error::Unsure`] unless the server refused a statement before the commit, which it then skipped.
    /// A server that stops waiting for its standby confirms the commit with a warning: the commit exists, and may be lost
    /// with this one machine. Other warnings, such as those of a custom trigger, have no such meaning.
    pub(super) fn commit(&mut self, mut last: Vec<BoundStatement<'_>>) -> Result<(), Error> {
        last.push(BoundStatement {
            text: COMMIT,
            parameters: Vec::new(),
        });
        let wire = self.wire.as_mut().ok_or(Error::Closed)?;
        wire.take_doubt();
        let mut answers = wire.ask(&last);
        let doubt = wire.take_doubt();
        let before_commit = answers.len() < last.len();
        let failure = match (answers.pop(), doubt) {
            (Some(Err(failure)), _) => failure,
            (Some(Ok(StatementResult { undone: true, .. })), _) => {
                let failed = "the transaction had failed before it was committed";
                return Err(Error::Unavailable(failed.to_owned()));
            }
            (_, Some(doubt)) => return Err(Error::Unsure(doubt)),
            (_, None) => {
                self.reserve = RESERVE_MIN;
                return Ok(());
            }
        };
        self.note(&failure);
        if before_commit && matches!(failure, WireError::Refused(_)) {
            return Err(failure.into());
        }
        Err(Error::Unsure(failure.to_string()))
    }

    /// Abandons the connection during a commit. A connection that has answered, with a warning, is not waited for.
    pub(super) fn abandon(&mut self) {
        if self.spent {
            let until = Instant::now() + self.reserve;
            self.reserve = (self.reserve * 2).min(RESERVE_MAX);
            self.abandoned = self.wire.take().map(|wire| (wire, until));
        }
        self.discard();
    }

    fn await_abandoned(&mut self) -> Result<(), Error> {
        let Some((wire, until)) = &mut self.abandoned else {
            return Ok(());
        };
        if !wire.is_readable_within(GLANCE) && Instant::now() < *until {
            let waits = "a commit from before still waits in the database, perhaps for a standby";
            return Err(Error::Unavailable(waits.to_owned()));
        }
        self.abandoned = None;
        Ok(())
    }
}

/// Whether the error means that the connection accepts no more writes: the server ends, or is no primary any more.
fn is_over(code: &SqlState) -> bool {
    *code == SqlState::READ_ONLY_SQL_TRANSACTION || code.code().starts_with("57P")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let cluster = consign_testkit::postgres::shared().unwrap();
        let address = DatabaseAddress::parse(&cluster.url("postgres"), None).unwrap();
        let mut session = Session::new(address);
        session.ready().unwrap();
        session
    }

    fn asked(text: &'static str) -> BoundStatement<'static> {
        BoundStatement {
            text,
            parameters: Vec::new(),
        }
    }

    #[test]
    fn whatever_the_server_takes_leave_with_the_connection_is_spent() {
        let mut session = session();
        session
            .run("SET idle_in_transaction_session_timeout = 20")
            .unwrap();
        session.run("BEGIN").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        session.query("SELECT 1", &[]).unwrap_err();
        assert!(!session.is_usable());
        session.ready().unwrap();
        session.query("SELECT 1", &[]).unwrap();
    }

    #[test]
    fn a_commit_that_was_answered_with_a_warning_keeps_nobody_waiting() {
        const WARN: &str =
            "DO $$ BEGIN RAISE WARNING 'shut down' USING ERRCODE = 'admin_shutdown'; END $$";
        let mut session = session();
        session.run("BEGIN").unwrap();
        let unsure = session.commit(vec![asked(WARN)]);
        assert!(matches!(&unsure, Err(Error::Unsure(why)) if why == "shut down"));
        session.abandon();
        session.ready().unwrap();
    }

    #[test]
    fn a_commit_that_hangs_is_waited_for_until_it_ends() {
        let mut session = session();
        session.spent = true;
        session.abandon();
        assert!(matches!(session.ready(), Err(Error::Unavailable(_))));
        session.abandoned.as_mut().unwrap().1 = Instant::now();
        session.ready().unwrap();
    }

    #[test]
    fn a_commit_of_a_failed_transaction_is_no_commit() {
        let mut session = session();
        session.run("BEGIN").unwrap();
        session.run("SELECT 1 / 0").unwrap_err();
        let refused = session.commit(Vec::new());
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        session.run("BEGIN").unwrap();
        session.commit(Vec::new()).unwrap();
    }

    #[test]
    fn a_statement_that_cannot_be_made_ready_undoes_its_transaction_and_no_more() {
        let mut session = session();
        session.run("BEGIN").unwrap();
        let refused = session.commit(vec![asked("SELECT 1"), asked("SELECT FROM nowhere")]);
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        assert!(session.is_usable());
        session.run("ROLLBACK").unwrap();
        session.run("BEGIN").unwrap();
        session.commit(vec![asked("SELECT 1")]).unwrap();
    }
}
