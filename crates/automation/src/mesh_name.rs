//! The names of meshes, topics and queues, as far as the configuration uses them.

const SLUG_CHARS_MAX: usize = 64;
const TOPIC_CHARS_MAX: usize = 64;
const QUEUE_CHARS_MAX: usize = 128;

/// The short name of a mesh.
pub(crate) fn is_mesh_slug(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=SLUG_CHARS_MAX).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

pub(crate) fn is_topic_name(text: &str) -> bool {
    is_name(text, TOPIC_CHARS_MAX)
}

pub(crate) fn is_queue_name(text: &str) -> bool {
    is_name(text, QUEUE_CHARS_MAX)
}

fn is_name(text: &str, chars_max: usize) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "-_./:".contains(c);
    (1..=chars_max).contains(&text.chars().count()) && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meshes_topics_and_queues_have_their_characters_and_lengths() {
        let long = "t".repeat(65);
        for (text, slug, topic, queue) in [
            ("acme-1", true, true, true),
            ("a/b:c.d_e", false, true, true),
            ("Acme", false, true, true),
            ("-acme", false, true, true),
            (long.as_str(), false, false, true),
            ("no name", false, false, false),
            ("", false, false, false),
        ] {
            assert_eq!(is_mesh_slug(text), slug, "{text}");
            assert_eq!(is_topic_name(text), topic, "{text}");
            assert_eq!(is_queue_name(text), queue, "{text}");
        }
        assert!(!is_queue_name(&"q".repeat(129)));
    }
}
