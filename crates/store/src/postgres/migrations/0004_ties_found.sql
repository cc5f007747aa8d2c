-- Half-made indexes of a start that was cut off go first.
DROP INDEX CONCURRENTLY IF EXISTS intents_by_parent;
CREATE INDEX CONCURRENTLY intents_by_parent ON intents (parent, seq) WHERE parent IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS intents_by_series;
CREATE INDEX CONCURRENTLY intents_by_series ON intents (series, state, settled_at, seq) WHERE series IS NOT NULL;
-- What waits or runs for a plugin's command.
DROP INDEX CONCURRENTLY IF EXISTS jobs_by_work;
CREATE INDEX CONCURRENTLY jobs_by_work ON intents (capability, goal, seq) WHERE profile = 1 AND state IN (2, 3);
