-- A handoff whose message comes in pieces. Same number, names and columns as on the Postgres side. Expand only: an older
-- binary goes on working beside.

-- The stream as JSON: status, last number, bytes, deadline, reason; null where the message came whole.
ALTER TABLE handoffs ADD COLUMN stream TEXT;
-- When an open stream ends unless a chunk comes, microseconds; null once it has ended.
ALTER TABLE handoffs ADD COLUMN stream_due INTEGER;
CREATE INDEX handoffs_stream_due ON handoffs (stream_due) WHERE stream_due IS NOT NULL;

-- One row is one number of a stream: a chunk of its sender, or the broker's end of it, which has no content.
CREATE TABLE chunks (
  tenant      TEXT NOT NULL,
  handoff_id  TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  content_id  TEXT,
  commitment  BLOB,
  -- CLOSED or ABORTED where the stream ends here.
  ends        TEXT,
  -- Why it was aborted, a code.
  reason      TEXT,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant, handoff_id, seq)
) STRICT, WITHOUT ROWID;

-- How far a webhook receiver was sent the chunks of a stream; deleted once it was sent the end.
CREATE TABLE stream_lines (
  tenant      TEXT NOT NULL,
  handoff_id  TEXT NOT NULL,
  sent        INTEGER NOT NULL DEFAULT 0,
  next_at     INTEGER NOT NULL DEFAULT 0,
  failures    INTEGER NOT NULL DEFAULT 0,
  broker      TEXT,
  lease_until INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, handoff_id)
) STRICT, WITHOUT ROWID;
