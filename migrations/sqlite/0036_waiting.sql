-- Agents that are paused, for which what waits is held, and tasks that wait. Same number, name and columns as on the Postgres side.
-- Expand only: an older binary goes on working beside, and hands out what is held.

CREATE TABLE paused_agents (
  tenant    TEXT NOT NULL,
  agent_id  TEXT NOT NULL,
  since     INTEGER NOT NULL,
  PRIMARY KEY (tenant, agent_id)
) STRICT, WITHOUT ROWID;
INSERT INTO paused_agents (tenant, agent_id, since)
  SELECT tenant, agent_id, updated_at FROM agents WHERE doc ->> 'state' = 'PAUSED';

-- By trigger, so that a broker of an older version pauses and resumes as well.
CREATE TRIGGER agents_paused_by_insert AFTER INSERT ON agents WHEN NEW.doc ->> 'state' = 'PAUSED'
BEGIN
  INSERT INTO paused_agents (tenant, agent_id, since) SELECT NEW.tenant, NEW.agent_id, NEW.updated_at
    WHERE NOT EXISTS (SELECT 1 FROM paused_agents WHERE tenant = NEW.tenant AND agent_id = NEW.agent_id);
END;
CREATE TRIGGER agents_paused_by_update AFTER UPDATE ON agents WHEN NEW.doc ->> 'state' = 'PAUSED'
BEGIN
  INSERT INTO paused_agents (tenant, agent_id, since) SELECT NEW.tenant, NEW.agent_id, NEW.updated_at
    WHERE NOT EXISTS (SELECT 1 FROM paused_agents WHERE tenant = NEW.tenant AND agent_id = NEW.agent_id);
END;
-- The clocks stood still: the verdict's, and that of what nobody pulled. What came during the pause keeps its order, behind
-- what came before.
CREATE TRIGGER agents_resumed AFTER UPDATE ON agents
  WHEN NEW.doc ->> 'state' <> 'PAUSED' AND OLD.doc ->> 'state' = 'PAUSED'
BEGIN
  UPDATE handoffs SET deadline_at = deadline_at + (
      SELECT max(0, NEW.updated_at - max(p.since, handoffs.created_at)) FROM paused_agents AS p
      WHERE p.tenant = NEW.tenant AND p.agent_id = NEW.agent_id)
    WHERE tenant = NEW.tenant AND target = NEW.agent_id AND status IN ('PENDING', 'ACCEPTED')
      AND status = 'PENDING' AND deadline_at IS NOT NULL
      AND EXISTS (SELECT 1 FROM paused_agents AS p WHERE p.tenant = NEW.tenant AND p.agent_id = NEW.agent_id);
  UPDATE outbox SET created_at = (
      SELECT CASE WHEN outbox.created_at < p.since
        THEN outbox.created_at + max(0, NEW.updated_at - p.since - 1000000)
        ELSE NEW.updated_at - 1000000 + CAST((outbox.created_at - p.since) * 1000000.0
          / max(1, NEW.updated_at - p.since) AS INTEGER) END
      FROM paused_agents AS p WHERE p.tenant = NEW.tenant AND p.agent_id = NEW.agent_id)
    WHERE tenant = NEW.tenant AND target = NEW.agent_id
      AND EXISTS (SELECT 1 FROM paused_agents AS p WHERE p.tenant = NEW.tenant AND p.agent_id = NEW.agent_id
        AND NEW.updated_at - p.since > 1000000);
  DELETE FROM paused_agents WHERE tenant = NEW.tenant AND agent_id = NEW.agent_id;
END;
-- What a deleted agent holds ends at once: its lease is over.
CREATE TRIGGER agents_gone AFTER DELETE ON agents
BEGIN
  DELETE FROM paused_agents WHERE tenant = OLD.tenant AND agent_id = OLD.agent_id;
  UPDATE handoffs SET deadline_at = min(deadline_at, OLD.updated_at)
    WHERE tenant = OLD.tenant AND target = OLD.agent_id AND status IN ('PENDING', 'ACCEPTED')
      AND status = 'ACCEPTED' AND deadline_at IS NOT NULL;
END;

-- Tasks that went back to their senders and wait for the next handoff: by trigger, so that no statement of a commit is longer.
CREATE TABLE waiting_tasks (
  tenant   TEXT NOT NULL,
  task_id  TEXT NOT NULL,
  since    INTEGER NOT NULL,
  PRIMARY KEY (tenant, task_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_tasks_since ON waiting_tasks (since);
INSERT INTO waiting_tasks (tenant, task_id, since)
  SELECT tenant, task_id, updated_at FROM tasks WHERE status = 'PENDING_HANDOFF';
CREATE TRIGGER tasks_begin_to_wait AFTER UPDATE OF status ON tasks
  WHEN NEW.status = 'PENDING_HANDOFF' AND OLD.status <> 'PENDING_HANDOFF'
BEGIN
  INSERT INTO waiting_tasks (tenant, task_id, since) SELECT NEW.tenant, NEW.task_id, NEW.updated_at
    WHERE NOT EXISTS (SELECT 1 FROM waiting_tasks WHERE tenant = NEW.tenant AND task_id = NEW.task_id);
END;
CREATE TRIGGER tasks_wait_at_once AFTER INSERT ON tasks WHEN NEW.status = 'PENDING_HANDOFF'
BEGIN
  INSERT INTO waiting_tasks (tenant, task_id, since) SELECT NEW.tenant, NEW.task_id, NEW.updated_at
    WHERE NOT EXISTS (SELECT 1 FROM waiting_tasks WHERE tenant = NEW.tenant AND task_id = NEW.task_id);
END;
CREATE TRIGGER tasks_wait_no_more AFTER UPDATE OF status ON tasks
  WHEN OLD.status = 'PENDING_HANDOFF' AND NEW.status <> 'PENDING_HANDOFF'
BEGIN
  DELETE FROM waiting_tasks WHERE tenant = NEW.tenant AND task_id = NEW.task_id;
END;

-- Tasks that have ended, in the order of their lists: by trigger, and in a table of their own, so that an update of a task
-- touches no index. A task that has ended stays so.
CREATE TABLE closed_tasks (
  tenant     TEXT NOT NULL,
  closed_as  TEXT NOT NULL,
  begun_at   INTEGER NOT NULL,
  task_id    TEXT NOT NULL,
  PRIMARY KEY (tenant, closed_as, begun_at, task_id)
) STRICT, WITHOUT ROWID;
INSERT INTO closed_tasks (tenant, closed_as, begun_at, task_id)
  SELECT tenant, status, created_at, task_id FROM tasks WHERE status IN ('COMPLETED', 'CANCELED');
CREATE TRIGGER tasks_close AFTER UPDATE OF status ON tasks
  WHEN NEW.status IN ('COMPLETED', 'CANCELED') AND OLD.status <> NEW.status
BEGIN
  INSERT INTO closed_tasks (tenant, closed_as, begun_at, task_id)
    SELECT NEW.tenant, NEW.status, NEW.created_at, NEW.task_id WHERE NOT EXISTS (SELECT 1 FROM closed_tasks
      WHERE tenant = NEW.tenant AND closed_as = NEW.status AND begun_at = NEW.created_at AND task_id = NEW.task_id);
END;
CREATE TRIGGER tasks_close_at_once AFTER INSERT ON tasks WHEN NEW.status IN ('COMPLETED', 'CANCELED')
BEGIN
  INSERT INTO closed_tasks (tenant, closed_as, begun_at, task_id)
    SELECT NEW.tenant, NEW.status, NEW.created_at, NEW.task_id WHERE NOT EXISTS (SELECT 1 FROM closed_tasks
      WHERE tenant = NEW.tenant AND closed_as = NEW.status AND begun_at = NEW.created_at AND task_id = NEW.task_id);
END;

-- Serve the lists of decided dead letters and escalations, newest first.
CREATE INDEX dead_letters_decided ON dead_letters (tenant, status, created_at, handoff_id) WHERE status <> 'OPEN';
CREATE INDEX escalations_decided ON escalations (tenant, status, created_at, escalation_id) WHERE status <> 'OPEN';
-- Serves the list of handoffs that ended in one way, newest first.
CREATE INDEX handoffs_closed ON handoffs (tenant, status, created_at, handoff_id)
  WHERE status NOT IN ('PENDING', 'ACCEPTED');

-- In the order in which a task's handoffs are listed: without it each page sorts all of them.
DROP INDEX handoffs_task;
CREATE INDEX handoffs_task ON handoffs (tenant, task_id, created_at, handoff_id);

-- When a key was last used, to the minute.
ALTER TABLE api_keys ADD COLUMN last_used_at INTEGER;
