//! The one writer of signed text.

use std::fmt::Write as _;

use consign_kernel::json::write_ecmascript;

use super::{BeamString, BeamValue};

/// Which characters of a string are escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Quote, backslash, control characters, and halves of surrogate pairs.
    Required,
    /// Also everything outside printable ASCII, DEL included.
    NonAscii,
}

pub(super) fn write(value: &BeamValue, escapes: Escapes, out: &mut String) {
    match value {
        BeamValue::Null => out.push_str("null"),
        BeamValue::Bool(true) => out.push_str("true"),
        BeamValue::Bool(false) => out.push_str("false"),
        BeamValue::Number(number) if number.is_finite() => write_ecmascript(*number, out),
        BeamValue::Number(_) => out.push_str("null"),
        BeamValue::String(string) => write_string(string, escapes, out),
        BeamValue::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, escapes, out);
            }
            out.push(']');
        }
        BeamValue::Object(object) => {
            out.push('{');
            for (at, (key, value)) in object.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_string(key, escapes, out);
                out.push(':');
                write(value, escapes, out);
            }
            out.push('}');
        }
    }
}

fn write_string(string: &BeamString, escapes: Escapes, out: &mut String) {
    out.push('"');
    string.for_each(|char| match char {
        Ok('"') => out.push_str("\\\""),
        Ok('\\') => out.push_str("\\\\"),
        Ok('\u{8}') => out.push_str("\\b"),
        Ok('\t') => out.push_str("\\t"),
        Ok('\n') => out.push_str("\\n"),
        Ok('\u{c}') => out.push_str("\\f"),
        Ok('\r') => out.push_str("\\r"),
        Ok(' '..='~') => out.extend(char),
        Ok(char) if char >= ' ' && escapes == Escapes::Required => out.push(char),
        Ok(char) => {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                write_escape(*unit, out);
            }
        }
        Err(half) => write_escape(half, out),
    });
    out.push('"');
}

fn write_escape(unit: u16, out: &mut String) {
    write!(out, "\\u{unit:04x}").expect("a String takes every write");
}
