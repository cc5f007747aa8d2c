//! Everything about one job in one response: ancestors, baggage, transitions and attempts.

use consign_engine::Error;
use consign_kernel::fact::Fact;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;

use super::jobs::JobInfo;
use super::logs::{LogEntry, LogFilter};
use crate::runtime::job::{Job, job_id, parse_job_id};
use crate::runtime::lifecycle::Runtime;
use crate::runtime::records;

/// More ancestors and contexts than a job can have, so that a broken chain ends as well.
const HOPS_MAX: usize = 1_000;
/// How many attempts are listed.
const ATTEMPTS_MAX: usize = 200;

/// Everything about one job. For a pruned job only the log is available.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub job: JobInfo,
    /// From the first ancestor that is known to the job itself.
    pub lineage: Vec<Ancestor>,
    /// From the first context to that of the job.
    pub contexts: Vec<JobContext>,
    /// From oldest to newest.
    pub transitions: Vec<Fact>,
    /// From oldest to newest.
    pub attempts: Vec<LogEntry>,
}

#[derive(Clone, Debug)]
pub enum Ancestor {
    Known(Box<JobInfo>),
    /// Pruned together with its log: only its id is known.
    Pruned(String),
}

/// The baggage of a job or of an ancestor.
#[derive(Clone, Debug)]
pub struct JobContext {
    pub id: String,
    pub context: records::EventContext,
}

impl Runtime {
    pub async fn inspect(&self, id: IntentId) -> Result<Option<Inspection>, Error> {
        let Some(job) = self.job(id).await? else {
            return Ok(None);
        };
        let intent = self.observe_job(id).await?;
        let lineage = self.lineage(&job).await?;
        let contexts = self.contexts(intent.as_ref()).await?;
        let transitions = match &intent {
            Some(intent) => self.engine().timeline(intent.seq).await?,
            None => Vec::new(),
        };
        let of_job = LogFilter {
            job_id: Some(job_id(id)),
            limit: ATTEMPTS_MAX,
            include_result: true,
            ..LogFilter::default()
        };
        let mut attempts = self.job_logs(&of_job).await?.logs;
        attempts.reverse();
        Ok(Some(Inspection {
            job,
            lineage,
            contexts,
            transitions,
            attempts,
        }))
    }

    async fn lineage(&self, job: &JobInfo) -> Result<Vec<Ancestor>, Error> {
        let parent_of = |job: &JobInfo| job.parent_job_id.as_deref().and_then(parse_job_id);
        let mut parent = parent_of(job);
        let mut lineage = vec![known(job.clone())];
        while let Some(id) = parent
            && lineage.len() < HOPS_MAX
        {
            // The output of an ancestor is not needed, and may be large.
            let job = match self.observe_job(id).await? {
                Some(intent) => Some(JobInfo::of(&intent, None)),
                None => self.job(id).await?,
            };
            let Some(job) = job else {
                lineage.push(Ancestor::Pruned(job_id(id)));
                break;
            };
            parent = parent_of(&job);
            lineage.push(known(job));
        }
        lineage.reverse();
        Ok(lineage)
    }

    /// The baggage of the job, and what each earlier context added.
    async fn contexts(&self, intent: Option<&Intent>) -> Result<Vec<JobContext>, Error> {
        let job = intent.and_then(|intent| Job::read(intent).ok());
        let mut wanted = job.and_then(|job| job.event_context_id);
        let mut found: Vec<JobContext> = Vec::new();
        while let Some(id) = wanted.take()
            && found.len() < HOPS_MAX
        {
            let record = self.engine().record(records::context_key(&id)).await?;
            let context = record.and_then(|record| serde_json::from_str(&record.value).ok());
            let Some(context): Option<records::EventContext> = context else {
                break;
            };
            wanted.clone_from(&context.parent_id);
            found.push(JobContext { id, context });
        }
        found.reverse();
        Ok(found)
    }
}

fn known(job: JobInfo) -> Ancestor {
    Ancestor::Known(Box::new(JobInfo {
        result: None,
        ..job
    }))
}
