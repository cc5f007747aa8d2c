-- Every statement that changes intents reads this trigger's condition anew, for which most rows are none of its business:
-- a short condition, and a function that knows the ways, cost a change of any other intent a seventh less.
CREATE FUNCTION refuse_other_ways() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF old.state = new.state
    OR old.profile = 5 AND (old.state = 0 AND new.state IN (1, 7) OR old.state = 1 AND new.state = 7)
    OR old.profile = 6 AND (old.state = 3 AND new.state IN (4, 5, 6) OR old.state = 4 AND new.state IN (5, 6)
      OR old.state = 5 AND new.state = 6)
  THEN
    RETURN new;
  END IF;
  RAISE EXCEPTION 'a permission or a transaction only goes forward' USING ERRCODE = 'check_violation';
END $$;
DROP TRIGGER transactions_go_forward ON intents;
CREATE TRIGGER transactions_go_forward BEFORE UPDATE OF state ON intents FOR EACH ROW
WHEN (old.profile >= 5) EXECUTE FUNCTION refuse_other_ways();
