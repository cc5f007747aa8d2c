//! Line arithmetic for block-style YAML.

/// The start of the line that contains `offset`.
pub(super) fn start_of(text: &str, offset: usize) -> usize {
    text[..offset].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The indentation of a key if it is the first in its line, which only block style guarantees.
pub(super) fn indent_of(text: &str, offset: usize) -> Option<usize> {
    let before = &text[start_of(text, offset)..offset];
    before
        .bytes()
        .all(|byte| byte == b' ')
        .then_some(before.len())
}

/// The column of a list item's dash if the dash is the first in its line.
pub(super) fn dash_of(text: &str, offset: usize) -> Option<usize> {
    let before = &text[start_of(text, offset)..offset];
    let dash = before.find('-')?;
    let alone = before.bytes().filter(|byte| *byte != b' ').count() == 1;
    alone.then_some(dash)
}

/// The end of the block that starts in the line of `offset` with indentation `indent`: all following deeper lines belong to it.
pub(super) fn block_end(text: &str, offset: usize, indent: usize) -> usize {
    let mut end = next(text, offset);
    let mut at = end;
    while at < text.len() {
        let after = next(text, at);
        let line = &text[at..after];
        let depth = line.len() - line.trim_start_matches(' ').len();
        if line.trim().is_empty() {
            at = after;
            continue;
        }
        if depth <= indent {
            break;
        }
        end = after;
        at = after;
    }
    end
}

/// The start of the line after the one that contains `offset`.
fn next(text: &str, offset: usize) -> usize {
    let newline = text[offset..].find('\n');
    newline.map_or(text.len(), |newline| offset + newline + 1)
}

/// The text with `block` appended on lines of its own.
pub(super) fn appended(text: &str, block: &str) -> String {
    let newline = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{newline}{block}")
}
