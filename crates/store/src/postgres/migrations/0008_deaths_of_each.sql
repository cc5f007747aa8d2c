-- Dead letters of one protocol are found without walking past those of the others. A half-made index goes first.
-- `intents_by_death` stays for nodes of the version before; a later migration drops it.
DROP INDEX CONCURRENTLY IF EXISTS intents_by_end;
CREATE INDEX CONCURRENTLY intents_by_end ON intents (profile, settled_at, seq) WHERE state = 7;
