-- Agents that are paused, for which what waits is held, and tasks that wait. Same number, name and columns as on the SQLite side.
-- Expand only: an older binary goes on working beside, and hands out what is held.

CREATE TABLE paused_agents (
  tenant    text   COLLATE "C" NOT NULL,
  agent_id  text   COLLATE "C" NOT NULL,
  since     bigint NOT NULL,
  PRIMARY KEY (tenant, agent_id)
);
INSERT INTO paused_agents (tenant, agent_id, since)
  SELECT tenant, agent_id, updated_at FROM agents WHERE replace(doc, '\u0000', '\u0020')::json ->> 'state' = 'PAUSED';

-- By trigger, so that a broker of an older version pauses and resumes as well. As the owner: who serves can hold nothing back by
-- hand. The clocks stand still during a pause: the verdict's, and that of what nobody pulled. What came during it keeps its
-- order, behind what came before. What a deleted agent holds ends at once: its lease is over.
CREATE FUNCTION hold_for_paused_agent() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  began  bigint;
  resumed bigint;
BEGIN
  IF TG_OP = 'DELETE' THEN
    DELETE FROM paused_agents AS p WHERE p.tenant = OLD.tenant AND p.agent_id = OLD.agent_id;
    UPDATE handoffs AS h SET deadline_at = LEAST(h.deadline_at, OLD.updated_at)
      WHERE h.tenant = OLD.tenant AND h.target = OLD.agent_id AND h.status = 'ACCEPTED'
        AND h.deadline_at IS NOT NULL;
    RETURN NULL;
  END IF;
  -- An agent's texts may hold an escaped NUL, which no json of Postgres is read with.
  IF replace(NEW.doc, '\u0000', '\u0020')::json ->> 'state' = 'PAUSED' THEN
    INSERT INTO paused_agents (tenant, agent_id, since) VALUES (NEW.tenant, NEW.agent_id, NEW.updated_at)
      ON CONFLICT DO NOTHING;
    RETURN NULL;
  END IF;
  DELETE FROM paused_agents AS p WHERE p.tenant = NEW.tenant AND p.agent_id = NEW.agent_id
    RETURNING p.since INTO began;
  IF began IS NULL THEN RETURN NULL; END IF;
  resumed := NEW.updated_at;
  UPDATE handoffs AS h SET deadline_at = h.deadline_at + GREATEST(0, resumed - GREATEST(began, h.created_at))
    WHERE h.tenant = NEW.tenant AND h.target = NEW.agent_id AND h.status = 'PENDING'
      AND h.deadline_at IS NOT NULL;
  IF resumed - began > 1000000 THEN
    UPDATE outbox AS o SET created_at = CASE WHEN o.created_at < began
        THEN o.created_at + (resumed - began - 1000000)
        ELSE resumed - 1000000
          + ((o.created_at - began)::float8 * 1000000 / (resumed - began))::bigint END
      WHERE o.tenant = NEW.tenant AND o.target = NEW.agent_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER agents_held AFTER INSERT OR UPDATE OR DELETE ON agents
  FOR EACH ROW EXECUTE FUNCTION hold_for_paused_agent();

-- Tasks that went back to their senders and wait for the next handoff: by trigger, so that no statement of a commit is longer,
-- and in a table of their own, so that an update of a task touches no index.
CREATE TABLE waiting_tasks (
  tenant   text   COLLATE "C" NOT NULL,
  task_id  text   COLLATE "C" NOT NULL,
  since    bigint NOT NULL,
  PRIMARY KEY (tenant, task_id)
);
CREATE INDEX waiting_tasks_since ON waiting_tasks (since);
INSERT INTO waiting_tasks (tenant, task_id, since)
  SELECT tenant, task_id, updated_at FROM tasks WHERE status = 'PENDING_HANDOFF';
CREATE FUNCTION note_waiting_task() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.status = 'PENDING_HANDOFF' THEN
    INSERT INTO waiting_tasks (tenant, task_id, since) VALUES (NEW.tenant, NEW.task_id, NEW.updated_at)
      ON CONFLICT DO NOTHING;
  ELSE
    DELETE FROM waiting_tasks AS w WHERE w.tenant = NEW.tenant AND w.task_id = NEW.task_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER tasks_wait AFTER UPDATE ON tasks FOR EACH ROW
  WHEN (OLD.status IS DISTINCT FROM NEW.status AND (OLD.status = 'PENDING_HANDOFF' OR NEW.status = 'PENDING_HANDOFF'))
  EXECUTE FUNCTION note_waiting_task();
CREATE TRIGGER tasks_wait_at_once AFTER INSERT ON tasks FOR EACH ROW
  WHEN (NEW.status = 'PENDING_HANDOFF') EXECUTE FUNCTION note_waiting_task();

-- Tasks that have ended, in the order of their lists: by trigger, and in a table of their own, so that an update of a task
-- touches no index. A task that has ended stays so.
CREATE TABLE closed_tasks (
  tenant     text   COLLATE "C" NOT NULL,
  closed_as  text   COLLATE "C" NOT NULL,
  begun_at   bigint NOT NULL,
  task_id    text   COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, closed_as, begun_at, task_id)
);
INSERT INTO closed_tasks (tenant, closed_as, begun_at, task_id)
  SELECT tenant, status, created_at, task_id FROM tasks WHERE status IN ('COMPLETED', 'CANCELED');
CREATE FUNCTION note_closed_task() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO closed_tasks (tenant, closed_as, begun_at, task_id)
    VALUES (NEW.tenant, NEW.status, NEW.created_at, NEW.task_id) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER tasks_close AFTER UPDATE ON tasks FOR EACH ROW
  WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('COMPLETED', 'CANCELED'))
  EXECUTE FUNCTION note_closed_task();
CREATE TRIGGER tasks_close_at_once AFTER INSERT ON tasks FOR EACH ROW
  WHEN (NEW.status IN ('COMPLETED', 'CANCELED')) EXECUTE FUNCTION note_closed_task();

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
ALTER TABLE api_keys ADD COLUMN last_used_at bigint;
