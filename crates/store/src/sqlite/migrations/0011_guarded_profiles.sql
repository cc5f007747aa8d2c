-- The guard names the profiles that it is for, so that rows of any later profile take the steps of their own table.
DROP TRIGGER transactions_go_forward;
CREATE TRIGGER transactions_go_forward BEFORE UPDATE OF state ON intents
WHEN old.profile IN (5, 6) AND old.state <> new.state AND NOT (
  old.profile = 5 AND (old.state = 0 AND new.state IN (1, 7) OR old.state = 1 AND new.state = 7)
  OR old.profile = 6 AND (old.state = 3 AND new.state IN (4, 6) OR old.state = 4 AND new.state IN (5, 6)
    OR old.state = 5 AND new.state = 6))
BEGIN SELECT RAISE(ROLLBACK, 'a permission or a transaction only goes forward'); END;
