-- The outbox of a mesh daemon, with the name and columns of the mesh protocol. Times are Unix milliseconds. Triggers keep it
-- in step with the rows of the ledger, in the same commit; only the daemon's file has them.
CREATE TABLE outbox (
  id TEXT PRIMARY KEY,
  client_message_id TEXT NOT NULL UNIQUE,
  request_fingerprint BLOB NOT NULL,
  payload BLOB NOT NULL,
  enqueued_at INTEGER NOT NULL,
  attempts INTEGER DEFAULT 0,
  next_attempt_at INTEGER NOT NULL,
  status TEXT CHECK (status IN ('pending', 'inflight', 'done', 'dead', 'aborted')),
  last_error TEXT,
  delivered_at INTEGER,
  broker_message_id TEXT,
  aborted_at INTEGER,
  aborted_by TEXT,
  superseded_by TEXT,
  mesh TEXT,
  target_spec TEXT,
  nonce TEXT,
  ciphertext TEXT,
  priority TEXT,
  destination_kind TEXT,
  destination_ref TEXT,
  reply_to_id TEXT,
  meta TEXT,
  body_sha256 TEXT,
  envelope_version INTEGER,
  history_id TEXT
);
CREATE INDEX outbox_pending ON outbox (status, next_attempt_at);
CREATE INDEX outbox_aborted ON outbox (status, aborted_at) WHERE status = 'aborted';

-- The same rows as the ledger has them.
CREATE VIEW outbox_of_ledger AS SELECT
  i.seq AS seq,
  lower(substr(hex(i.id),1,8)||'-'||substr(hex(i.id),9,4)||'-'||substr(hex(i.id),13,4)||'-'||substr(hex(i.id),17,4)||'-'||substr(hex(i.id),21,12)) AS id,
  json_extract(i.payload, '$.client_message_id') AS client_message_id,
  unhex(json_extract(i.payload, '$.request_fingerprint')) AS request_fingerprint,
  coalesce(unhex(json_extract(i.payload, '$.payload')), x'') AS payload,
  i.created_at / 1000 AS enqueued_at,
  i.attempts AS attempts,
  i.run_at / 1000 AS next_attempt_at,
  CASE i.state WHEN 2 THEN 'pending' WHEN 3 THEN 'inflight' WHEN 5 THEN 'done'
    WHEN 7 THEN CASE WHEN i.cause IN (6, 7) THEN 'aborted' ELSE 'dead' END END AS status,
  i.last_error AS last_error,
  CASE WHEN i.state = 5 THEN i.settled_at / 1000 END AS delivered_at,
  json_extract(i.result, '$.broker_message_id') AS broker_message_id,
  CASE WHEN i.state = 7 AND i.cause IN (6, 7) THEN i.settled_at / 1000 END AS aborted_at,
  CASE WHEN i.state = 7 AND i.cause IN (6, 7) THEN 'operator' END AS aborted_by,
  (SELECT lower(substr(hex(n.id),1,8)||'-'||substr(hex(n.id),9,4)||'-'||substr(hex(n.id),13,4)||'-'||substr(hex(n.id),17,4)||'-'||substr(hex(n.id),21,12))
    FROM intents n WHERE n.parent = i.id ORDER BY n.seq LIMIT 1) AS superseded_by,
  json_extract(i.payload, '$.mesh') AS mesh,
  json_extract(i.payload, '$.target_spec') AS target_spec,
  json_extract(i.payload, '$.nonce') AS nonce,
  json_extract(i.payload, '$.ciphertext') AS ciphertext,
  json_extract(i.payload, '$.priority') AS priority,
  json_extract(i.payload, '$.destination_kind') AS destination_kind,
  json_extract(i.payload, '$.destination_ref') AS destination_ref,
  json_extract(i.payload, '$.reply_to_id') AS reply_to_id,
  json_extract(i.payload, '$.meta') AS meta,
  json_extract(i.payload, '$.body_sha256') AS body_sha256,
  json_extract(i.payload, '$.envelope_version') AS envelope_version,
  json_extract(i.result, '$.history_id') AS history_id
FROM intents i WHERE i.profile = 2;

CREATE TRIGGER outbox_added AFTER INSERT ON intents WHEN new.profile = 2 BEGIN
  INSERT INTO outbox SELECT id, client_message_id, request_fingerprint, payload, enqueued_at, attempts, next_attempt_at, status,
    last_error, delivered_at, broker_message_id, aborted_at, aborted_by, superseded_by, mesh, target_spec, nonce, ciphertext,
    priority, destination_kind, destination_ref, reply_to_id, meta, body_sha256, envelope_version, history_id
    FROM outbox_of_ledger WHERE seq = new.seq;
  UPDATE outbox SET superseded_by = (SELECT superseded_by FROM outbox_of_ledger v
    WHERE v.seq = (SELECT seq FROM intents WHERE id = new.parent))
    WHERE new.parent IS NOT NULL AND id = (SELECT v.id FROM outbox_of_ledger v
    WHERE v.seq = (SELECT seq FROM intents WHERE id = new.parent));
END;

CREATE TRIGGER outbox_changed AFTER UPDATE ON intents WHEN new.profile = 2 BEGIN
  UPDATE outbox SET (attempts, next_attempt_at, status, last_error, delivered_at, broker_message_id, aborted_at, aborted_by,
    superseded_by, history_id) = (SELECT attempts, next_attempt_at, status, last_error, delivered_at, broker_message_id,
    aborted_at, aborted_by, superseded_by, history_id FROM outbox_of_ledger WHERE seq = new.seq)
  WHERE id = (SELECT id FROM outbox_of_ledger WHERE seq = new.seq);
END;

CREATE TRIGGER outbox_removed AFTER DELETE ON intents WHEN old.profile = 2 BEGIN
  DELETE FROM outbox WHERE id = lower(substr(hex(old.id),1,8)||'-'||substr(hex(old.id),9,4)||'-'||substr(hex(old.id),13,4)||'-'||substr(hex(old.id),17,4)||'-'||substr(hex(old.id),21,12));
END;
