-- The ids that clients of a mesh have used, with the name and columns of the mesh protocol. These are the once-keys of its
-- messages: the rows are written by the ledger, each in the commit of its message. Other programs may read them at any time,
-- and edit them while no server runs. Times are texts that SQLite's functions read; ids are hyphenated UUIDs in lower case.
CREATE TABLE client_message_dedupe (
  mesh_id TEXT NOT NULL,
  client_message_id TEXT NOT NULL,
  broker_message_id TEXT NOT NULL,
  request_fingerprint BLOB NOT NULL,
  destination_kind TEXT NOT NULL CHECK (destination_kind IN ('topic', 'dm', 'queue')),
  destination_ref TEXT NOT NULL,
  first_seen_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  -- NULL: never.
  expires_at TEXT,
  -- Whether the message exists.
  history_available INTEGER NOT NULL DEFAULT TRUE CHECK (history_available IN (FALSE, TRUE)),
  PRIMARY KEY (mesh_id, client_message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX client_message_dedupe_expires_idx ON client_message_dedupe (expires_at) WHERE expires_at IS NOT NULL;

-- The views show messages to SQL clients, with the names and columns of the tables of the mesh protocol. They are read-only.

CREATE VIEW topic_message AS SELECT
  lower(substr(hex(id),1,8)||'-'||substr(hex(id),9,4)||'-'||substr(hex(id),13,4)||'-'||substr(hex(id),17,4)||'-'||substr(hex(id),21,12)) AS id,
  namespace AS mesh_id,
  json_extract(payload, '$.topic_id') AS topic_id,
  sender AS sender_member_id,
  json_extract(payload, '$.sender_session_pubkey') AS sender_session_pubkey,
  json_extract(payload, '$.nonce') AS nonce,
  json_extract(payload, '$.ciphertext') AS ciphertext,
  json_extract(payload, '$.body_version') AS body_version,
  json_extract(payload, '$.reply_to_id') AS reply_to_id,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at,
  capability AS client_message_id
FROM intents WHERE profile = 7 AND goal = 'topic';

-- A message to several recipients has several deliveries: the last acknowledgement and the last lease are shown.
CREATE VIEW message_queue AS SELECT
  m.uuid AS id,
  m.namespace AS mesh_id,
  m.sender AS sender_member_id,
  json_extract(m.payload, '$.sender_session_pubkey') AS sender_session_pubkey,
  json_extract(m.payload, '$.target_spec') AS target_spec,
  json_extract(m.payload, '$.priority') AS priority,
  json_extract(m.payload, '$.nonce') AS nonce,
  json_extract(m.payload, '$.ciphertext') AS ciphertext,
  strftime('%Y-%m-%dT%H:%M:%S', m.created_at / 1000000, 'unixepoch') || printf('.%06dZ', m.created_at % 1000000) AS created_at,
  (SELECT strftime('%Y-%m-%dT%H:%M:%S', max(settled_at) / 1000000, 'unixepoch') || printf('.%06dZ', max(settled_at) % 1000000)
    FROM intents WHERE parent = m.id AND profile = 8 AND state = 5) AS delivered_at,
  strftime('%Y-%m-%dT%H:%M:%S', m.expires_at / 1000000, 'unixepoch') || printf('.%06dZ', m.expires_at % 1000000) AS expires_at,
  m.capability AS client_message_id,
  (SELECT request_fingerprint FROM client_message_dedupe
    WHERE mesh_id = m.namespace AND client_message_id = m.capability AND broker_message_id = m.uuid) AS request_fingerprint,
  (SELECT strftime('%Y-%m-%dT%H:%M:%S', max(claimed_at) / 1000000, 'unixepoch') || printf('.%06dZ', max(claimed_at) % 1000000)
    FROM intents WHERE parent = m.id AND profile = 8 AND state = 3) AS claimed_at,
  (SELECT holder FROM intents WHERE parent = m.id AND profile = 8 AND state = 3 ORDER BY claimed_at DESC LIMIT 1) AS claim_id,
  (SELECT strftime('%Y-%m-%dT%H:%M:%S', max(lease_until) / 1000000, 'unixepoch') || printf('.%06dZ', max(lease_until) % 1000000)
    FROM intents WHERE parent = m.id AND profile = 8 AND state = 3) AS claim_expires_at
FROM (SELECT *, lower(substr(hex(id),1,8)||'-'||substr(hex(id),9,4)||'-'||substr(hex(id),13,4)||'-'||substr(hex(id),17,4)||'-'||substr(hex(id),21,12)) AS uuid
  FROM intents WHERE profile = 7 AND goal IN ('dm', 'queue')) m;

CREATE VIEW message_history AS SELECT
  json_extract(value, '$.seq') AS id,
  substr(name,1,8)||'-'||substr(name,9,4)||'-'||substr(name,13,4)||'-'||substr(name,17,4)||'-'||substr(name,21,12) AS broker_message_id,
  owner AS mesh_id,
  json_extract(value, '$.sender') AS sender_member_id,
  json_extract(value, '$.seq') AS seq,
  strftime('%Y-%m-%dT%H:%M:%S', json_extract(value, '$.created_at') / 1000000, 'unixepoch')
    || printf('.%06dZ', json_extract(value, '$.created_at') % 1000000) AS created_at
FROM records WHERE kind = 41;

CREATE VIEW delivery_queue AS SELECT
  lower(substr(hex(parent),1,8)||'-'||substr(hex(parent),9,4)||'-'||substr(hex(parent),13,4)||'-'||substr(hex(parent),17,4)||'-'||substr(hex(parent),21,12)) AS broker_message_id,
  namespace AS mesh_id,
  owner AS recipient_member_id,
  target AS recipient_pubkey,
  CASE state WHEN 2 THEN 'queued' WHEN 3 THEN 'claimed' WHEN 5 THEN 'delivered' WHEN 7 THEN 'cancelled' END AS state,
  goal AS priority,
  CASE WHEN state = 3 THEN strftime('%Y-%m-%dT%H:%M:%S', claimed_at / 1000000, 'unixepoch') || printf('.%06dZ', claimed_at % 1000000) END AS claimed_at,
  CASE WHEN state = 3 THEN holder END AS claim_id,
  CASE WHEN state = 3 THEN strftime('%Y-%m-%dT%H:%M:%S', lease_until / 1000000, 'unixepoch') || printf('.%06dZ', lease_until % 1000000) END AS claim_expires_at,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) AS created_at
FROM intents WHERE profile = 8;

CREATE VIEW mention_index AS SELECT
  lower(substr(hex(i.id),1,8)||'-'||substr(hex(i.id),9,4)||'-'||substr(hex(i.id),13,4)||'-'||substr(hex(i.id),17,4)||'-'||substr(hex(i.id),21,12)) AS broker_message_id,
  i.namespace AS mesh_id,
  m.value AS mentioned_member
FROM intents i, json_each(i.payload, '$.mentions') m WHERE i.profile = 7;
