-- The id that a worker gave itself: the last claimer of an intent, and the holder of the lease that a fact is about.

ALTER TABLE intents ADD COLUMN worker text COLLATE "C";
ALTER TABLE facts ADD COLUMN worker text COLLATE "C";

-- Rows as writers send them, with the new columns. `change`, `tied_admission` and `dated_fact` have the columns of the previous
-- version, whose nodes still send them.
CREATE TYPE worker_change AS (
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
  worker text,
  token bytea,
  last_error text,
  result_kind smallint,
  result text
);

CREATE TYPE worker_admission AS (
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
  worker text,
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

CREATE TYPE worker_fact AS (
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
  wall_offset_us bigint,
  worker text
);
