-- The ledger. Times are microseconds; states, causes and shelves are codes of the kernel's enums.

CREATE TABLE intents (
  seq INTEGER PRIMARY KEY,
  id BLOB NOT NULL,
  profile INTEGER NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7),
  cause INTEGER NOT NULL,
  shelf INTEGER NOT NULL CHECK (shelf BETWEEN 0 AND 5),
  wake_at INTEGER NOT NULL,
  -- Lanes are null while the row cannot be claimed, which keeps it out of the indexes that claims walk.
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
  payload TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX intents_by_id ON intents (id);
CREATE INDEX intents_by_owner ON intents (owner, seq);
-- One walk per kind of deadline.
CREATE INDEX intents_by_deadline ON intents (shelf, wake_at);
CREATE INDEX intents_by_death ON intents (settled_at) WHERE state = 7;
-- The order of claiming; the row id, which is the admission sequence, comes last by itself.
CREATE INDEX lane_own ON intents (own_lane, priority DESC, run_at, attempts) WHERE own_lane IS NOT NULL;
CREATE INDEX lane_own_goal ON intents (own_goal_lane, priority DESC, run_at, attempts) WHERE own_goal_lane IS NOT NULL;
CREATE INDEX lane_public ON intents (public_lane, priority DESC, run_at, attempts) WHERE public_lane IS NOT NULL;
CREATE INDEX lane_public_goal ON intents (public_goal_lane, priority DESC, run_at, attempts) WHERE public_goal_lane IS NOT NULL;

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
  detail TEXT
) STRICT;

CREATE INDEX facts_by_intent ON facts (intent);
-- Whoever follows its own intents reads past nobody else's.
CREATE INDEX facts_by_owner ON facts (owner);

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

-- One row: where time and the sequences stood at the last commit.
CREATE TABLE position (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  last_time INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  last_fact INTEGER NOT NULL
) STRICT;

INSERT INTO position (id, last_time, last_seq, last_fact) VALUES (1, 0, 0, 0);
