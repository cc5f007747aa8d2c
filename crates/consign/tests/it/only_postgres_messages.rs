//! Messages that start pipelines, with several servers on one database.

use super::automation_beam::Site;

const MESSAGES: usize = 12;

#[test]
fn two_nodes_run_the_pipeline_of_each_message_once() {
    let first = Site::receiving();
    let second = first.beside();
    let ids: Vec<String> = (0..MESSAGES)
        .map(|number| {
            let site = [&first, &second][number % 2];
            site.tell_bob(&format!("message {number}"))
        })
        .collect();
    for id in &ids {
        second.until_status(id, "acked");
        let runs = first.runs_of(id) + second.runs_of(id);
        assert_eq!(runs, 1, "{id}: {}", first.message(id));
    }
}
