-- The ledger. Times are microseconds; states, causes and shelves are codes of the kernel's enums. Texts are compared byte
-- by byte, as everywhere else in Consign.

CREATE TABLE intents (
  seq bigint PRIMARY KEY,
  id bytea NOT NULL,
  profile smallint NOT NULL,
  state smallint NOT NULL,
  cause smallint NOT NULL,
  shelf smallint NOT NULL,
  wake_at bigint NOT NULL,
  -- Lanes are null while the row cannot be claimed, which keeps it out of the indexes that claims walk.
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
  -- Which node gave out the lease.
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
  payload text COLLATE "C" NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX intents_by_id ON intents (id);
CREATE INDEX intents_by_owner ON intents (owner, seq);
-- One walk per kind of deadline.
CREATE INDEX intents_by_deadline ON intents (shelf, wake_at, seq);
-- The order of claiming.
CREATE INDEX lane_own ON intents (own_lane, priority DESC, run_at, attempts, seq) WHERE own_lane IS NOT NULL;
CREATE INDEX lane_own_goal ON intents (own_goal_lane, priority DESC, run_at, attempts, seq) WHERE own_goal_lane IS NOT NULL;
CREATE INDEX lane_public ON intents (public_lane, priority DESC, run_at, attempts, seq) WHERE public_lane IS NOT NULL;
CREATE INDEX lane_public_goal ON intents (public_goal_lane, priority DESC, run_at, attempts, seq) WHERE public_goal_lane IS NOT NULL;

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
  detail text COLLATE "C"
);

-- Whoever follows its own intents reads past nobody else's.
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

-- A counter is the sum of its shards: writers that count the same do not wait for each other.
CREATE TABLE counts (
  kind smallint NOT NULL,
  face smallint NOT NULL,
  name text COLLATE "C" NOT NULL,
  state smallint NOT NULL,
  shard smallint NOT NULL,
  count bigint NOT NULL,
  PRIMARY KEY (kind, face, name, state, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Each transaction takes its numbers from blocks of its own. The first block is used up here, so that the last value
-- is always one that was given out.
CREATE SEQUENCE intent_blocks;
CREATE SEQUENCE fact_blocks;
SELECT nextval('intent_blocks'), nextval('fact_blocks');

-- Rows as writers send them, many in one array. A writer that knows more columns gets a type of its own.
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

CREATE TYPE admission AS (
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
  traceparent text
);

CREATE TYPE fact AS (
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
  detail text
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
