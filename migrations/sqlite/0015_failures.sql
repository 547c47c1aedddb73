-- What counts as a failure, and as progress. Same number, name and columns as on the Postgres side. Expand only: an
-- older binary goes on working beside.

-- Attempts that a receiver put off (429 or 503 with Retry-After): they are no attempts.
ALTER TABLE outbox ADD COLUMN busy INTEGER NOT NULL DEFAULT 0;

-- JSON: failures by edge as addressed, and hashes of the subtasks whose results the task has seen. task_edges.failures
-- is no longer read.
ALTER TABLE tasks ADD COLUMN course TEXT;

-- Refused submissions on a task that does not exist, by the agent that sent them; forgotten a day after the last.
CREATE TABLE refused_tasks (
  tenant     TEXT NOT NULL,
  task_id    TEXT NOT NULL,
  agent_id   TEXT NOT NULL,
  refusals   INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, task_id, agent_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX refused_tasks_age ON refused_tasks (updated_at);
