//! The query of a request. A parameter that is given twice counts once, the first time.

use http::Uri;
use http::request::Parts;

/// The decoded parameters of a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryText(Vec<(String, String)>);

impl QueryText {
    pub(crate) fn of(parts: &Parts) -> Self {
        Self::of_uri(&parts.uri)
    }

    pub(crate) fn of_uri(uri: &Uri) -> Self {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        Self(pairs.map(|pairs| pairs.0).unwrap_or_default())
    }

    /// The value of a parameter, also if it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        let found = pairs.find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a parameter unless it is blank.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let value = self.get(name).map(str::trim);
        value.filter(|value| !value.is_empty())
    }

    /// A whole number of at least one; anything else counts as absent.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let value = self.text(name)?.parse().ok();
        value.filter(|number| *number > 0)
    }

    /// A finite number.
    pub(crate) fn decimal(&self, name: &str) -> Option<f64> {
        let value: Option<f64> = self.text(name)?.parse().ok();
        value.filter(|number| number.is_finite())
    }
}
