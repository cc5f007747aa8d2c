-- What the upkeep of an outbox remembers. Files of earlier versions get it when they are opened.

-- The ids of retired rows that were removed: a request with such an id is still refused as retired.
CREATE TABLE IF NOT EXISTS outbox_retired (
  client_message_id TEXT PRIMARY KEY
) WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS outbox_retired_removed AFTER DELETE ON outbox WHEN old.status = 'aborted' BEGIN
  INSERT OR IGNORE INTO outbox_retired (client_message_id) VALUES (old.client_message_id);
END;

CREATE TRIGGER IF NOT EXISTS outbox_retired_used AFTER INSERT ON outbox BEGIN
  DELETE FROM outbox_retired WHERE client_message_id = new.client_message_id;
END;

-- One row: when the free space of the file was last given back, in Unix milliseconds.
CREATE TABLE IF NOT EXISTS outbox_upkeep (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  vacuumed_at INTEGER NOT NULL
);

-- The oldest row that waits is shown with the age of the queue.
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (enqueued_at) WHERE status = 'pending';
