//! `consign daemon logs`: the last lines of `daemon.log`, and those that follow. The file is read directly, so that the log of
//! a daemon that ended can be read too.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

use super::DaemonSelector;
use crate::failure::{Exit, Failure};
use crate::out;

/// How often the file is looked at again.
const POLL: Duration = Duration::from_millis(200);
/// The end of the file in which the last lines are searched.
const TAIL_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct DaemonLogsArgs {
    /// The number of lines
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    lines: usize,

    /// Go on with new lines as they are written
    #[arg(short, long)]
    follow: bool,
}

impl DaemonLogsArgs {
    pub(super) async fn run(self, target: &DaemonSelector) -> anyhow::Result<Exit> {
        let (home, slug) = target.place()?;
        let path = home.daemon_directory(&slug).join("daemon.log");
        let mut file = open(&path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        let text = read_on(&mut file)?;
        let shown = last_lines(&text, self.lines);
        if !shown.is_empty() {
            out::data(shown)?;
        }
        if self.follow {
            follow(&path, file).await?;
        }
        Ok(Exit::Done)
    }
}

/// Prints new lines until an error ends it.
async fn follow(path: &Path, mut file: File) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(POLL).await;
        let text = read_on(&mut file)?;
        if !text.is_empty() {
            out::data(&text)?;
        }
        // A rotated log goes on in a new file.
        if let Ok(now) = std::fs::metadata(path)
            && now.ino() != file.metadata()?.ino()
        {
            file = open(path)?;
        }
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).map_err(|error| {
        let message = format!("no log can be read at {}: {error}", path.display());
        Failure::new(Exit::Nothing, message).into()
    })
}

fn read_on(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .context("cannot read the log")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of a text from the beginning of a line on.
fn last_lines(text: &str, lines: usize) -> &str {
    let ends = text.trim_end_matches('\n').rmatch_indices('\n');
    let start = match lines.checked_sub(1) {
        None => text.len(),
        Some(before) => ends.map(|(at, _)| at + 1).nth(before).unwrap_or(0),
    };
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_last_lines_are_whole() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(last_lines(text, 1), "three\n");
        assert_eq!(last_lines(text, 2), "two\nthree\n");
        assert_eq!(last_lines(text, 9), text);
        assert_eq!(last_lines(text, 0), "");
        assert_eq!(last_lines("", 3), "");
    }
}
