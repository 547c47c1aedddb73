-- Tasks that have not ended, in the order of their beginning. Same number, name and columns as on the Postgres side.
-- Expand only: an older binary goes on working beside, and its tasks are listed too.

-- By trigger, and in a table of their own: a row is written at a task's beginning and at its end, and not at its steps between.
CREATE TABLE open_tasks (
  tenant    TEXT NOT NULL,
  begun_at  INTEGER NOT NULL,
  task_id   TEXT NOT NULL,
  PRIMARY KEY (tenant, begun_at, task_id)
) STRICT, WITHOUT ROWID;
INSERT INTO open_tasks (tenant, begun_at, task_id)
  SELECT tenant, created_at, task_id FROM tasks WHERE status NOT IN ('COMPLETED', 'CANCELED') ORDER BY tenant, created_at, task_id;
CREATE TRIGGER tasks_begin AFTER INSERT ON tasks WHEN NEW.status NOT IN ('COMPLETED', 'CANCELED')
BEGIN
  INSERT INTO open_tasks (tenant, begun_at, task_id) SELECT NEW.tenant, NEW.created_at, NEW.task_id
    WHERE NOT EXISTS (SELECT 1 FROM open_tasks
      WHERE tenant = NEW.tenant AND begun_at = NEW.created_at AND task_id = NEW.task_id);
END;
CREATE TRIGGER tasks_end AFTER UPDATE OF status ON tasks
  WHEN NEW.status IN ('COMPLETED', 'CANCELED') AND OLD.status <> NEW.status
BEGIN
  DELETE FROM open_tasks WHERE tenant = NEW.tenant AND begun_at = NEW.created_at AND task_id = NEW.task_id;
END;
