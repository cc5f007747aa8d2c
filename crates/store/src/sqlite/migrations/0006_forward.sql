-- Dead letters of one protocol are found without walking past those of the others.
DROP INDEX intents_by_death;
CREATE INDEX intents_by_death ON intents (profile, settled_at) WHERE state = 7;

-- What a transaction says of itself goes forward like its row.
CREATE TRIGGER records_go_forward BEFORE UPDATE OF value ON records
WHEN old.kind = 16 AND json_extract(old.value, '$.state') IS NOT json_extract(new.value, '$.state') AND (
  json_extract(old.value, '$.state') = 'executing' AND json_extract(new.value, '$.state') IN ('executed', 'settled', 'compensated')
  OR json_extract(old.value, '$.state') = 'executed' AND json_extract(new.value, '$.state') IN ('settled', 'compensated')
  OR json_extract(old.value, '$.state') = 'settled' AND json_extract(new.value, '$.state') = 'compensated') IS NOT TRUE
BEGIN SELECT RAISE(ABORT, 'a permission or a transaction only goes forward'); END;
