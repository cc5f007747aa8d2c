-- Logs and changes of breakers are kept as long as the setting of today says, so they bear an end that is a hundred years away.
UPDATE records SET expires_at = 3153600000000000 + (extract(epoch FROM
  (readable(value) ->> CASE kind WHEN 6 THEN 'completed_at' ELSE 'at' END)::timestamptz) * 1000000)::bigint WHERE kind IN (6, 10);

-- Facts outlive their job: what is gone from the queue is known by a record under its number.
CREATE OR REPLACE VIEW job_transitions AS SELECT
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

CREATE OR REPLACE VIEW job_attempts AS SELECT
  f.seq AS id,
  coalesce(job_id_text(i.id), p.value::uuid::text) AS job_id,
  f.attempt,
  instant_text(f.at) AS created_at
FROM facts f LEFT JOIN intents i ON i.seq = f.intent
  LEFT JOIN records p ON p.kind = 24 AND p.owner = '' AND p.name = lpad(f.intent::text, 20, '0')
WHERE f.face = 1 AND (i.seq IS NOT NULL OR p.name IS NOT NULL) AND f.verb = 2;

-- A plugin's fact gets the next number of the ledger when it is written, and keeps it, in a copy too.
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
UPDATE records SET value = '{"id":' || n.number || ',' || substr(value, 2) FROM (
  SELECT owner, name, row_number() OVER (ORDER BY readable(value) ->> 'created_at', owner, name) AS number FROM records WHERE kind = 8
) n WHERE records.kind = 8 AND records.owner = n.owner AND records.name = n.name;
SELECT setval('plugin_fact_ids', count(*)) FROM records WHERE kind = 8 HAVING count(*) > 0;
CREATE TRIGGER plugin_facts_numbered BEFORE INSERT ON records FOR EACH ROW WHEN (new.kind = 8) EXECUTE FUNCTION number_plugin_fact();
CREATE OR REPLACE VIEW plugin_facts AS SELECT
  (readable(value) ->> 'id')::bigint AS id,
  (readable(value) ->> 'seq')::bigint AS seq,
  owner AS plugin_name,
  readable(value) ->> 'fact_type' AS fact_type,
  readable(value) ->> 'job_id' AS job_id,
  readable(value) ->> 'command' AS command,
  readable(value) -> 'fact' AS fact_json,
  readable(value) ->> 'created_at' AS created_at
FROM records WHERE kind = 8;
