-- A handoff whose message comes in pieces. Same number, names and columns as on the SQLite side. Expand only: an older
-- binary goes on working beside.

-- The stream as JSON: status, last number, bytes, deadline, reason; null where the message came whole.
ALTER TABLE handoffs ADD COLUMN stream text;
-- When an open stream ends unless a chunk comes, microseconds; null once it has ended.
ALTER TABLE handoffs ADD COLUMN stream_due bigint;
CREATE INDEX handoffs_stream_due ON handoffs (stream_due) WHERE stream_due IS NOT NULL;

-- One row is one number of a stream: a chunk of its sender, or the broker's end of it, which has no content.
CREATE TABLE chunks (
  tenant      text COLLATE "C" NOT NULL,
  handoff_id  text COLLATE "C" NOT NULL,
  seq         bigint NOT NULL,
  content_id  text COLLATE "C",
  commitment  bytea,
  -- CLOSED or ABORTED where the stream ends here.
  ends        text,
  -- Why it was aborted, a code.
  reason      text,
  created_at  bigint NOT NULL,
  PRIMARY KEY (tenant, handoff_id, seq)
);

-- How far a webhook receiver was sent the chunks of a stream; deleted once it was sent the end.
CREATE TABLE stream_lines (
  tenant      text COLLATE "C" NOT NULL,
  handoff_id  text COLLATE "C" NOT NULL,
  sent        bigint NOT NULL DEFAULT 0,
  next_at     bigint NOT NULL DEFAULT 0,
  failures    integer NOT NULL DEFAULT 0,
  broker      text,
  lease_until bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, handoff_id)
);
