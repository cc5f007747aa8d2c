-- The ledger. Times are microseconds; states, causes and shelves are codes of the kernel's enums. Texts are compared by
-- bytes.

CREATE TABLE intents (
  seq bigint PRIMARY KEY,
  id bytea NOT NULL,
  profile smallint NOT NULL,
  state smallint NOT NULL,
  cause smallint NOT NULL,
  shelf smallint NOT NULL,
  wake_at bigint NOT NULL,
  -- Lanes are null while the row cannot be claimed, which keeps it out of the indexes of claims.
  own_lane bigint,
  own_goal_lane bigint,
  public_lane bigint,
  public_goal_lane bigint,
  priority integer NOT NULL,
  run_at bigint NOT NULL,
  attempts bigint NOT NULL,
  attempts_max bigint NOT NULL,
  backoff_us bigint NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  claimed_at bigint,
  lease_until bigint,
  settled_at bigint,
  last_fact bigint,
  -- The node that granted the lease.
  node bigint,
  namespace text COLLATE "C" NOT NULL,
  goal text COLLATE "C" NOT NULL,
  owner text COLLATE "C" NOT NULL,
  public boolean NOT NULL,
  target text COLLATE "C",
  capability text COLLATE "C",
  holder text COLLATE "C",
  token bytea,
  traceparent text COLLATE "C",
  last_error text COLLATE "C",
  result_kind smallint,
  result text COLLATE "C",
  payload text COLLATE "C" NOT NULL,
  parent bytea,
  series text COLLATE "C",
  sender text COLLATE "C"
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX intents_by_id ON intents (id);
CREATE INDEX intents_by_owner ON intents (owner, seq);
-- One range per kind of deadline.
CREATE INDEX intents_by_deadline ON intents (shelf, wake_at, seq);
-- The order of claims.
CREATE INDEX lane_own ON intents (own_lane, priority DESC, run_at, attempts, seq) WHERE own_lane IS NOT NULL;
CREATE INDEX lane_own_goal ON intents (own_goal_lane, priority DESC, run_at, attempts, seq) WHERE own_goal_lane IS NOT NULL;
CREATE INDEX lane_public ON intents (public_lane, priority DESC, run_at, attempts, seq) WHERE public_lane IS NOT NULL;
CREATE INDEX lane_public_goal ON intents (public_goal_lane, priority DESC, run_at, attempts, seq) WHERE public_goal_lane IS NOT NULL;
-- Dead letters.
CREATE INDEX intents_by_end ON intents (profile, settled_at, seq) WHERE state = 7;
-- Most intents have no parent and no series.
CREATE INDEX intents_by_parent ON intents (parent, seq) WHERE parent IS NOT NULL;
CREATE INDEX intents_by_series ON intents (series, state, settled_at, seq) WHERE series IS NOT NULL;
-- Messages have a sender; their owner is the recipient. Those that wait for their recipient are found at once.
CREATE INDEX messages_by_sender ON intents (sender, seq) WHERE sender IS NOT NULL;
CREATE INDEX messages_by_profile ON intents (profile, seq) WHERE profile IN (3, 4);
CREATE INDEX messages_delivered ON intents (owner, seq) WHERE profile = 4 AND state = 4;
-- Queued and running jobs.
CREATE INDEX jobs_by_work ON intents (capability, goal, seq) WHERE profile = 1 AND state IN (2, 3);

CREATE TABLE facts (
  seq bigint PRIMARY KEY,
  intent bigint NOT NULL,
  previous bigint,
  at bigint NOT NULL,
  attempt bigint NOT NULL,
  face smallint NOT NULL,
  verb smallint NOT NULL,
  from_state smallint,
  to_state smallint NOT NULL,
  cause smallint NOT NULL,
  owner text COLLATE "C" NOT NULL,
  actor text COLLATE "C",
  detail text COLLATE "C",
  -- Facts have engine time. If the wall clock differed by a second or more, this is the difference.
  wall_offset_us bigint
);

-- A stream of one owner skips the facts of the others.
CREATE INDEX facts_by_owner ON facts (owner, seq);

CREATE TABLE once (
  scope smallint NOT NULL,
  owner text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  fingerprint bytea NOT NULL,
  intent bytea,
  answer text COLLATE "C" NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (scope, owner, key)
);

CREATE INDEX once_by_end ON once (scope, until);

CREATE TABLE records (
  kind smallint NOT NULL,
  owner text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  value text COLLATE "C" NOT NULL,
  expires_at bigint,
  PRIMARY KEY (kind, owner, name)
);

CREATE INDEX records_by_end ON records (kind, expires_at) WHERE expires_at IS NOT NULL;

-- A counter is the sum of its shards, so that writers of one counter do not wait for each other.
CREATE TABLE counts (
  kind smallint NOT NULL,
  face smallint NOT NULL,
  name text COLLATE "C" NOT NULL,
  state smallint NOT NULL,
  shard smallint NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (kind, face, name, state, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Each transaction takes its numbers from its own blocks. The first block is used here, so that the last value of a sequence
-- is always one that was assigned.
CREATE SEQUENCE intent_blocks;
CREATE SEQUENCE fact_blocks;
SELECT nextval('intent_blocks'), nextval('fact_blocks');

-- Rows as writers send them, many in one array. A later version with more columns creates its own types. `admission` and
-- `fact` have the columns of an earlier version.
CREATE TYPE change AS (
  seq bigint,
  state smallint,
  cause smallint,
  shelf smallint,
  wake_at bigint,
  own_lane bigint,
  own_goal_lane bigint,
  public_lane bigint,
  public_goal_lane bigint,
  run_at bigint,
  attempts bigint,
  expires_at bigint,
  claimed_at bigint,
  lease_until bigint,
  settled_at bigint,
  last_fact bigint,
  node bigint,
  holder text,
  token bytea,
  last_error text,
  result_kind smallint,
  result text
);

CREATE TYPE tied_admission AS (
  seq bigint,
  state smallint,
  cause smallint,
  shelf smallint,
  wake_at bigint,
  own_lane bigint,
  own_goal_lane bigint,
  public_lane bigint,
  public_goal_lane bigint,
  run_at bigint,
  attempts bigint,
  expires_at bigint,
  claimed_at bigint,
  lease_until bigint,
  settled_at bigint,
  last_fact bigint,
  node bigint,
  holder text,
  token bytea,
  last_error text,
  result_kind smallint,
  result text,
  id bytea,
  profile smallint,
  priority integer,
  attempts_max bigint,
  backoff_us bigint,
  created_at bigint,
  namespace text,
  goal text,
  owner text,
  public boolean,
  payload text,
  target text,
  capability text,
  traceparent text,
  parent bytea,
  series text,
  sender text
);

CREATE TYPE dated_fact AS (
  seq bigint,
  intent bigint,
  previous bigint,
  at bigint,
  attempt bigint,
  face smallint,
  verb smallint,
  from_state smallint,
  to_state smallint,
  cause smallint,
  owner text,
  actor text,
  detail text,
  wall_offset_us bigint
);

CREATE TYPE used_key AS (
  scope smallint,
  owner text,
  key text,
  fingerprint bytea,
  intent bytea,
  answer text,
  until bigint
);

CREATE TYPE kept_record AS (
  kind smallint,
  owner text,
  name text,
  version bigint,
  value text,
  expires_at bigint
);

CREATE TYPE counted AS (
  kind smallint,
  face smallint,
  name text,
  state smallint,
  count bigint
);

CREATE FUNCTION job_id_text(id bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT encode(id, 'hex')::uuid::text
$$;

CREATE FUNCTION instant_text(us bigint) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT to_char(to_timestamp(us / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
    || '.' || lpad((us % 1000000)::text, 6, '0') || '000Z'
$$;

-- JSON may contain an escaped NUL, which PostgreSQL refuses.
CREATE FUNCTION readable(stored text) RETURNS json LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT replace(stored, '\u0000', '\ufffd')::json
$$;

-- Each fact of a plugin gets the next number of the ledger when it is written, and keeps it in a copy.
CREATE SEQUENCE plugin_fact_ids;
CREATE FUNCTION number_plugin_fact() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF new.value LIKE '{"id":%' THEN
    PERFORM setval('plugin_fact_ids', greatest((readable(new.value) ->> 'id')::bigint, last_value)) FROM plugin_fact_ids;
  ELSE
    new.value := '{"id":' || nextval('plugin_fact_ids') || ',' || substr(new.value, 2);
  END IF;
  RETURN new;
END $$;
CREATE TRIGGER plugin_facts_numbered BEFORE INSERT ON records FOR EACH ROW WHEN (new.kind = 8) EXECUTE FUNCTION number_plugin_fact();

-- The guard of permissions and transactions: whatever a program writes, they only go forward. The steps of one commit are one
-- write here, so executing may become settled at once; the facts show both steps. Every statement that changes intents
-- evaluates the condition of the trigger, so it is short, and the function knows the legal steps.
CREATE FUNCTION refuse_other_ways() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF old.state = new.state
    OR old.profile = 5 AND (old.state = 0 AND new.state IN (1, 7) OR old.state = 1 AND new.state = 7)
    OR old.profile = 6 AND (old.state = 3 AND new.state IN (4, 5, 6) OR old.state = 4 AND new.state IN (5, 6)
      OR old.state = 5 AND new.state = 6)
  THEN
    RETURN new;
  END IF;
  RAISE EXCEPTION 'a permission or a transaction only goes forward' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER transactions_go_forward BEFORE UPDATE OF state ON intents FOR EACH ROW
WHEN (old.profile IN (5, 6)) EXECUTE FUNCTION refuse_other_ways();

-- The record of a transaction goes forward as its row does. Only records of this kind are read as JSON.
CREATE FUNCTION may_become(kept text, next text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT kept = next OR kept = 'executing' AND next IN ('executed', 'settled', 'compensated')
    OR kept = 'executed' AND next IN ('settled', 'compensated') OR kept = 'settled' AND next = 'compensated'
$$;
CREATE FUNCTION refuse_way() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a permission or a transaction only goes forward' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER records_go_forward BEFORE UPDATE OF value ON records FOR EACH ROW
WHEN (CASE WHEN old.kind = 16
  THEN may_become(readable(old.value) ->> 'state', readable(new.value) ->> 'state') IS NOT TRUE ELSE false END)
EXECUTE FUNCTION refuse_way();

-- The views show jobs to SQL clients, with the names and columns of the tables of the automation protocol. They are read-only.

CREATE VIEW job_queue AS SELECT
  job_id_text(id) AS id,
  capability AS plugin,
  goal AS command,
  readable(payload) -> 'payload' AS payload,
  CASE state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS status,
  CASE state WHEN 2 THEN attempts + 1 ELSE greatest(attempts, 1) END AS attempt,
  attempts_max AS max_attempts,
  readable(payload) ->> 'submitted_by' AS submitted_by,
  readable(payload) ->> 'dedupe_key' AS dedupe_key,
  instant_text(created_at) AS created_at,
  instant_text(claimed_at) AS started_at,
  instant_text(settled_at) AS completed_at,
  CASE WHEN state = 2 AND attempts > 0 THEN instant_text(run_at) END AS next_retry_at,
  last_error,
  job_id_text(parent) AS parent_job_id,
  readable(payload) ->> 'source_event_id' AS source_event_id,
  readable(payload) ->> 'event_context_id' AS event_context_id
FROM intents WHERE profile = 1;

CREATE VIEW job_log AS SELECT
  name AS id,
  readable(value) ->> 'plugin' AS plugin,
  readable(value) ->> 'command' AS command,
  readable(value) ->> 'status' AS status,
  readable(value) ->> 'result' AS result,
  (readable(value) ->> 'attempt')::bigint AS attempt,
  readable(value) ->> 'submitted_by' AS submitted_by,
  readable(value) ->> 'created_at' AS created_at,
  readable(value) ->> 'completed_at' AS completed_at,
  readable(value) ->> 'last_error' AS last_error,
  readable(value) ->> 'stderr' AS stderr,
  readable(value) ->> 'parent_job_id' AS parent_job_id,
  readable(value) ->> 'source_event_id' AS source_event_id,
  readable(value) ->> 'job_id' AS job_id
FROM records WHERE kind = 6;

CREATE VIEW plugin_facts AS SELECT
  (readable(value) ->> 'id')::bigint AS id,
  (readable(value) ->> 'seq')::bigint AS seq,
  owner AS plugin_name,
  readable(value) ->> 'fact_type' AS fact_type,
  readable(value) ->> 'job_id' AS job_id,
  readable(value) ->> 'command' AS command,
  readable(value) -> 'fact' AS fact_json,
  readable(value) ->> 'created_at' AS created_at
FROM records WHERE kind = 8;

CREATE VIEW plugin_state AS SELECT
  name AS plugin_name,
  readable(value) -> 'state' AS state,
  readable(value) ->> 'updated_at' AS updated_at
FROM records WHERE kind = 7;

CREATE VIEW circuit_breakers AS SELECT
  owner AS plugin,
  name AS command,
  readable(value) ->> 'state' AS state,
  (readable(value) ->> 'failures')::bigint AS failure_count,
  readable(value) ->> 'opened_at' AS opened_at,
  readable(value) ->> 'last_failure_at' AS last_failure_at,
  readable(value) ->> 'last_job_id' AS last_job_id,
  readable(value) ->> 'updated_at' AS updated_at
FROM records WHERE kind = 9;

-- The owner is the plugin and its command, with a slash between them.
CREATE VIEW circuit_breaker_transitions AS SELECT
  owner || '/' || name AS id,
  substr(owner, 1, length(owner) - length((readable(value) ->> 'command')) - 1) AS plugin,
  (readable(value) ->> 'command') AS command,
  (readable(value) ->> 'from') AS from_state,
  (readable(value) ->> 'to') AS to_state,
  (readable(value) ->> 'failures')::bigint AS failure_count,
  (readable(value) ->> 'reason') AS reason,
  (readable(value) ->> 'job_id') AS job_id,
  (readable(value) ->> 'at') AS created_at
FROM records WHERE kind = 10;

CREATE VIEW event_context AS SELECT
  name AS id,
  (readable(value) ->> 'parent_id') AS parent_id,
  (readable(value) ->> 'pipeline_name') AS pipeline_name,
  (readable(value) ->> 'step_id') AS step_id,
  readable(value) -> 'accumulated' AS accumulated_json,
  (readable(value) ->> 'created_at') AS created_at
FROM records WHERE kind = 11;

CREATE VIEW schedule_entries AS SELECT
  owner AS plugin,
  name AS schedule_id,
  (readable(value) ->> 'command') AS command,
  (readable(value) ->> 'status') AS status,
  (readable(value) ->> 'reason') AS reason,
  (readable(value) ->> 'last_fired_at') AS last_fired_at,
  (readable(value) ->> 'last_success_job_id') AS last_success_job_id,
  (readable(value) ->> 'last_success_at') AS last_success_at,
  (readable(value) ->> 'next_run_at') AS next_run_at,
  (readable(value) ->> 'updated_at') AS updated_at
FROM records WHERE kind = 12;

-- Facts outlive their job: a record with the number of a removed job holds its id.
CREATE VIEW job_transitions AS SELECT
  f.seq AS id,
  coalesce(job_id_text(i.id), p.value::uuid::text) AS job_id,
  CASE f.from_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS from_status,
  CASE f.to_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS to_status,
  f.detail AS reason,
  instant_text(f.at) AS created_at
FROM facts f LEFT JOIN intents i ON i.seq = f.intent
  LEFT JOIN records p ON p.kind = 24 AND p.owner = '' AND p.name = lpad(f.intent::text, 20, '0')
WHERE f.face = 1 AND (i.seq IS NOT NULL OR p.name IS NOT NULL);

CREATE VIEW job_attempts AS SELECT
  f.seq AS id,
  coalesce(job_id_text(i.id), p.value::uuid::text) AS job_id,
  f.attempt,
  instant_text(f.at) AS created_at
FROM facts f LEFT JOIN intents i ON i.seq = f.intent
  LEFT JOIN records p ON p.kind = 24 AND p.owner = '' AND p.name = lpad(f.intent::text, 20, '0')
WHERE f.face = 1 AND (i.seq IS NOT NULL OR p.name IS NOT NULL) AND f.verb = 2;

-- Transactions of agents, with the name and columns of their protocol. The primary key of the records makes
-- (intent_id, idempotency_key) unique.
CREATE VIEW transactions AS SELECT
  owner AS intent_id,
  name AS idempotency_key,
  readable(value) ->> 'state' AS state,
  readable(value) -> 'body' AS body,
  readable(value) -> 'receipt' AS receipt,
  readable(value) ->> 'created_at' AS created_at,
  readable(value) ->> 'updated_at' AS updated_at
FROM records WHERE kind = 16;
