-- The mesh has a schema of its own, as its protocol names it. An owner of the database may have created it already.
DO $$ BEGIN IF to_regnamespace('mesh') IS NULL THEN CREATE SCHEMA mesh; END IF; END $$;

-- The ids that clients of a mesh have used, with the name and columns of the mesh protocol. These are the once-keys of its
-- messages: the rows are written by the ledger, each in the commit of its message. Mesh ids are opaque texts.
CREATE TABLE mesh.client_message_dedupe (
  mesh_id text COLLATE "C" NOT NULL,
  client_message_id text COLLATE "C" NOT NULL,
  broker_message_id uuid NOT NULL,
  request_fingerprint bytea NOT NULL,
  destination_kind text COLLATE "C" NOT NULL CHECK (destination_kind IN ('topic', 'dm', 'queue')),
  destination_ref text COLLATE "C" NOT NULL,
  first_seen_at timestamptz NOT NULL DEFAULT now(),
  -- NULL: never.
  expires_at timestamptz,
  -- Whether the message exists.
  history_available boolean NOT NULL DEFAULT TRUE,
  PRIMARY KEY (mesh_id, client_message_id)
);

CREATE INDEX client_message_dedupe_expires_idx ON mesh.client_message_dedupe (expires_at) WHERE expires_at IS NOT NULL;

-- A row of it as the writer sends it; times in microseconds.
CREATE TYPE accepted_message AS (
  mesh_id text,
  client_message_id text,
  broker_message_id bytea,
  request_fingerprint bytea,
  destination_kind text,
  destination_ref text,
  first_seen_at bigint,
  expires_at bigint,
  history_available boolean
);

-- The views show messages to SQL clients, with the names and columns of the tables of the mesh protocol.

CREATE VIEW mesh.topic_message AS SELECT
  encode(id, 'hex')::uuid AS id,
  namespace AS mesh_id,
  payload::json ->> 'topic_id' AS topic_id,
  sender AS sender_member_id,
  payload::json ->> 'sender_session_pubkey' AS sender_session_pubkey,
  payload::json ->> 'nonce' AS nonce,
  payload::json ->> 'ciphertext' AS ciphertext,
  (payload::json ->> 'body_version')::integer AS body_version,
  payload::json ->> 'reply_to_id' AS reply_to_id,
  'epoch'::timestamptz + created_at * interval '1 microsecond' AS created_at,
  capability AS client_message_id
FROM intents WHERE profile = 7 AND goal = 'topic';

-- A message to several recipients has several deliveries: the last acknowledgement and the last lease are shown.
CREATE VIEW mesh.message_queue AS SELECT
  encode(m.id, 'hex')::uuid AS id,
  m.namespace AS mesh_id,
  m.sender AS sender_member_id,
  m.payload::json ->> 'sender_session_pubkey' AS sender_session_pubkey,
  m.payload::json ->> 'target_spec' AS target_spec,
  m.payload::json ->> 'priority' AS priority,
  m.payload::json ->> 'nonce' AS nonce,
  m.payload::json ->> 'ciphertext' AS ciphertext,
  'epoch'::timestamptz + m.created_at * interval '1 microsecond' AS created_at,
  (SELECT 'epoch'::timestamptz + max(settled_at) * interval '1 microsecond' FROM intents d
    WHERE d.parent = m.id AND d.profile = 8 AND d.state = 5) AS delivered_at,
  CASE WHEN m.expires_at < 250000000000000000 THEN 'epoch'::timestamptz + m.expires_at * interval '1 microsecond' END AS expires_at,
  m.capability AS client_message_id,
  (SELECT request_fingerprint FROM mesh.client_message_dedupe c WHERE c.mesh_id = m.namespace
    AND c.client_message_id = m.capability AND uuid_send(c.broker_message_id) = m.id) AS request_fingerprint,
  (SELECT 'epoch'::timestamptz + max(claimed_at) * interval '1 microsecond' FROM intents d
    WHERE d.parent = m.id AND d.profile = 8 AND d.state = 3) AS claimed_at,
  (SELECT holder FROM intents d WHERE d.parent = m.id AND d.profile = 8 AND d.state = 3
    ORDER BY claimed_at DESC LIMIT 1) AS claim_id,
  (SELECT 'epoch'::timestamptz + max(lease_until) * interval '1 microsecond' FROM intents d
    WHERE d.parent = m.id AND d.profile = 8 AND d.state = 3) AS claim_expires_at
FROM intents m WHERE m.profile = 7 AND m.goal IN ('dm', 'queue');

CREATE VIEW mesh.message_history AS SELECT
  (value::json ->> 'seq')::bigint AS id,
  name::uuid AS broker_message_id,
  owner AS mesh_id,
  value::json ->> 'sender' AS sender_member_id,
  (value::json ->> 'seq')::bigint AS seq,
  'epoch'::timestamptz + (value::json ->> 'created_at')::bigint * interval '1 microsecond' AS created_at
FROM records WHERE kind = 41;

CREATE VIEW mesh.delivery_queue AS SELECT
  encode(parent, 'hex')::uuid AS broker_message_id,
  namespace AS mesh_id,
  owner AS recipient_member_id,
  target AS recipient_pubkey,
  CASE state WHEN 2 THEN 'queued' WHEN 3 THEN 'claimed' WHEN 5 THEN 'delivered' WHEN 7 THEN 'cancelled' END AS state,
  goal AS priority,
  CASE WHEN state = 3 THEN 'epoch'::timestamptz + claimed_at * interval '1 microsecond' END AS claimed_at,
  CASE WHEN state = 3 THEN holder END AS claim_id,
  CASE WHEN state = 3 THEN 'epoch'::timestamptz + lease_until * interval '1 microsecond' END AS claim_expires_at,
  'epoch'::timestamptz + created_at * interval '1 microsecond' AS created_at
FROM intents WHERE profile = 8;

CREATE VIEW mesh.mention_index AS SELECT
  encode(i.id, 'hex')::uuid AS broker_message_id,
  i.namespace AS mesh_id,
  m.value AS mentioned_member
FROM intents i, json_array_elements_text(CASE WHEN i.profile = 7 AND json_typeof(i.payload::json -> 'mentions') = 'array'
  THEN i.payload::json -> 'mentions' ELSE '[]'::json END) AS m (value) WHERE i.profile = 7;
