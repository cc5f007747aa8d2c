-- Histories become chains, what an owner can follow is noted once per commit, and nonces lie in the order of their use:
-- three kinds of index less to keep.

ALTER TABLE intents ADD COLUMN last_fact INTEGER;
ALTER TABLE facts ADD COLUMN previous INTEGER;

UPDATE facts SET previous = (SELECT max(p.seq) FROM facts p WHERE p.intent = facts.intent AND p.seq < facts.seq);
UPDATE intents SET last_fact = (SELECT max(seq) FROM facts WHERE intent = intents.seq);

-- In which stretch of facts, those of one commit, an owner has some: who follows its own reads past few of the others'.
CREATE TABLE news (
  owner TEXT NOT NULL,
  last INTEGER NOT NULL,
  first INTEGER NOT NULL,
  PRIMARY KEY (owner, last)
) STRICT, WITHOUT ROWID;

INSERT INTO news (owner, last, first) SELECT owner, seq, seq FROM facts;

DROP INDEX facts_by_intent;
DROP INDEX facts_by_owner;

-- Once-keys of which nothing else is remembered, in the order of their use. The writer has them in memory.
CREATE TABLE nonces (
  seq INTEGER PRIMARY KEY,
  scope INTEGER NOT NULL,
  owner TEXT NOT NULL,
  key TEXT NOT NULL,
  until INTEGER NOT NULL
) STRICT;

INSERT INTO nonces (scope, owner, key, until) SELECT scope, owner, key, until FROM once WHERE scope = 2 ORDER BY until;
DELETE FROM once WHERE scope = 2;
