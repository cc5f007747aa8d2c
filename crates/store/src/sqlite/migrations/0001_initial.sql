-- The ledger. Times are microseconds; states, causes and shelves are codes of the kernel's enums.

CREATE TABLE intents (
  seq INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  profile INTEGER NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),
  cause INTEGER NOT NULL,
  shelf INTEGER NOT NULL CHECK (shelf BETWEEN 0 AND 5),
  wake_at INTEGER NOT NULL,
  -- Lanes are null while the row cannot be claimed, which keeps it out of the indexes of claims.
  own_lane INTEGER,
  own_goal_lane INTEGER,
  public_lane INTEGER,
  public_goal_lane INTEGER,
  priority INTEGER NOT NULL,
  run_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  attempts_max INTEGER NOT NULL,
  backoff_us INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  claimed_at INTEGER,
  lease_until INTEGER,
  settled_at INTEGER,
  namespace TEXT NOT NULL,
  goal TEXT NOT NULL,
  owner TEXT NOT NULL,
  public INTEGER NOT NULL,
  target TEXT,
  capability TEXT,
  holder TEXT,
  token BLOB,
  traceparent TEXT,
  last_error TEXT,
  result_kind INTEGER,
  result TEXT,
  payload TEXT NOT NULL,
  last_fact INTEGER,
  parent BLOB,
  series TEXT,
  sender TEXT
) STRICT;

CREATE UNIQUE INDEX intents_by_id ON intents (id);
CREATE INDEX intents_by_owner ON intents (owner, seq);
-- One range per kind of deadline.
CREATE INDEX intents_by_deadline ON intents (shelf, wake_at);
-- Dead letters of one profile, in the order of their end.
CREATE INDEX intents_by_death ON intents (profile, settled_at) WHERE state = 7;
-- The order of claims. SQLite appends the row id, which is the sequence of admission.
CREATE INDEX lane_own ON intents (own_lane, priority DESC, run_at, attempts) WHERE own_lane IS NOT NULL;
CREATE INDEX lane_own_goal ON intents (own_goal_lane, priority DESC, run_at, attempts) WHERE own_goal_lane IS NOT NULL;
CREATE INDEX lane_public ON intents (public_lane, priority DESC, run_at, attempts) WHERE public_lane IS NOT NULL;
CREATE INDEX lane_public_goal ON intents (public_goal_lane, priority DESC, run_at, attempts) WHERE public_goal_lane IS NOT NULL;
-- Most intents have no parent and no series.
CREATE INDEX intents_by_parent ON intents (parent, seq) WHERE parent IS NOT NULL;
CREATE INDEX intents_by_series ON intents (series, state, settled_at, seq) WHERE series IS NOT NULL;
-- Queued and running jobs.
-- Messages have a sender; their owner is the recipient. Those that wait for their recipient are found at once.
CREATE INDEX messages_by_sender ON intents (sender, seq) WHERE sender IS NOT NULL;
CREATE INDEX messages_by_profile ON intents (profile, seq) WHERE profile IN (3, 4);
CREATE INDEX messages_delivered ON intents (owner, seq) WHERE profile = 4 AND state = 4;
CREATE INDEX jobs_by_work ON intents (capability, goal, seq) WHERE profile = 1 AND state IN (2, 3);

CREATE TABLE facts (
  seq INTEGER PRIMARY KEY,
  intent INTEGER NOT NULL,
  face INTEGER NOT NULL,
  owner TEXT NOT NULL,
  at INTEGER NOT NULL,
  verb INTEGER NOT NULL,
  from_state INTEGER,
  to_state INTEGER NOT NULL,
  cause INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  actor TEXT,
  detail TEXT,
  -- The facts of an intent form a chain that begins at its last fact.
  previous INTEGER,
  -- Facts have engine time. If the wall clock differed by a second or more, this is the difference.
  wall_offset_us INTEGER
) STRICT;

-- The ranges of facts, one per commit, in which an owner has facts: a stream of one owner skips most of the others.
CREATE TABLE news (
  owner TEXT NOT NULL,
  last INTEGER NOT NULL,
  first INTEGER NOT NULL,
  PRIMARY KEY (owner, last)
) STRICT, WITHOUT ROWID;

CREATE TABLE once (
  scope INTEGER NOT NULL,
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  intent BLOB,
  answer TEXT NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (scope, owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX once_by_end ON once (scope, until);

-- Once-keys without an answer, in the order of their use. The writer has them in memory.
CREATE TABLE nonces (
  seq INTEGER PRIMARY KEY,
  scope INTEGER NOT NULL,
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  until INTEGER NOT NULL
) STRICT;

CREATE TABLE records (
  kind INTEGER NOT NULL,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  value TEXT NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (kind, owner, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX records_by_end ON records (kind, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE counts (
  kind INTEGER NOT NULL,
  face INTEGER NOT NULL,
  name TEXT NOT NULL,
  state INTEGER NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (kind, face, name, state)
) STRICT, WITHOUT ROWID;

-- One row: the time and the sequences at the last commit.
CREATE TABLE position (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last_time INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  last_fact INTEGER NOT NULL
) STRICT;

INSERT INTO position (id, last_time, last_seq, last_fact) VALUES (1, 0, 0, 0);

-- Each fact of a plugin gets the next number of the ledger when it is written, and keeps it in a copy.
CREATE TABLE plugin_fact_ids (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL) STRICT;

INSERT INTO plugin_fact_ids (id, last) VALUES (1, 0);

CREATE TRIGGER plugin_facts_numbered AFTER INSERT ON records WHEN new.kind = 8 AND new.value NOT LIKE '{"id":%' BEGIN
  UPDATE plugin_fact_ids SET last = last + 1;
  UPDATE records SET value = '{"id":' || (SELECT last FROM plugin_fact_ids) || ',' || substr(value, 2)
    WHERE kind = 8 AND owner = new.owner AND name = new.name;
END;
CREATE TRIGGER plugin_facts_copied AFTER INSERT ON records WHEN new.kind = 8 AND new.value LIKE '{"id":%' BEGIN
  UPDATE plugin_fact_ids SET last = max(last, json_extract(new.value, '$.id'));
END;

-- The guard of permissions and transactions: whatever a program writes, they only go forward. ROLLBACK instead of ABORT: for a
-- statement that a trigger may abort, SQLite keeps a copy of each page that the statement changes.
CREATE TRIGGER transactions_go_forward BEFORE UPDATE OF state ON intents
WHEN old.profile IN (5, 6) AND old.state <> new.state AND NOT (
  old.profile = 5 AND (old.state = 0 AND new.state IN (1, 7) OR old.state = 1 AND new.state = 7)
  OR old.profile = 6 AND (old.state = 3 AND new.state IN (4, 6) OR old.state = 4 AND new.state IN (5, 6)
    OR old.state = 5 AND new.state = 6))
BEGIN SELECT RAISE(ROLLBACK, 'a permission or a transaction only goes forward'); END;

-- The record of a transaction goes forward as its row does.
CREATE TRIGGER records_go_forward BEFORE UPDATE OF value ON records
WHEN old.kind = 16 AND json_extract(old.value, '$.state') IS NOT json_extract(new.value, '$.state') AND (
  json_extract(old.value, '$.state') = 'executing' AND json_extract(new.value, '$.state') IN ('executed', 'settled', 'compensated')
  OR json_extract(old.value, '$.state') = 'executed' AND json_extract(new.value, '$.state') IN ('settled', 'compensated')
  OR json_extract(old.value, '$.state') = 'settled' AND json_extract(new.value, '$.state') = 'compensated') IS NOT TRUE
BEGIN SELECT RAISE(ABORT, 'a permission or a transaction only goes forward'); END;

-- The views show jobs to SQL clients, with the names and columns of the tables of the automation protocol. They are read-only.

CREATE VIEW job_queue AS SELECT
  lower(substr(hex(id),1,8)||'-'||substr(hex(id),9,4)||'-'||substr(hex(id),13,4)||'-'||substr(hex(id),17,4)||'-'||substr(hex(id),21,12)) AS id,
  capability AS plugin,
  goal AS command,
  payload -> '$.payload' AS payload,
  CASE state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS status,
  CASE state WHEN 2 THEN attempts + 1 ELSE max(attempts, 1) END AS attempt,
  attempts_max AS max_attempts,
  json_extract(payload, '$.submitted_by') AS submitted_by,
  json_extract(payload, '$.dedupe_key') AS dedupe_key,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06d000Z', created_at % 1000000) AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', claimed_at / 1000000, 'unixepoch') || printf('.%06d000Z', claimed_at % 1000000) AS started_at,
  strftime('%Y-%m-%dT%H:%M:%S', settled_at / 1000000, 'unixepoch') || printf('.%06d000Z', settled_at % 1000000) AS completed_at,
  CASE WHEN state = 2 AND attempts > 0 THEN strftime('%Y-%m-%dT%H:%M:%S', run_at / 1000000, 'unixepoch') || printf('.%06d000Z', run_at % 1000000) END AS next_retry_at,
  last_error,
  CASE WHEN parent IS NOT NULL THEN lower(substr(hex(parent),1,8)||'-'||substr(hex(parent),9,4)||'-'||substr(hex(parent),13,4)||'-'||substr(hex(parent),17,4)||'-'||substr(hex(parent),21,12)) END AS parent_job_id,
  json_extract(payload, '$.source_event_id') AS source_event_id,
  json_extract(payload, '$.event_context_id') AS event_context_id
FROM intents WHERE profile = 1;

CREATE VIEW job_log AS SELECT
  name AS id,
  json_extract(value, '$.plugin') AS plugin,
  json_extract(value, '$.command') AS command,
  json_extract(value, '$.status') AS status,
  json_extract(value, '$.result') AS result,
  json_extract(value, '$.attempt') AS attempt,
  json_extract(value, '$.submitted_by') AS submitted_by,
  json_extract(value, '$.created_at') AS created_at,
  json_extract(value, '$.completed_at') AS completed_at,
  json_extract(value, '$.last_error') AS last_error,
  json_extract(value, '$.stderr') AS stderr,
  json_extract(value, '$.parent_job_id') AS parent_job_id,
  json_extract(value, '$.source_event_id') AS source_event_id,
  json_extract(value, '$.job_id') AS job_id
FROM records WHERE kind = 6;

CREATE VIEW plugin_facts AS SELECT
  json_extract(value, '$.id') AS id,
  json_extract(value, '$.seq') AS seq,
  owner AS plugin_name,
  json_extract(value, '$.fact_type') AS fact_type,
  json_extract(value, '$.job_id') AS job_id,
  json_extract(value, '$.command') AS command,
  value -> '$.fact' AS fact_json,
  json_extract(value, '$.created_at') AS created_at
FROM records WHERE kind = 8;

CREATE VIEW plugin_state AS SELECT
  name AS plugin_name,
  value -> '$.state' AS state,
  json_extract(value, '$.updated_at') AS updated_at
FROM records WHERE kind = 7;

CREATE VIEW circuit_breakers AS SELECT
  owner AS plugin,
  name AS command,
  json_extract(value, '$.state') AS state,
  json_extract(value, '$.failures') AS failure_count,
  json_extract(value, '$.opened_at') AS opened_at,
  json_extract(value, '$.last_failure_at') AS last_failure_at,
  json_extract(value, '$.last_job_id') AS last_job_id,
  json_extract(value, '$.updated_at') AS updated_at
FROM records WHERE kind = 9;

-- The owner is the plugin and its command, with a slash between them.
CREATE VIEW circuit_breaker_transitions AS SELECT
  owner || '/' || name AS id,
  substr(owner, 1, length(owner) - length(json_extract(value, '$.command')) - 1) AS plugin,
  json_extract(value, '$.command') AS command,
  json_extract(value, '$.from') AS from_state,
  json_extract(value, '$.to') AS to_state,
  json_extract(value, '$.failures') AS failure_count,
  json_extract(value, '$.reason') AS reason,
  json_extract(value, '$.job_id') AS job_id,
  json_extract(value, '$.at') AS created_at
FROM records WHERE kind = 10;

CREATE VIEW event_context AS SELECT
  name AS id,
  json_extract(value, '$.parent_id') AS parent_id,
  json_extract(value, '$.pipeline_name') AS pipeline_name,
  json_extract(value, '$.step_id') AS step_id,
  value -> '$.accumulated' AS accumulated_json,
  json_extract(value, '$.created_at') AS created_at
FROM records WHERE kind = 11;

CREATE VIEW schedule_entries AS SELECT
  owner AS plugin,
  name AS schedule_id,
  json_extract(value, '$.command') AS command,
  json_extract(value, '$.status') AS status,
  json_extract(value, '$.reason') AS reason,
  json_extract(value, '$.last_fired_at') AS last_fired_at,
  json_extract(value, '$.last_success_job_id') AS last_success_job_id,
  json_extract(value, '$.last_success_at') AS last_success_at,
  json_extract(value, '$.next_run_at') AS next_run_at,
  json_extract(value, '$.updated_at') AS updated_at
FROM records WHERE kind = 12;

-- Facts outlive their job: a record with the number of a removed job holds its id.
CREATE VIEW job_transitions AS SELECT
  f.seq AS id,
  substr(job,1,8)||'-'||substr(job,9,4)||'-'||substr(job,13,4)||'-'||substr(job,17,4)||'-'||substr(job,21,12) AS job_id,
  CASE f.from_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS from_status,
  CASE f.to_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS to_status,
  f.detail AS reason,
  strftime('%Y-%m-%dT%H:%M:%S', f.at / 1000000, 'unixepoch') || printf('.%06d000Z', f.at % 1000000) AS created_at
FROM (SELECT *, coalesce((SELECT lower(hex(id)) FROM intents WHERE seq = facts.intent),
  (SELECT value FROM records WHERE kind = 24 AND owner = '' AND name = printf('%020d', facts.intent))) AS job FROM facts) f
WHERE f.face = 1 AND f.job IS NOT NULL;

CREATE VIEW job_attempts AS SELECT
  f.seq AS id,
  substr(job,1,8)||'-'||substr(job,9,4)||'-'||substr(job,13,4)||'-'||substr(job,17,4)||'-'||substr(job,21,12) AS job_id,
  f.attempt,
  strftime('%Y-%m-%dT%H:%M:%S', f.at / 1000000, 'unixepoch') || printf('.%06d000Z', f.at % 1000000) AS created_at
FROM (SELECT *, coalesce((SELECT lower(hex(id)) FROM intents WHERE seq = facts.intent),
  (SELECT value FROM records WHERE kind = 24 AND owner = '' AND name = printf('%020d', facts.intent))) AS job FROM facts) f
WHERE f.face = 1 AND f.job IS NOT NULL AND f.verb = 2;

-- Transactions of agents, with the name and columns of their protocol. The primary key of the records makes
-- (intent_id, idempotency_key) unique.
CREATE VIEW transactions AS SELECT
  owner AS intent_id,
  name AS idempotency_key,
  json_extract(value, '$.state') AS state,
  value -> '$.body' AS body,
  value -> '$.receipt' AS receipt,
  json_extract(value, '$.created_at') AS created_at,
  json_extract(value, '$.updated_at') AS updated_at
FROM records WHERE kind = 16;
