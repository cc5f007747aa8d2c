-- Dead letters, newest first, without a walk through all rows. A half-made index of a start that was cut off goes first.
DROP INDEX CONCURRENTLY IF EXISTS intents_by_death;
CREATE INDEX CONCURRENTLY intents_by_death ON intents (settled_at, seq) WHERE state = 7;
