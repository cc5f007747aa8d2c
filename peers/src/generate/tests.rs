//! The generator against a queue in memory, an honest one and one that refuses a job.

use std::collections::VecDeque;

use super::*;

#[derive(Default)]
struct Memory {
    jobs: Rc<RefCell<VecDeque<u64>>>,
    count: Rc<Cell<u64>>,
    arrived: Rc<Notify>,
    /// This job is refused.
    refused: Option<u64>,
}

struct MemoryLink {
    jobs: Rc<RefCell<VecDeque<u64>>>,
    count: Rc<Cell<u64>>,
    arrived: Rc<Notify>,
    refused: Option<u64>,
}

impl Protocol for Memory {
    type Link = MemoryLink;

    async fn prepare(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn clear(&self) -> Result<(), Error> {
        self.jobs.borrow_mut().clear();
        Ok(())
    }

    async fn connect(&self, _role: Role) -> Result<MemoryLink, Error> {
        Ok(MemoryLink {
            jobs: Rc::clone(&self.jobs),
            count: Rc::clone(&self.count),
            arrived: Rc::clone(&self.arrived),
            refused: self.refused,
        })
    }
}

impl Link for MemoryLink {
    type Claimed = u64;

    async fn publish(&mut self, _body: &[u8]) -> Result<(), Error> {
        tokio::task::yield_now().await;
        increment(&self.count);
        let job = Some(self.count.get());
        if job == self.refused {
            return Err(Error::Answer("no".to_owned()));
        }
        self.jobs.borrow_mut().extend(job);
        self.arrived.notify_one();
        Ok(())
    }

    async fn claim(&mut self) -> Result<u64, Error> {
        loop {
            let job = self.jobs.borrow_mut().pop_front();
            match job {
                Some(job) => return Ok(job),
                None => self.arrived.notified().await,
            }
        }
    }

    async fn ack(&mut self, _claimed: u64) -> Result<(), Error> {
        tokio::task::yield_now().await;
        Ok(())
    }
}

fn measure(memory: &Memory, work: Work, clients: usize) -> RoundResult {
    let load = Load {
        work,
        clients,
        seconds: 1,
        serial: 1,
    };
    run(memory, &load).unwrap()
}

#[test]
fn what_is_published_is_acknowledged_in_either_shape() {
    for (work, clients) in [(Work::Pairs, 4), (Work::Pairs, 3), (Work::Cycle, 1)] {
        let done = measure(&Memory::default(), work, clients);
        assert_eq!(done.problems, [""; 0], "{work:?}");
        assert!(done.jobs > 100, "{work:?}: {}", done.jobs);
        assert_eq!(done.steps.len(), 3);
    }
}

#[test]
fn a_refusal_ends_the_round_and_is_reported() {
    let memory = Memory {
        refused: Some(5),
        ..Memory::default()
    };
    let started_at = Instant::now();
    let done = measure(&memory, Work::Pairs, 2);
    assert!(started_at.elapsed() < Duration::from_millis(900));
    assert!(done.problems.iter().any(|problem| problem == "no"));
}

#[test]
fn a_job_that_was_claimed_and_not_acknowledged_shows_in_the_sums() {
    let state = RoundState::new().unwrap();
    for (count, value) in [
        (&state.begun, 9),
        (&state.published, 9),
        (&state.claimed, 3),
        (&state.acked, 3),
    ] {
        count.set(value);
    }
    assert_eq!(state.problems(), [""; 0]);
    state.acked.set(2);
    assert_eq!(state.problems(), ["published 9, claimed 3, acknowledged 2"]);
}

#[test]
fn more_claims_than_jobs_show_in_the_sums() {
    let state = RoundState::new().unwrap();
    for (count, value) in [
        (&state.begun, 2),
        (&state.published, 2),
        (&state.claimed, 3),
        (&state.acked, 3),
    ] {
        count.set(value);
    }
    assert_eq!(state.problems().len(), 1);
}

#[test]
fn long_times_keep_three_digits() {
    let mut times = histogram().unwrap();
    for micros in [5, 12_340, 12_340, 98_700] {
        times.saturating_record(micros);
    }
    let step = step("publish", &times);
    assert!((step.p50_ms - 12.34).abs() < 0.02, "{step:?}");
    assert!((step.p99_ms.unwrap() - 98.7).abs() < 0.2, "{step:?}");
}
