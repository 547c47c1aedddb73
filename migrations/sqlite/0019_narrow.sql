-- Fewer pages a handoff. Rows that are found by their key alone stand in its index, and an index that its table's
-- key serves as well goes. Contents and checkpoints stay as they are: rows beyond a quarter of a page would overflow.

-- A task's checkpoints are found by the key, and sorted: they are few.
DROP INDEX checkpoints_created;

CREATE TABLE idempotency_keys_narrow (
  tenant TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  handoff_id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, agent_id, idempotency_key)
) STRICT, WITHOUT ROWID;
INSERT INTO idempotency_keys_narrow SELECT tenant, agent_id, idempotency_key, handoff_id, created_at
  FROM idempotency_keys;
DROP TABLE idempotency_keys;
ALTER TABLE idempotency_keys_narrow RENAME TO idempotency_keys;

CREATE TABLE task_edges_narrow (
  tenant TEXT NOT NULL,
  task_id TEXT NOT NULL,
  source TEXT NOT NULL,
  target TEXT NOT NULL,
  passages INTEGER NOT NULL,
  repeats INTEGER NOT NULL,
  completed_count INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  spent_nanos INTEGER NOT NULL,
  remaining_nanos INTEGER NOT NULL,
  topped_up_nanos INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, task_id, source, target)
) STRICT, WITHOUT ROWID;
INSERT INTO task_edges_narrow SELECT tenant, task_id, source, target, passages, repeats, completed_count, failures,
  spent_nanos, remaining_nanos, topped_up_nanos, updated_at FROM task_edges;
DROP TABLE task_edges;
ALTER TABLE task_edges_narrow RENAME TO task_edges;

CREATE TABLE outbox_narrow (
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
  -- 0 urgent, 1 high, 2 normal, 3 low.
  priority INTEGER NOT NULL DEFAULT 2,
  busy INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, handoff_id)
) STRICT, WITHOUT ROWID;
INSERT INTO outbox_narrow SELECT tenant, handoff_id, task_id, seq, target, mode, visible_at, attempt, claimed_by,
  created_at, priority, busy FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_narrow RENAME TO outbox;
CREATE INDEX outbox_order ON outbox (tenant, target, priority, created_at);
CREATE INDEX outbox_task ON outbox (tenant, task_id, seq);
