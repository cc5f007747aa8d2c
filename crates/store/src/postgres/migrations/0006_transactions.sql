-- Transactions of agents, for whoever asks the database itself: under the name and columns that their protocol gives them.
-- The records' primary key is what makes (intent_id, idempotency_key) unique.
CREATE VIEW transactions AS SELECT
  owner AS intent_id,
  name AS idempotency_key,
  value::json ->> 'state' AS state,
  value::json -> 'body' AS body,
  value::json -> 'receipt' AS receipt,
  value::json ->> 'created_at' AS created_at,
  value::json ->> 'updated_at' AS updated_at
FROM records WHERE kind = 16;

-- The last guard: whatever a program asks for, a permission and a transaction only go forward. The steps of one commit are
-- written as one here, so executing may become settled in one write; its history tells both steps.
CREATE FUNCTION refuse_way() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'a permission or a transaction only goes forward' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER transactions_go_forward BEFORE UPDATE OF state ON intents FOR EACH ROW
WHEN (old.profile >= 5 AND old.state <> new.state AND NOT (
  old.profile = 5 AND (old.state = 0 AND new.state IN (1, 7) OR old.state = 1 AND new.state = 7)
  OR old.profile = 6 AND (old.state = 3 AND new.state IN (4, 5, 6) OR old.state = 4 AND new.state IN (5, 6)
    OR old.state = 5 AND new.state = 6)))
EXECUTE FUNCTION refuse_way();
