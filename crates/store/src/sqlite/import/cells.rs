//! Cells of a foreign row, read by their meaning and not by their storage class.
//!
//! Invariant: a cell is converted only without loss; otherwise the error names the column and the reason.
//! This module does not know what a column is for, and fills in no defaults.

use rusqlite::Row;
use rusqlite::types::ValueRef;

/// Up to here every integer has an exact double.
const EXACT_MAX: i64 = 1 << 53;

/// The cells of one row, by column name.
pub(super) struct ForeignCells<'row>(pub(super) &'row Row<'row>);

impl ForeignCells<'_> {
    pub(super) fn text(&self, column: &str) -> Result<String, String> {
        filled(column, self.text_or_null(column)?)
    }

    pub(super) fn text_or_null(&self, column: &str) -> Result<Option<String>, String> {
        match self.cell(column)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => Err(format!("its {column} is not UTF-8")),
            },
            ValueRef::Integer(integer) => Ok(Some(integer.to_string())),
            ValueRef::Real(_) => Err(format!("its {column} is a number, not text")),
            ValueRef::Blob(_) => Err(format!("its {column} is a blob")),
        }
    }

    pub(super) fn integer(&self, column: &str) -> Result<i64, String> {
        filled(column, self.integer_or_null(column)?)
    }

    pub(super) fn integer_or_null(&self, column: &str) -> Result<Option<i64>, String> {
        let found = match self.cell(column)? {
            ValueRef::Null => return Ok(None),
            ValueRef::Integer(integer) => Some(integer),
            ValueRef::Real(real) => whole(real),
            ValueRef::Text(bytes) => number(bytes).and_then(|text| {
                let real = || text.parse().ok().and_then(whole);
                text.parse().ok().or_else(real)
            }),
            ValueRef::Blob(_) => None,
        };
        found
            .map(Some)
            .ok_or_else(|| format!("its {column} is not a whole number"))
    }

    pub(super) fn real(&self, column: &str) -> Result<f64, String> {
        filled(column, self.real_or_null(column)?)
    }

    pub(super) fn real_or_null(&self, column: &str) -> Result<Option<f64>, String> {
        let found = match self.cell(column)? {
            ValueRef::Null => return Ok(None),
            ValueRef::Real(real) => Some(real),
            ValueRef::Integer(integer) => exact(integer),
            ValueRef::Text(bytes) => number(bytes).and_then(|text| text.parse().ok()),
            ValueRef::Blob(_) => None,
        };
        found
            .filter(|real| real.is_finite())
            .map(Some)
            .ok_or_else(|| format!("its {column} is not a number"))
    }

    fn cell(&self, column: &str) -> Result<ValueRef<'_>, String> {
        self.0
            .get_ref(column)
            .map_err(|error| format!("its {column} cannot be read: {error}"))
    }
}

fn filled<T>(column: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("its {column} is null"))
}

/// Text that starts and ends like a number, so that `inf` and `nan` are not numbers.
fn number(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    text.ends_with(|last: char| last.is_ascii_digit())
        .then_some(text)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "within the bound both directions are exact"
)]
fn whole(real: f64) -> Option<i64> {
    (real.fract() == 0.0 && real.abs() <= EXACT_MAX as f64).then_some(real as i64)
}

#[expect(clippy::cast_precision_loss, reason = "within the bound it is exact")]
fn exact(integer: i64) -> Option<f64> {
    (-EXACT_MAX..=EXACT_MAX)
        .contains(&integer)
        .then_some(integer as f64)
}
