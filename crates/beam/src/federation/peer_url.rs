//! The URL of a directory, in the one spelling under which it is stored and compared.

use crate::outbound::{TargetUrl, UrlError};

/// The longest URL of a directory.
const BYTES_MAX: usize = 1024;

/// Why a text is not the URL of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeerUrlError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error("the URL is longer than {BYTES_MAX} bytes")]
    TooLong,
    #[error("the URL contains a query")]
    Query,
}

/// Scheme and host in lower case, no default port, no slash at the end.
pub(crate) fn canonical(text: &str) -> Result<String, PeerUrlError> {
    let text = text.trim();
    if text.len() > BYTES_MAX {
        return Err(PeerUrlError::TooLong);
    }
    let url = TargetUrl::parse(text)?;
    if url.path_and_query().contains('?') {
        return Err(PeerUrlError::Query);
    }
    Ok(url.to_string().trim_end_matches('/').to_owned())
}

/// Whether both texts are spellings of the URL of one directory.
pub(crate) fn is_same_directory(one: &str, other: &str) -> bool {
    let one = canonical(one);
    one.is_ok() && one == canonical(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_url_are_equal() {
        for text in [
            "https://directory.example",
            "https://directory.example/",
            " HTTPS://Directory.Example:443// ",
        ] {
            assert_eq!(canonical(text).as_deref(), Ok("https://directory.example"));
        }
        let below = canonical("http://127.0.0.1:3100/beam/");
        assert_eq!(below.as_deref(), Ok("http://127.0.0.1:3100/beam"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "directory.example",
            "https://a@b",
            "https://127.1",
            "ftp://a",
        ] {
            assert!(canonical(text).is_err(), "{text}");
        }
        assert_eq!(
            canonical("https://a.example/?x=1"),
            Err(PeerUrlError::Query)
        );
        let long = format!("https://a.example/{}", "x".repeat(BYTES_MAX));
        assert_eq!(canonical(&long), Err(PeerUrlError::TooLong));
    }
}
