-- Answers to requests with an Idempotency-Key, and what was refused. Same number, names and columns as on the SQLite side.
-- Expand only: an older binary goes on working beside.

-- One row is a request that changes something and came with an Idempotency-Key; deleted after a day.
CREATE TABLE request_keys (
  tenant      text COLLATE "C" NOT NULL,
  -- Keyed hash of the caller and its key, and of what was asked.
  request_id  bytea NOT NULL,
  asked       bytea NOT NULL,
  -- The answer, sealed: it may show a secret. NULL while nobody knows it.
  answer      bytea,
  created_at  bigint NOT NULL,
  PRIMARY KEY (tenant, request_id)
);
CREATE INDEX request_keys_age ON request_keys (created_at);

-- One row is a refused message: ids, codes and places, and nothing of its content.
CREATE TABLE refusals (
  tenant      text COLLATE "C" NOT NULL,
  refusal_id  text COLLATE "C" NOT NULL,
  created_at  bigint NOT NULL,
  source      text COLLATE "C",
  target      text COLLATE "C",
  task_id     text COLLATE "C",
  handoff_id  text COLLATE "C",
  -- The reason, and where it was found.
  code        text COLLATE "C" NOT NULL,
  pointer     text COLLATE "C" NOT NULL,
  -- Everything that was found, as JSON: stage, code, pointer, rule.
  findings    text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, refusal_id)
);
CREATE INDEX refusals_time ON refusals (tenant, created_at, refusal_id);
CREATE INDEX refusals_source ON refusals (tenant, source, created_at, refusal_id);
CREATE INDEX refusals_code ON refusals (tenant, code, created_at, refusal_id);
CREATE INDEX refusals_pointer ON refusals (tenant, pointer, created_at, refusal_id);
