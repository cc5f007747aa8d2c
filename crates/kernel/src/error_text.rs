//! The error of a failed attempt, cut to what is kept.
//!
//! Invariant: of a text that is too long its beginning and its end are kept, because the cause is often the last line, and a
//! mark between them says how much is missing. No character is split.

use std::borrow::Cow;

use crate::limits::ERROR_BYTES_MAX;

/// For the mark, whatever number it names.
const MARK_BYTES_MAX: usize = 64;

/// How much is kept of the beginning, and of the end.
const PART_BYTES_MAX: usize = (ERROR_BYTES_MAX - MARK_BYTES_MAX) / 2;

/// The text, or its beginning and end if it is longer than the limit.
pub fn kept(text: &str) -> Cow<'_, str> {
    if text.len() <= ERROR_BYTES_MAX {
        return Cow::Borrowed(text);
    }
    let head = &text[..text.floor_char_boundary(PART_BYTES_MAX)];
    let tail = &text[text.ceil_char_boundary(text.len() - PART_BYTES_MAX)..];
    let missing = text.len() - head.len() - tail.len();
    Cow::Owned(format!(
        "{head}\n[… {missing} bytes are left out …]\n{tail}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_the_limit_is_kept_as_it_is() {
        for text in ["", "no paper", &"é".repeat(ERROR_BYTES_MAX / 2)] {
            assert!(matches!(kept(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn of_a_longer_text_head_and_tail_are_kept_with_a_mark_between_them() {
        let text = format!("head{}tail", "x".repeat(ERROR_BYTES_MAX));
        let short = kept(&text);
        assert!(short.len() <= ERROR_BYTES_MAX, "{}", short.len());
        assert!(short.starts_with("headxx") && short.ends_with("xxtail"));
        let missing = text.len() - 2 * PART_BYTES_MAX;
        let mark = format!("x\n[… {missing} bytes are left out …]\nx");
        assert!(short.contains(&mark), "{short}");
    }

    #[test]
    fn no_character_is_split_wherever_the_cut_is() {
        for shift in 0..4 {
            let text = format!("{}{}", "a".repeat(shift), "🦀".repeat(5_000));
            let short = kept(&text);
            assert!(short.len() <= ERROR_BYTES_MAX);
            let (head, rest) = short.split_once('\n').unwrap();
            let (_, tail) = rest.split_once('\n').unwrap();
            assert!(head.trim_start_matches('a').chars().all(|c| c == '🦀'));
            assert!(tail.chars().all(|c| c == '🦀'));
            assert!(head.len() + 4 > PART_BYTES_MAX && tail.len() + 4 > PART_BYTES_MAX);
        }
    }
}
