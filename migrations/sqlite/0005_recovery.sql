-- Recovery: what ruled a handoff, what its edges have seen, what people are asked. Expand only: an
-- older binary goes on working beside.

-- `policy`: the contract's terms and the fallbacks as they were at submission, JSON. `commitment` and
-- `checkpoint_commitment`: what records name the message and the checkpoint by. `topped_up_nanos`: the
-- task's top-ups when it was committed. `origin`: the handoff under whose id personal data are kept,
-- where this one stands in for it.
ALTER TABLE handoffs ADD COLUMN policy TEXT;
ALTER TABLE handoffs ADD COLUMN commitment BLOB;
ALTER TABLE handoffs ADD COLUMN checkpoint_commitment BLOB;
ALTER TABLE handoffs ADD COLUMN topped_up_nanos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE handoffs ADD COLUMN origin TEXT;

-- What operators added to the budget so far, and who began the task.
ALTER TABLE tasks ADD COLUMN topped_up_nanos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN opened_by TEXT;

-- What one edge (from agent to agent) of one task has seen; guarded by the task's lock.
CREATE TABLE task_edges (
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
) STRICT;

CREATE TABLE escalations (
  tenant TEXT NOT NULL,
  escalation_id TEXT NOT NULL,
  task_id TEXT NOT NULL,
  handoff_id TEXT,
  source TEXT NOT NULL,
  target TEXT NOT NULL,
  reason TEXT NOT NULL,
  channel TEXT,
  resume_as TEXT,
  status TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  timeout_at INTEGER NOT NULL,
  resolved_at INTEGER,
  resolved_by TEXT,
  resolution TEXT,
  PRIMARY KEY (tenant, escalation_id)
) STRICT;
CREATE INDEX escalations_created ON escalations (tenant, created_at, escalation_id);
CREATE INDEX escalations_open ON escalations (tenant, task_id) WHERE status = 'OPEN';
CREATE INDEX escalations_timeout ON escalations (timeout_at) WHERE status = 'OPEN';

-- When and by whom a dead letter was decided on.
ALTER TABLE dead_letters ADD COLUMN resolved_at INTEGER;
ALTER TABLE dead_letters ADD COLUMN resolved_by TEXT;

CREATE INDEX checkpoints_created ON checkpoints (tenant, task_id, created_at);
