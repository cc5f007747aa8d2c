//! Draws the tables for people: one Mermaid state diagram per profile.
//!
//! The drawing is made from the tables alone, so the document that shows it cannot drift from them.

use std::fmt::Write as _;

use super::{Profile, ProfileId};
use crate::state::State;

/// A Mermaid `stateDiagram-v2` of one profile: canonical states under their wire words.
pub fn diagram(profile: &Profile) -> String {
    let mut drawing = String::from("stateDiagram-v2\n");
    let mut line = |text: String| writeln!(drawing, "    {text}").expect("a String takes all text");
    for state in entered(profile) {
        line(format!("state \"{}\" as {state}", words(profile, state)));
    }
    for state in profile.start {
        line(format!("[*] --> {state} : admit"));
    }
    for from in entered(profile) {
        for to in entered(profile) {
            let verbs = verbs(profile, from, to);
            if !verbs.is_empty() {
                line(format!("{from} --> {to} : {verbs}"));
            }
        }
    }
    for state in profile.terminal {
        line(format!("{state} --> [*]"));
    }
    drawing
}

/// All profiles as a section of Markdown.
pub fn diagrams() -> String {
    let mut section = String::from(
        "Drawn from the tables in the kernel. Each box shows the protocol's own word, each arrow \
         the verbs that take it; (operator) marks a step that an operator may take by hand.\n",
    );
    for id in ProfileId::ALL {
        let drawing = diagram(id.profile());
        write!(
            section,
            "\n### {}\n\n```mermaid\n{drawing}```\n",
            title(*id)
        )
        .expect("a String takes all text");
    }
    section
}

fn title(id: ProfileId) -> &'static str {
    match id {
        ProfileId::Intent => "Intent Protocol",
        ProfileId::Automation => "Automation job",
        ProfileId::MeshOutbox => "Mesh outbox",
        ProfileId::BeamDirectory => "Beam directory",
        ProfileId::BeamBus => "Beam message bus",
        ProfileId::AtpPermission => "ATP permission",
        ProfileId::AtpTransaction => "ATP transaction",
        ProfileId::MeshMessage => "Mesh message",
        ProfileId::MeshDelivery => "Mesh delivery",
        ProfileId::MeshQueue => "Mesh queue",
    }
}

/// The states a profile has words for, in the order of the lifecycle.
fn entered(profile: &Profile) -> impl Iterator<Item = State> + use<'_> {
    State::ALL
        .iter()
        .copied()
        .filter(|state| profile.words.iter().any(|(of, _, _)| of == state))
}

fn words(profile: &Profile, state: State) -> String {
    let mut words: Vec<_> = profile
        .words
        .iter()
        .filter(|(of, _, _)| *of == state)
        .map(|(_, _, word)| *word)
        .collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

fn verbs(profile: &Profile, from: State, to: State) -> String {
    let labels: Vec<_> = profile
        .rows
        .iter()
        .filter(|row| row.from == from && row.to.contains(&to))
        .map(|row| {
            if profile.operator.contains(&(from, row.on)) {
                format!("{} (operator)", row.on)
            } else {
                row.on.to_string()
            }
        })
        .collect();
    labels.join(", ")
}
