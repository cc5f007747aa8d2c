-- Jobs and what is beside them, for whoever asks the database itself: under the names and columns that the automation
-- protocol gives its tables. To be read; the ledger is what is written.

CREATE FUNCTION job_id_text(id bytea) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT encode(id, 'hex')::uuid::text
$$;

CREATE FUNCTION instant_text(us bigint) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT to_char(to_timestamp(us / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
    || '.' || lpad((us % 1000000)::text, 6, '0') || '000Z'
$$;

-- JSON may hold a character that no text here can, and would then be refused as a whole.
CREATE FUNCTION readable(stored text) RETURNS json LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT replace(stored, '\u0000', '\ufffd')::json
$$;

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
  row_number() OVER (ORDER BY readable(value) ->> 'created_at', owner, name) AS id,
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

CREATE VIEW job_transitions AS SELECT
  f.seq AS id,
  job_id_text(i.id) AS job_id,
  CASE f.from_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS from_status,
  CASE f.to_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS to_status,
  f.detail AS reason,
  instant_text(f.at) AS created_at
FROM facts f JOIN intents i ON i.seq = f.intent WHERE f.face = 1;

CREATE VIEW job_attempts AS SELECT
  f.seq AS id,
  job_id_text(i.id) AS job_id,
  f.attempt,
  instant_text(f.at) AS created_at
FROM facts f JOIN intents i ON i.seq = f.intent WHERE f.face = 1 AND f.verb = 2;
