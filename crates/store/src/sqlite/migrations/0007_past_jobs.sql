-- Logs and changes of breakers are kept as long as the setting of today says, so they bear an end that is a hundred years away.
UPDATE records SET expires_at = unixepoch(substr(json_extract(value, CASE kind WHEN 6 THEN '$.completed_at' ELSE '$.at' END), 1, 19))
  * 1000000 + 3153600000000000 WHERE kind IN (6, 10);

-- Facts outlive their job: what is gone from the queue is known by a record under its number.
DROP VIEW job_transitions;
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

DROP VIEW job_attempts;
CREATE VIEW job_attempts AS SELECT
  f.seq AS id,
  substr(job,1,8)||'-'||substr(job,9,4)||'-'||substr(job,13,4)||'-'||substr(job,17,4)||'-'||substr(job,21,12) AS job_id,
  f.attempt,
  strftime('%Y-%m-%dT%H:%M:%S', f.at / 1000000, 'unixepoch') || printf('.%06d000Z', f.at % 1000000) AS created_at
FROM (SELECT *, coalesce((SELECT lower(hex(id)) FROM intents WHERE seq = facts.intent),
  (SELECT value FROM records WHERE kind = 24 AND owner = '' AND name = printf('%020d', facts.intent))) AS job FROM facts) f
WHERE f.face = 1 AND f.job IS NOT NULL AND f.verb = 2;

-- A plugin's fact gets the next number of the ledger when it is written, and keeps it, in a copy too.
CREATE TABLE plugin_fact_ids (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO plugin_fact_ids (id, last) SELECT 1, count(*) FROM records WHERE kind = 8;
UPDATE records SET value = '{"id":' || n.number || ',' || substr(value, 2) FROM (
  SELECT owner, name, row_number() OVER (ORDER BY json_extract(value, '$.created_at'), owner, name) AS number FROM records WHERE kind = 8
) n WHERE records.kind = 8 AND records.owner = n.owner AND records.name = n.name;
CREATE TRIGGER plugin_facts_numbered AFTER INSERT ON records WHEN new.kind = 8 AND new.value NOT LIKE '{"id":%' BEGIN
  UPDATE plugin_fact_ids SET last = last + 1;
  UPDATE records SET value = '{"id":' || (SELECT last FROM plugin_fact_ids) || ',' || substr(value, 2)
    WHERE kind = 8 AND owner = new.owner AND name = new.name;
END;
CREATE TRIGGER plugin_facts_copied AFTER INSERT ON records WHEN new.kind = 8 AND new.value LIKE '{"id":%' BEGIN
  UPDATE plugin_fact_ids SET last = max(last, json_extract(new.value, '$.id'));
END;
DROP VIEW plugin_facts;
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
