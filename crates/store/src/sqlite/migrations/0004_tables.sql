-- Jobs and what is beside them, for whoever asks the database itself: under the names and columns that the automation
-- protocol gives its tables. To be read; the ledger is what is written.

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
  row_number() OVER (ORDER BY json_extract(value, '$.created_at'), owner, name) AS id,
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

CREATE VIEW job_transitions AS SELECT
  f.seq AS id,
  lower(substr(hex(i.id),1,8)||'-'||substr(hex(i.id),9,4)||'-'||substr(hex(i.id),13,4)||'-'||substr(hex(i.id),17,4)||'-'||substr(hex(i.id),21,12)) AS job_id,
  CASE f.from_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS from_status,
  CASE f.to_state WHEN 2 THEN 'queued' WHEN 3 THEN 'running' WHEN 5 THEN 'succeeded' WHEN 7 THEN 'dead'
    WHEN 6 THEN CASE WHEN f.cause IN (3, 5) THEN 'timed_out' ELSE 'failed' END END AS to_status,
  f.detail AS reason,
  strftime('%Y-%m-%dT%H:%M:%S', f.at / 1000000, 'unixepoch') || printf('.%06d000Z', f.at % 1000000) AS created_at
FROM facts f JOIN intents i ON i.seq = f.intent WHERE f.face = 1;

CREATE VIEW job_attempts AS SELECT
  f.seq AS id,
  lower(substr(hex(i.id),1,8)||'-'||substr(hex(i.id),9,4)||'-'||substr(hex(i.id),13,4)||'-'||substr(hex(i.id),17,4)||'-'||substr(hex(i.id),21,12)) AS job_id,
  f.attempt,
  strftime('%Y-%m-%dT%H:%M:%S', f.at / 1000000, 'unixepoch') || printf('.%06d000Z', f.at % 1000000) AS created_at
FROM facts f JOIN intents i ON i.seq = f.intent WHERE f.face = 1 AND f.verb = 2;
