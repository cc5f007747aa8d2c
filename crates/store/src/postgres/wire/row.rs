//! A row as the server sent it.

use std::ops::Range;
use std::sync::Arc;

use postgres_protocol::message::backend::DataRowBody;
use tokio_postgres::fallible_iterator::FallibleIterator as _;
use tokio_postgres::types::{FromSql, Type};

use super::super::rows::SqlRow;
use crate::Error;

#[derive(Debug)]
pub(in super::super) struct Row {
    body: DataRowBody,
    cells: Vec<Option<Range<usize>>>,
    columns: Arc<[String]>,
}

impl Row {
    pub(super) fn new(body: DataRowBody, columns: &Arc<[String]>) -> std::io::Result<Self> {
        let mut cells = Vec::with_capacity(columns.len());
        let mut ranges = body.ranges();
        while let Some(range) = ranges.next()? {
            cells.push(range);
        }
        Ok(Self {
            body,
            cells,
            columns: Arc::clone(columns),
        })
    }

    fn cell(&self, index: usize) -> Option<&[u8]> {
        let range = self.cells.get(index)?.as_ref()?;
        self.body.buffer().get(range.clone())
    }

    /// The first cell of a result in text format, as a number.
    pub(super) fn number_as_text(&self) -> Option<u32> {
        std::str::from_utf8(self.cell(0)?).ok()?.parse().ok()
    }

    /// The first cell of a result in text format.
    pub(in super::super) fn word(&self) -> &str {
        let text = self.cell(0).and_then(|cell| std::str::from_utf8(cell).ok());
        text.unwrap_or_default()
    }
}

/// Every cell has the type of the statement, so it is not checked again. A wrong length is an error.
impl SqlRow for Row {
    fn cell<'r, T: FromSql<'r>>(&'r self, index: usize) -> Result<T, Error> {
        T::from_sql_nullable(&Type::UNKNOWN, self.cell(index))
            .map_err(|error| Error::Corrupt(error.to_string()))
    }

    fn column(&self, index: usize) -> &str {
        self.columns.get(index).map_or("?", String::as_str)
    }
}
