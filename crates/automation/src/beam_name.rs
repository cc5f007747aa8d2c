//! The names of agents in Beam, as far as the configuration uses them.

/// The longest part of a name between `@` and dots.
const LABEL_CHARS_MAX: usize = 64;

/// `agent@org.beam.directory`, or `agent@beam.directory` for an agent without an organisation.
pub(crate) fn is_beam_id(text: &str) -> bool {
    let is_label = |label: &str| {
        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        (1..=LABEL_CHARS_MAX).contains(&label.len()) && label.bytes().all(plain)
    };
    let Some((agent, rest)) = text.split_once('@') else {
        return false;
    };
    let Some(org) = rest.strip_suffix("beam.directory") else {
        return false;
    };
    is_label(agent) && (org.is_empty() || org.strip_suffix('.').is_some_and(is_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beam_id_has_an_agent_and_perhaps_an_organisation() {
        for good in [
            "a@beam.directory",
            "bob@acme.beam.directory",
            "b_o-b9@a-1_.beam.directory",
        ] {
            assert!(is_beam_id(good), "{good}");
        }
        for bad in [
            "",
            "bob",
            "@beam.directory",
            "bob@acme",
            "bob@acmebeam.directory",
            "bob@.beam.directory",
            "bob@a.b.beam.directory",
            "Bob@acme.beam.directory",
            "bob@acme.beam.directory ",
        ] {
            assert!(!is_beam_id(bad), "{bad}");
        }
        let label = "a".repeat(65);
        assert!(!is_beam_id(&format!("{label}@beam.directory")));
    }
}
