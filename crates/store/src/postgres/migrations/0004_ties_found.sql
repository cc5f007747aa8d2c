-- Half-made indexes of a start that was cut off go first.
DROP INDEX CONCURRENTLY IF EXISTS intents_by_parent;
CREATE INDEX CONCURRENTLY intents_by_parent ON intents (parent, seq) WHERE parent IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS intents_by_series;
CREATE INDEX CONCURRENTLY intents_by_series ON intents (series, state, settled_at, seq) WHERE series IS NOT NULL;
