//! Encodes rows for the database: each row is one composite value, and many rows are one array.
//!
//! A composite type of our schema decodes them there. That is cheaper than an array for each column, and a column that a
//! later migration adds to a table does not affect older programs.

use std::error::Error;

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::rows::stored;

/// One row. Its cells must match the row type, in its order.
#[derive(Debug)]
pub(super) struct RowEncoder {
    bytes: BytesMut,
    count: i32,
}

const NULL: i32 = -1;

impl RowEncoder {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: BytesMut::with_capacity(bytes),
            count: 0,
        }
    }

    fn cell(&mut self, of: &Type, value: Option<&[u8]>) {
        self.count += 1;
        self.bytes.put_u32(of.oid());
        match value {
            Some(value) => {
                self.bytes.put_i32(length(value));
                self.bytes.put_slice(value);
            }
            None => self.bytes.put_i32(NULL),
        }
    }

    pub(super) fn int2(&mut self, value: impl Into<Option<i16>>) {
        let value = value.into().map(i16::to_be_bytes);
        self.cell(&Type::INT2, value.as_ref().map(|bytes| &bytes[..]));
    }

    pub(super) fn int4(&mut self, value: i32) {
        self.cell(&Type::INT4, Some(&value.to_be_bytes()));
    }

    pub(super) fn int8(&mut self, value: impl Into<Option<i64>>) {
        let value = value.into().map(i64::to_be_bytes);
        self.cell(&Type::INT8, value.as_ref().map(|bytes| &bytes[..]));
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.cell(&Type::BOOL, Some(&[u8::from(value)]));
    }

    pub(super) fn bytes<'v>(&mut self, value: impl Into<Option<&'v [u8]>>) {
        self.cell(&Type::BYTEA, value.into());
    }

    pub(super) fn text<'v>(&mut self, value: impl Into<Option<&'v str>>) {
        let value = value.into().map(stored);
        self.cell(&Type::TEXT, value.as_ref().map(|text| text.as_bytes()));
    }
}

/// PostgreSQL accepts no longer value, and our limits are far below.
fn length(value: &[u8]) -> i32 {
    i32::try_from(value.len()).unwrap_or(i32::MAX)
}

impl ToSql for RowEncoder {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_i32(self.count);
        out.put_slice(&self.bytes);
        Ok(IsNull::No)
    }

    /// The statement names the row type, and the server checks the number of cells and their types.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
