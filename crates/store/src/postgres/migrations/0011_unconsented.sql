-- Permissions that ended without consent go an hour after their end, those that ended before this was so among them: they lie
-- where deadlines are looked at. What somebody consented to stays.
UPDATE intents i SET shelf = 0, wake_at = expires_at + 3600000000
WHERE profile = 5 AND state = 7 AND shelf = 5 AND NOT EXISTS (
  SELECT 1 FROM records r WHERE r.kind = 15 AND r.owner = '' AND r.name = i.goal
  AND (r.value::json ->> 'authorized_at') IS NOT NULL);
