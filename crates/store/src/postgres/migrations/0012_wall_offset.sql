-- Facts carry engine time. Where the wall clock differed from it by a second or more, a fact also says by how much, so that
-- timelines and receipts show the time of day.
ALTER TABLE facts ADD COLUMN wall_offset_us bigint;

-- Nodes of the version before go on writing the type `fact`.
CREATE TYPE dated_fact AS (
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
  wall_offset_us bigint
);
