//! `consign top`: the server, live.

mod frame;
mod list;
mod terminal;
mod view;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use consign_client::Client;
use serde_json::Value;

use crate::cli::single_thread;
use crate::commands::{OutputArgs, status};
use crate::failure::Exit;
use crate::link::AdminArgs;
use crate::out;
use terminal::Screen;
use view::{TopAction, TopView};

const AFTER_HELP: &str = "\
Keys:
  j, k, arrows  select a line      enter  list the rows of the line
  d             list dead letters  esc    back
  r             next interval      ?      help
  q             quit

If standard output is not a terminal, one snapshot is printed, as with --once.";

/// Intervals that the key `r` steps through.
const INTERVALS_S: [u64; 4] = [1, 2, 5, 10];

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct TopArgs {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,

    /// Print one snapshot and stop
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

/// One look at the server.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Value,
    pub(crate) at: Instant,
}

impl TopArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let client = self.admin.client()?;
        let runtime = single_thread()?;
        let look = || runtime.block_on(snapshot(&client));
        let first = look()?;
        if self.output.json {
            out::json(&first.status)?;
            return Ok(status::exit(&first.status));
        }
        if self.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            out::data(&status::text(&first.status))?;
            return Ok(status::exit(&first.status));
        }
        let mut screen = Screen::open()?;
        let mut view = TopView::new(first);
        let mut interval_s = self.interval;
        loop {
            let (columns, lines) = Screen::size();
            Screen::draw(&view.draw(columns, lines, interval_s))?;
            let due = view.looked_at() + Duration::from_secs(interval_s);
            let key = screen.key(due.saturating_duration_since(Instant::now()))?;
            match key.map_or(TopAction::Look, |key| view.press(key)) {
                TopAction::Quit => return Ok(Exit::Done),
                TopAction::Nothing => {}
                TopAction::NextInterval => interval_s = next_interval(interval_s),
                TopAction::List => {
                    let rows =
                        runtime.block_on(list::fetch(&client, view.wanted(), view.last_fact()));
                    view.show_list(rows.map_err(|error| error.to_string()));
                }
                TopAction::Look => {
                    view.look(look().map_err(|error| error.to_string()));
                }
            }
        }
    }
}

async fn snapshot(client: &Client) -> anyhow::Result<Snapshot> {
    Ok(Snapshot {
        status: status::fetch(client).await?,
        at: Instant::now(),
    })
}

fn next_interval(now_s: u64) -> u64 {
    let later = INTERVALS_S.into_iter().find(|next| *next > now_s);
    later.unwrap_or(INTERVALS_S[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_follow_each_other_in_a_circle() {
        assert_eq!([1, 2, 3, 10, 60].map(next_interval), [2, 5, 5, 1, 1]);
    }
}
