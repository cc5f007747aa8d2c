-- The id that a worker gave itself: the last claimer of an intent, and the holder of the lease that a fact is about.

ALTER TABLE intents ADD COLUMN worker TEXT;
ALTER TABLE facts ADD COLUMN worker TEXT;
