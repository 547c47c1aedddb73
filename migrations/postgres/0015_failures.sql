-- What counts as a failure, and as progress. Same number, name and columns as on the SQLite side. Expand only: an
-- older binary goes on working beside.

-- Attempts that a receiver put off (429 or 503 with Retry-After): they are no attempts.
ALTER TABLE outbox ADD COLUMN busy integer NOT NULL DEFAULT 0;

-- JSON: failures by edge as addressed, and hashes of the subtasks whose results the task has seen. task_edges.failures
-- is no longer read.
ALTER TABLE tasks ADD COLUMN course text;

-- Refused submissions on a task that does not exist, by the agent that sent them; forgotten a day after the last.
CREATE TABLE refused_tasks (
  tenant     text COLLATE "C" NOT NULL,
  task_id    text COLLATE "C" NOT NULL,
  agent_id   text COLLATE "C" NOT NULL,
  refusals   bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (tenant, task_id, agent_id)
);
CREATE INDEX refused_tasks_age ON refused_tasks (updated_at);
