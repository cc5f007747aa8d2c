-- What a transaction says of itself goes forward like its row. Only records of this kind are read as JSON.
CREATE FUNCTION may_become(kept text, next text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT kept = next OR kept = 'executing' AND next IN ('executed', 'settled', 'compensated')
    OR kept = 'executed' AND next IN ('settled', 'compensated') OR kept = 'settled' AND next = 'compensated'
$$;
CREATE TRIGGER records_go_forward BEFORE UPDATE OF value ON records FOR EACH ROW
WHEN (CASE WHEN old.kind = 16 THEN may_become(old.value::json ->> 'state', new.value::json ->> 'state') IS NOT TRUE ELSE false END)
EXECUTE FUNCTION refuse_way();
