-- What a transaction says of itself goes forward like its row. Only records of this kind are read as JSON.
CREATE FUNCTION may_become(kept text, next text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT kept = next OR kept = 'executing' AND next IN ('executed', 'settled', 'compensated')
    OR kept = 'executed' AND next IN ('settled', 'compensated') OR kept = 'settled' AND next = 'compensated'
$$;
CREATE TRIGGER records_go_forward BEFORE UPDATE OF value ON records FOR EACH ROW
WHEN (CASE WHEN old.kind = 16
  THEN may_become(readable(old.value) ->> 'state', readable(new.value) ->> 'state') IS NOT TRUE ELSE false END)
EXECUTE FUNCTION refuse_way();

-- JSON may hold a character that no text here can.
CREATE OR REPLACE VIEW transactions AS SELECT
  owner AS intent_id,
  name AS idempotency_key,
  readable(value) ->> 'state' AS state,
  readable(value) -> 'body' AS body,
  readable(value) -> 'receipt' AS receipt,
  readable(value) ->> 'created_at' AS created_at,
  readable(value) ->> 'updated_at' AS updated_at
FROM records WHERE kind = 16;
