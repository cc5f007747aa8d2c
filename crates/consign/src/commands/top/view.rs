//! What the view shows, and what its keys do.

use std::time::{Duration, Instant};

use super::Snapshot;
use super::frame;
use super::list::WantedRows;
use super::terminal::{ScreenLine, TopKey};
use crate::figures::count;

/// What follows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopAction {
    Nothing,
    /// Look at the server now.
    Look,
    /// Fetch [`TopView::wanted`].
    List,
    NextInterval,
    Quit,
}

/// The page on the screen.
#[derive(Debug)]
enum Page {
    Overview,
    Help,
    List {
        title: String,
        lines: Vec<String>,
        from: usize,
    },
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct TopView {
    now: Snapshot,
    before: Option<Snapshot>,
    page: Page,
    selected: usize,
    wanted: WantedRows,
    /// Why the last look failed.
    trouble: Option<String>,
    looked_at: Instant,
}

impl TopView {
    pub(super) fn new(first: Snapshot) -> Self {
        Self {
            looked_at: first.at,
            now: first,
            before: None,
            page: Page::Overview,
            selected: 0,
            wanted: WantedRows::DeadLetters,
            trouble: None,
        }
    }

    pub(super) fn looked_at(&self) -> Instant {
        self.looked_at
    }

    /// The id of the last event at the last look.
    pub(super) fn last_fact(&self) -> u64 {
        count(&self.now.status["last_fact"])
    }

    pub(super) fn wanted(&self) -> WantedRows {
        self.wanted.clone()
    }

    /// Takes the next look; after a failed one the last figures stay.
    pub(super) fn look(&mut self, found: Result<Snapshot, String>) {
        self.looked_at = Instant::now();
        match found {
            Ok(now) => {
                self.before = Some(std::mem::replace(&mut self.now, now));
                self.trouble = None;
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    pub(super) fn show_list(&mut self, found: Result<Vec<String>, String>) {
        let lines = match found {
            Ok(lines) if lines.is_empty() => vec!["nothing".to_owned()],
            Ok(lines) => lines,
            Err(why) => vec![format!("cannot be listed: {why}")],
        };
        self.page = Page::List {
            title: self.wanted.title(),
            lines,
            from: 0,
        };
    }

    pub(super) fn press(&mut self, key: TopKey) -> TopAction {
        let lines = frame::selectable(&self.now.status);
        match (key, &mut self.page) {
            (TopKey::Letter('q'), _) => return TopAction::Quit,
            (TopKey::Letter('r'), _) => return TopAction::NextInterval,
            (TopKey::Letter('?'), page @ Page::Overview) => *page = Page::Help,
            (TopKey::Letter('d'), _) => {
                self.wanted = WantedRows::DeadLetters;
                return TopAction::List;
            }
            (TopKey::Down | TopKey::Letter('j'), Page::Overview) => {
                self.selected = (self.selected + 1).min(lines.len().saturating_sub(1));
            }
            (TopKey::Up | TopKey::Letter('k'), Page::Overview) => {
                self.selected = self.selected.saturating_sub(1);
            }
            (TopKey::Enter, Page::Overview) => {
                if let Some(wanted) = lines.into_iter().nth(self.selected) {
                    self.wanted = wanted;
                    return TopAction::List;
                }
            }
            (TopKey::Down | TopKey::Letter('j'), Page::List { lines, from, .. }) => {
                *from = (*from + 1).min(lines.len().saturating_sub(1));
            }
            (TopKey::Up | TopKey::Letter('k'), Page::List { from, .. }) => {
                *from = from.saturating_sub(1);
            }
            (
                TopKey::Escape | TopKey::Letter(_) | TopKey::Enter,
                page @ (Page::Help | Page::List { .. }),
            ) => {
                *page = Page::Overview;
            }
            (TopKey::Up | TopKey::Down, Page::Help)
            | (TopKey::Escape | TopKey::Letter(_), Page::Overview) => {}
        }
        TopAction::Nothing
    }

    /// The frame for a screen of this size; no line is longer, and there are not more of them.
    pub(super) fn draw(&self, columns: usize, lines: usize, interval_s: u64) -> Vec<ScreenLine> {
        let mut drawn = match &self.page {
            Page::Overview => {
                let passed = self.before.as_ref().map(|before| frame::Passed {
                    status: &before.status,
                    time: self.now.at.saturating_duration_since(before.at),
                });
                frame::overview(&self.now.status, passed.as_ref(), self.selected, lines)
            }
            Page::Help => super::AFTER_HELP.lines().map(ScreenLine::plain).collect(),
            Page::List { title, lines, from } => {
                let title = ScreenLine::plain(format!("{title} (esc: back)"));
                let rows = lines.iter().skip(*from).map(ScreenLine::plain);
                std::iter::once(title).chain(rows).collect()
            }
        };
        drawn.truncate(lines.saturating_sub(1));
        let room = lines.saturating_sub(1).saturating_sub(drawn.len());
        drawn.extend(std::iter::repeat_n(ScreenLine::plain(""), room));
        let last = self.trouble.as_ref().map_or_else(
            || format!("every {interval_s} s   q quit  j/k select  enter list  d dead letters  r interval  ? help"),
            |why| format!("no answer: {why}"),
        );
        drawn.push(ScreenLine::plain(last));
        for line in &mut drawn {
            line.text = line.text.chars().take(columns).collect();
        }
        drawn
    }
}

/// The time between two looks is never shorter, so that a rate is finite.
pub(super) const PASSED_MIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn snapshot(published: u64) -> Snapshot {
        let counters = json!({"published": published, "claimed": 0, "fulfilled": 0, "failed": 0});
        Snapshot {
            at: Instant::now(),
            status: json!({
                "healthy": true, "version": "0.1.0", "reached_at": "http://127.0.0.1:7070",
                "faces": [{"face": "intent", "waiting": 12, "held": 3, "dead": 1, "oldest_waiting_s": 61.0,
                           "states": {"queued": 12}, "counters": counters}],
                "goals": [{"face": "intent", "namespace": "default", "goal": "a\u{1b}[2J", "counters": counters}],
                "nodes": [{"name": "one", "state": "serving", "leases": 3}],
                "parts": {"transactions": {"stuck": 1, "executing": 2}},
                "problems": [],
            }),
        }
    }

    fn shown(view: &TopView, columns: usize, lines: usize) -> String {
        let drawn = view.draw(columns, lines, 2);
        assert_eq!(drawn.len(), lines);
        assert!(
            drawn
                .iter()
                .all(|line| line.text.chars().count() <= columns)
        );
        let texts: Vec<String> = drawn.into_iter().map(|line| line.text).collect();
        texts.join("\n")
    }

    #[test]
    fn a_frame_fits_small_and_large_screens_and_shows_rates() {
        let mut view = TopView::new(snapshot(100));
        let mut next = snapshot(150);
        next.at = view.now.at + Duration::from_secs(2);
        view.look(Ok(next));
        let text = shown(&view, 80, 24);
        for part in [
            "intent",
            "12",
            "1m 1s",
            "25",
            "one",
            "stuck 1",
            "a\\u{1b}[2J",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        shown(&view, 200, 60);
        shown(&view, 20, 5);
        shown(&view, 1, 1);
    }

    #[test]
    fn keys_select_list_and_return() {
        let mut view = TopView::new(snapshot(0));
        assert_eq!(view.press(TopKey::Down), TopAction::Nothing);
        assert_eq!(view.press(TopKey::Enter), TopAction::List);
        let goal = Some("a\u{1b}[2J".to_owned());
        assert!(matches!(view.wanted(), WantedRows::Recent { goal: found, .. } if found == goal));
        view.show_list(Ok(vec!["row one".to_owned(), "row two".to_owned()]));
        assert!(shown(&view, 80, 24).contains("row one"));
        view.press(TopKey::Letter('j'));
        assert!(!shown(&view, 80, 24).contains("row one"));
        view.press(TopKey::Escape);
        assert!(shown(&view, 80, 24).contains("FACE"));
        assert_eq!(view.press(TopKey::Letter('d')), TopAction::List);
        assert_eq!(view.wanted(), WantedRows::DeadLetters);
        view.show_list(Err("refused".to_owned()));
        assert!(shown(&view, 80, 24).contains("refused"));
        view.press(TopKey::Escape);
        view.press(TopKey::Letter('?'));
        assert!(shown(&view, 80, 24).contains("Keys:"));
        assert_eq!(view.press(TopKey::Letter('r')), TopAction::NextInterval);
        assert_eq!(view.press(TopKey::Letter('q')), TopAction::Quit);
    }

    #[test]
    fn after_a_failed_look_the_last_figures_stay_and_the_reason_is_shown() {
        let mut view = TopView::new(snapshot(0));
        view.look(Err("connection refused".to_owned()));
        let text = shown(&view, 80, 24);
        assert!(text.contains("no answer: connection refused"), "{text}");
        assert!(text.contains("intent"), "{text}");
    }

    #[test]
    fn a_server_that_shows_nothing_is_drawn_as_well() {
        let view = TopView::new(Snapshot {
            status: Value::Null,
            at: Instant::now(),
        });
        shown(&view, 80, 24);
    }
}
