//! Reads the members of an object one by one; an invalid value is an error that names the member.
//!
//! `null` counts as absent. Text lengths are counted in Unicode scalar values.

use std::ops::RangeInclusive;

use consign_kernel::ids::Micros;
use consign_kernel::json::{Object, Raw};

use crate::document::{AtpDocument, AtpPublicKey};
use crate::instant;
use crate::money::{Cents, Currency};
use crate::problem::Problem;

/// The members of one object, with the path to it.
pub(crate) struct DocumentFields<'a> {
    path: String,
    object: Object<'a>,
}

impl<'a> DocumentFields<'a> {
    pub(crate) fn of(document: &'a AtpDocument) -> Self {
        Self {
            path: String::new(),
            object: document.members(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Raw<'a>> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// The value that `read` returns for the member; if it returns none, the error says what is
    /// `wanted`.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(Raw<'a>) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let value = self.get(name).map(read);
        match value {
            None => Ok(None),
            Some(Some(value)) => Ok(Some(value)),
            Some(None) => Err(self.refuse(name, format!("must be {wanted}"))),
        }
    }

    /// For a required member.
    pub(crate) fn need<T>(&self, name: &str, value: Option<T>) -> Result<T, Problem> {
        value.ok_or_else(|| self.refuse(name, "is required"))
    }

    pub(crate) fn text(
        &self,
        name: &str,
        chars: RangeInclusive<usize>,
    ) -> Result<Option<String>, Problem> {
        let wanted = format!("text of {} to {} characters", chars.start(), chars.end());
        self.read(name, &wanted, |value| text_within(value, chars))
    }

    /// Letters, digits and a few punctuation marks: the alphabet of ids.
    pub(crate) fn intent_id(&self, name: &str) -> Result<String, Problem> {
        let wanted = "1 to 128 of A-Z a-z 0-9 . _ : -";
        let id = self.read(name, wanted, |value| {
            text_within(value, 1..=128).filter(|id| is_id(id))
        })?;
        self.need(name, id)
    }

    pub(crate) fn cents(&self, name: &str) -> Result<Option<Cents>, Problem> {
        self.read(name, "an integer from 0 to 2^53-1", |value| {
            u64::try_from(value.as_i64()?).ok().and_then(Cents::new)
        })
    }

    pub(crate) fn currency(&self, name: &str) -> Result<Option<Currency>, Problem> {
        self.read(name, "three upper case letters as in ISO 4217", |value| {
            value.as_str()?.parse().ok()
        })
    }

    pub(crate) fn instant(&self, name: &str) -> Result<Micros, Problem> {
        let at = self.read(name, "a time as in RFC 3339", |value| {
            instant::parse(&value.as_str()?)
        })?;
        self.need(name, at)
    }

    pub(crate) fn public_key(&self, name: &str) -> Result<Option<AtpPublicKey>, Problem> {
        self.read(name, "ed25519: and the base64 of a key", |value| {
            AtpPublicKey::parse(&value.as_str()?)
        })
    }

    pub(crate) fn items(&self, name: &str) -> Result<Option<Vec<Raw<'a>>>, Problem> {
        self.read(name, "a list", |value| value.items())
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Self>, Problem> {
        let object = self.read(name, "an object", |value| value.object().ok())?;
        Ok(object.map(|object| self.below(name, object)))
    }

    /// The object at one index of a list.
    pub(crate) fn element(
        &self,
        name: &str,
        index: usize,
        element: Raw<'a>,
    ) -> Result<Self, Problem> {
        let name = format!("{name}[{index}]");
        match element.object() {
            Ok(object) => Ok(self.below(&name, object)),
            Err(_) => Err(self.refuse(&name, "must be an object")),
        }
    }

    pub(crate) fn refuse(&self, name: &str, reason: impl Into<String>) -> Problem {
        Problem::field(format!("{}{name}", self.path), reason)
    }

    fn below(&self, name: &str, object: Object<'a>) -> Self {
        Self {
            path: format!("{}{name}.", self.path),
            object,
        }
    }
}

pub(crate) fn text_within(value: Raw<'_>, chars: RangeInclusive<usize>) -> Option<String> {
    let text = value.as_str()?;
    chars
        .contains(&text.chars().count())
        .then(|| text.into_owned())
}

fn is_id(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
}
