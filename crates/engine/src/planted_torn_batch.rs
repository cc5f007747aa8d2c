//! A planted defect: the items of one batch are admitted in one commit each, not in one commit together.

use consign_kernel::command::{Admit, Answer, Command, Gate, OnRefusal, Request};
use consign_kernel::error::Refusal;

use crate::{Engine, Error};

impl Engine {
    pub(crate) async fn admit_one_per_commit(
        &self,
        gate: Option<Gate>,
        admit: &Admit,
    ) -> Result<Vec<Result<Answer, Refusal>>, Error> {
        let mut gate = gate;
        let mut all = Vec::new();
        for item in &admit.items {
            let one = Admit {
                items: vec![item.clone()],
                cap: admit.cap,
            };
            let request = Request {
                gate: gate.take(),
                steps: vec![Command::Admit(one)],
                on_refusal: OnRefusal::Continue,
                seed: self.inner.seeds.next(),
            };
            match self.inner.store.execute(request).await??.pop() {
                Some(Ok(Answer::Admitted(admitted))) => all.extend(admitted),
                other => return Ok(other.into_iter().collect()),
            }
        }
        Ok(vec![Ok(Answer::Admitted(all))])
    }
}
