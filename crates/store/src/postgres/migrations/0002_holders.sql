-- Which node holds how much, without a walk through all rows. A half-made index of a start that was cut off goes first.
DROP INDEX CONCURRENTLY IF EXISTS intents_by_node;
CREATE INDEX CONCURRENTLY intents_by_node ON intents (node) WHERE node IS NOT NULL;
