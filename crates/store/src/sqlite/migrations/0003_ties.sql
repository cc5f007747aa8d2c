-- What ties an intent to others. Most have none, and cost nothing here.
ALTER TABLE intents ADD COLUMN parent BLOB;
ALTER TABLE intents ADD COLUMN series TEXT;
CREATE INDEX intents_by_parent ON intents (parent, seq) WHERE parent IS NOT NULL;
CREATE INDEX intents_by_series ON intents (series, state, settled_at, seq) WHERE series IS NOT NULL;
-- What waits or runs for a plugin's command.
CREATE INDEX jobs_by_work ON intents (capability, goal, seq) WHERE profile = 1 AND state IN (2, 3);
