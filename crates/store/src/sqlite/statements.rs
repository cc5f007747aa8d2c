//! The writer's statements, each prepared once for the life of its connection.
//!
//! A statement is found by the address of its text, which is cheaper than hashing a kilobyte of SQL for every row. If the
//! compiler keeps one text at two addresses, it is prepared twice, which is harmless.

use rusqlite::{Connection, Statement};

pub(super) struct StatementCache<'c> {
    connection: &'c Connection,
    statements: Vec<(Text, Statement<'c>)>,
}

/// Address and length of a text.
type Text = (usize, usize);

impl<'c> StatementCache<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            connection,
            statements: Vec::with_capacity(32),
        }
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    pub(super) fn get(&mut self, sql: &'static str) -> rusqlite::Result<&mut Statement<'c>> {
        let text = (sql.as_ptr().addr(), sql.len());
        let known = self.statements.iter().position(|(known, _)| *known == text);
        let index = if let Some(index) = known {
            index
        } else {
            self.statements.push((text, self.connection.prepare(sql)?));
            self.statements.len() - 1
        };
        Ok(&mut self.statements[index].1)
    }
}
