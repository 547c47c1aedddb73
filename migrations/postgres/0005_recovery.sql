-- Recovery: what ruled a handoff, what its edges have seen, what people are asked. Expand only: an
-- older binary goes on working beside.

-- `policy`: the contract's terms and the fallbacks as they were at submission, JSON. `commitment` and
-- `checkpoint_commitment`: what records name the message and the checkpoint by. `topped_up_nanos`: the
-- task's top-ups when it was committed. `origin`: the handoff under whose id personal data are kept,
-- where this one stands in for it.
ALTER TABLE handoffs ADD COLUMN policy text;
ALTER TABLE handoffs ADD COLUMN commitment bytea;
ALTER TABLE handoffs ADD COLUMN checkpoint_commitment bytea;
ALTER TABLE handoffs ADD COLUMN topped_up_nanos bigint NOT NULL DEFAULT 0;
ALTER TABLE handoffs ADD COLUMN origin text COLLATE "C";

-- What operators added to the budget so far, and who began the task.
ALTER TABLE tasks ADD COLUMN topped_up_nanos bigint NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN opened_by text COLLATE "C";

-- What one edge (from agent to agent) of one task has seen; guarded by the task's lock.
CREATE TABLE task_edges (
  tenant text COLLATE "C" NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  source text COLLATE "C" NOT NULL,
  target text COLLATE "C" NOT NULL,
  passages bigint NOT NULL,
  repeats bigint NOT NULL,
  completed_count bigint NOT NULL,
  failures bigint NOT NULL,
  spent_nanos bigint NOT NULL,
  remaining_nanos bigint NOT NULL,
  topped_up_nanos bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (tenant, task_id, source, target)
);

CREATE TABLE escalations (
  tenant text COLLATE "C" NOT NULL,
  escalation_id text COLLATE "C" NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  handoff_id text COLLATE "C",
  source text COLLATE "C" NOT NULL,
  target text COLLATE "C" NOT NULL,
  reason text COLLATE "C" NOT NULL,
  channel text COLLATE "C",
  resume_as text COLLATE "C",
  status text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  timeout_at bigint NOT NULL,
  resolved_at bigint,
  resolved_by text COLLATE "C",
  resolution text COLLATE "C",
  PRIMARY KEY (tenant, escalation_id)
);
CREATE INDEX escalations_created ON escalations (tenant, created_at, escalation_id);
CREATE INDEX escalations_open ON escalations (tenant, task_id) WHERE status = 'OPEN';
CREATE INDEX escalations_timeout ON escalations (timeout_at) WHERE status = 'OPEN';

-- When and by whom a dead letter was decided on.
ALTER TABLE dead_letters ADD COLUMN resolved_at bigint;
ALTER TABLE dead_letters ADD COLUMN resolved_by text COLLATE "C";

CREATE INDEX checkpoints_created ON checkpoints (tenant, task_id, created_at);
