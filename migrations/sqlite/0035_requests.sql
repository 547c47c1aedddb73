-- Answers to requests with an Idempotency-Key, and what was refused. Same number, names and columns as on the Postgres side.
-- Expand only: an older binary goes on working beside.

-- One row is a request that changes something and came with an Idempotency-Key; deleted after a day.
CREATE TABLE request_keys (
  tenant      TEXT NOT NULL,
  -- Keyed hash of the caller and its key, and of what was asked.
  request_id  BLOB NOT NULL,
  asked       BLOB NOT NULL,
  -- The answer, sealed: it may show a secret. NULL while nobody knows it.
  answer      BLOB,
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_keys_age ON request_keys (created_at);

-- One row is a refused message: ids, codes and places, and nothing of its content.
CREATE TABLE refusals (
  tenant      TEXT NOT NULL,
  refusal_id  TEXT NOT NULL,
  created_at  INTEGER NOT NULL,
  source      TEXT,
  target      TEXT,
  task_id     TEXT,
  handoff_id  TEXT,
  -- The reason, and where it was found.
  code        TEXT NOT NULL,
  pointer     TEXT NOT NULL,
  -- Everything that was found, as JSON: stage, code, pointer, rule.
  findings    TEXT NOT NULL,
  PRIMARY KEY (tenant, refusal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX refusals_time ON refusals (tenant, created_at, refusal_id);
CREATE INDEX refusals_source ON refusals (tenant, source, created_at, refusal_id);
CREATE INDEX refusals_code ON refusals (tenant, code, created_at, refusal_id);
CREATE INDEX refusals_pointer ON refusals (tenant, pointer, created_at, refusal_id);
