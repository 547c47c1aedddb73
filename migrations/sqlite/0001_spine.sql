-- The spine. Same number, name and columns as on the Postgres side.
-- Ids and canonical JSON are kept as the exact text or bytes that were hashed (never jsonb, which
-- reorders); time is microseconds since the epoch, bound from the broker's clock. Hot tables and
-- unique keys lead with the tenant, so that the data distributes.

CREATE TABLE tenants (
  tenant TEXT PRIMARY KEY,
  created_at INTEGER NOT NULL
) STRICT;

-- Facts about this database, set once (e.g. the check value of the master key).
CREATE TABLE facts (
  name TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT;

CREATE TABLE brokers (
  broker TEXT PRIMARY KEY,
  seen_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
  tenant TEXT NOT NULL,
  key_id TEXT NOT NULL,
  key_hash BLOB NOT NULL,
  role TEXT NOT NULL,
  agent_id TEXT,
  label TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (tenant, key_id)
) STRICT;
CREATE UNIQUE INDEX api_keys_hash ON api_keys (key_hash);

CREATE TABLE agents (
  tenant TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  doc TEXT NOT NULL,
  secrets TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, agent_id)
) STRICT;

CREATE TABLE tasks (
  tenant TEXT NOT NULL,
  task_id TEXT NOT NULL,
  status TEXT NOT NULL,
  holder TEXT NOT NULL,
  checkpoint_execution TEXT,
  checkpoint_seq INTEGER,
  fence INTEGER NOT NULL,
  handoffs INTEGER NOT NULL,
  undelivered INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  spent_nanos INTEGER NOT NULL,
  remaining_nanos INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, task_id)
) STRICT;
CREATE INDEX tasks_created ON tasks (tenant, created_at, task_id);

CREATE TABLE handoffs (
  tenant TEXT NOT NULL,
  handoff_id TEXT NOT NULL,
  task_id TEXT NOT NULL,
  parent_id TEXT,
  source TEXT NOT NULL,
  source_version TEXT NOT NULL,
  source_execution TEXT NOT NULL,
  target TEXT NOT NULL,
  target_type TEXT NOT NULL,
  target_version TEXT NOT NULL,
  mode TEXT NOT NULL,
  status TEXT NOT NULL,
  fencing_token INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  deadline_at INTEGER,
  spent_nanos INTEGER NOT NULL,
  remaining_nanos INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  idempotent INTEGER NOT NULL,
  checkpoint_execution TEXT,
  checkpoint_seq INTEGER,
  content_id TEXT,
  digest_salt BLOB NOT NULL,
  digest BLOB NOT NULL,
  reason text,
  traceparent TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  accepted_at INTEGER,
  ended_at INTEGER,
  PRIMARY KEY (tenant, handoff_id)
) STRICT;
CREATE INDEX handoffs_task ON handoffs (tenant, task_id);
CREATE INDEX handoffs_created ON handoffs (tenant, created_at, handoff_id);
CREATE INDEX handoffs_open ON handoffs (tenant, target) WHERE status IN ('PENDING', 'ACCEPTED');
CREATE INDEX handoffs_deadline ON handoffs (deadline_at)
  WHERE deadline_at IS NOT NULL AND status IN ('PENDING', 'ACCEPTED');

-- What still has to reach a receiver. Rows are deleted when settled; a claim moves `visible_at`.
CREATE TABLE outbox (
  tenant TEXT NOT NULL,
  handoff_id TEXT NOT NULL,
  task_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  target TEXT NOT NULL,
  mode TEXT NOT NULL,
  visible_at INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  claimed_by TEXT,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, handoff_id)
) STRICT;
CREATE INDEX outbox_receiver ON outbox (tenant, target, created_at);
CREATE INDEX outbox_task ON outbox (tenant, task_id, seq);

CREATE TABLE checkpoints (
  tenant TEXT NOT NULL,
  task_id TEXT NOT NULL,
  execution_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  agent_id TEXT NOT NULL,
  commitment BLOB NOT NULL,
  salt BLOB NOT NULL,
  codec TEXT NOT NULL,
  bytes BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, task_id, execution_id, seq)
) STRICT;

CREATE TABLE idempotency_keys (
  tenant TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  handoff_id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, agent_id, idempotency_key)
) STRICT;

CREATE TABLE dead_letters (
  tenant TEXT NOT NULL,
  handoff_id TEXT NOT NULL,
  task_id TEXT NOT NULL,
  source TEXT NOT NULL,
  target TEXT,
  reason TEXT NOT NULL,
  failures TEXT NOT NULL,
  status TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, handoff_id)
) STRICT;
CREATE INDEX dead_letters_created ON dead_letters (tenant, created_at, handoff_id);

-- The log. On Postgres it stands in a schema of its own; here the prefix says so.

CREATE TABLE audit_log_heads (
  tenant TEXT PRIMARY KEY,
  log_id TEXT NOT NULL,
  size INTEGER NOT NULL,
  hash BLOB NOT NULL,
  frontier BLOB
) STRICT;

CREATE TABLE audit_records (
  tenant TEXT NOT NULL,
  leaf_index INTEGER NOT NULL,
  record_hash BLOB NOT NULL,
  kind TEXT NOT NULL,
  task_id TEXT,
  handoff_id TEXT,
  content_id TEXT,
  recorded_at INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (tenant, leaf_index)
) STRICT;
CREATE INDEX records_task ON audit_records (tenant, task_id, leaf_index) WHERE task_id IS NOT NULL;
CREATE INDEX records_handoff ON audit_records (tenant, handoff_id)
  WHERE kind IN ('HANDOFF', 'DEAD_LETTERED', 'NO_OP');

CREATE TRIGGER audit_records_no_update BEFORE UPDATE ON audit_records
BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only: UPDATE refused');
END;
CREATE TRIGGER audit_records_no_delete BEFORE DELETE ON audit_records
BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only: DELETE refused');
END;
-- INSERT OR REPLACE deletes without firing the trigger above; this one refuses it.
CREATE TRIGGER audit_records_no_replace BEFORE INSERT ON audit_records
WHEN EXISTS (SELECT 1 FROM audit_records WHERE tenant = NEW.tenant AND leaf_index = NEW.leaf_index)
BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only: REPLACE refused');
END;

-- What records commit to, beside the log: can be erased without touching a record. An erased row
-- keeps its id and has neither salt nor bytes.
CREATE TABLE contents (
  tenant TEXT NOT NULL,
  content_id TEXT NOT NULL,
  salt BLOB,
  codec TEXT NOT NULL,
  bytes BLOB,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, content_id)
) STRICT;

-- Personal data apart from the message, indexed by data subject (seed 000 §12.3).
CREATE TABLE personal_data (
  tenant TEXT NOT NULL,
  leaf_index INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  handoff_id TEXT,
  subject_id TEXT NOT NULL,
  salt BLOB,
  codec TEXT NOT NULL,
  bytes BLOB,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, leaf_index, ordinal)
) STRICT;
CREATE INDEX personal_data_subject ON personal_data (tenant, subject_id);
CREATE INDEX personal_data_handoff ON personal_data (tenant, handoff_id) WHERE handoff_id IS NOT NULL;
