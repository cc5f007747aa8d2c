//! Weights of requests, and notifications that arrive late.

use consign_kernel::command::{Audience, Claim};
use consign_kernel::profile::Face;

use super::*;

#[test]
fn a_claim_weighs_what_it_may_find_in_all_its_lanes() {
    let weighed = |max, worker_id: Option<&str>, capabilities| {
        let claim = Claim {
            face: Face::Intent,
            namespace: "default".to_owned(),
            goal: None,
            holder: "alice".to_owned(),
            audience: Audience::Caller,
            worker_id: worker_id.map(str::to_owned),
            capabilities: vec!["c".to_owned(); capabilities],
            max,
            lease_us: 1,
            grant: None,
        };
        assert_eq!(claim.lanes(), claim.probes().len());
        weight(&Request {
            gate: None,
            steps: vec![Command::Claim(claim)],
            on_refusal: consign_kernel::command::OnRefusal::Continue,
            seed: [0; 32],
        })
    };
    assert_eq!(weighed(1, None, 0), 2, "own lane and public lane");
    assert_eq!(weighed(0, None, 0), 2, "a claim takes at least one");
    assert_eq!(weighed(10, Some("w"), 4), 10 * 2 * 5 * 2);
    assert_eq!(weighed(u32::MAX, None, 0), 200);
    assert_eq!(weighed(100, Some("w"), 32), GROUP_WEIGHT_MAX);
}

pub(in crate::group) fn empty_request() -> (
    QueuedRequest,
    oneshot::Receiver<crate::group::delivery::ReplyBatch>,
) {
    let (reply_to, answered) = oneshot::channel();
    let request = Request {
        gate: None,
        steps: Vec::new(),
        on_refusal: consign_kernel::command::OnRefusal::Continue,
        seed: [0; 32],
    };
    (QueuedRequest::new(request, reply_to), answered)
}

#[test]
fn a_notification_that_arrives_late_is_harmless() {
    let shared = Arc::new(CommitShared::default());
    let (submitter, queue) = write_queue(8, &shared);
    let writer = std::thread::spawn({
        let queue = queue.clone();
        move || {
            let mut sizes = Vec::new();
            while let Some(group) = queue.gather() {
                sizes.push(group.len());
            }
            sizes
        }
    });
    let asleep = || {
        while queue.inner.state().asleep == 0 {
            std::thread::yield_now();
        }
    };
    asleep();
    // Decided and counted, and sent only after the writer has taken a group and waits again.
    let mut state = queue.inner.state();
    let late = state.call_writer();
    assert_eq!(late, Wakeup::One);
    assert_eq!(
        state.call_writer(),
        Wakeup::None,
        "the writer is called already"
    );
    let (queued, _answered) = empty_request();
    state.requests.push(queued);
    drop(state);
    queue.inner.writer.notify_one();
    while !queue.inner.state().requests.is_empty() {
        std::thread::yield_now();
    }
    asleep();
    queue.inner.release(queue.inner.state(), late);
    let (queued, _answered) = empty_request();
    submitter.enqueue(queued).unwrap();
    while !queue.inner.state().requests.is_empty() {
        std::thread::yield_now();
    }
    asleep();
    assert_eq!(queue.inner.state().called, 0);
    submitter.close();
    assert_eq!(writer.join().unwrap(), [1, 1]);
}
