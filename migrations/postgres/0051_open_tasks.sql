-- Tasks that have not ended, in the order of their beginning. Same number, name and columns as on the SQLite side.
-- Expand only: an older binary goes on working beside, and its tasks are listed too.

-- By trigger, and in a table of their own: a row is written at a task's beginning and at its end, and not at its steps between.
CREATE TABLE open_tasks (
  tenant    text   COLLATE "C" NOT NULL,
  begun_at  bigint NOT NULL,
  task_id   text   COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, begun_at, task_id)
);
-- A task that another broker begins between the rows and the triggers would be missing for ever.
LOCK TABLE tasks IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO open_tasks (tenant, begun_at, task_id)
  SELECT tenant, created_at, task_id FROM tasks WHERE status NOT IN ('COMPLETED', 'CANCELED');
CREATE FUNCTION note_open_task() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.status IN ('COMPLETED', 'CANCELED') THEN
    DELETE FROM open_tasks AS o
      WHERE o.tenant = NEW.tenant AND o.begun_at = NEW.created_at AND o.task_id = NEW.task_id;
  ELSE
    INSERT INTO open_tasks (tenant, begun_at, task_id) VALUES (NEW.tenant, NEW.created_at, NEW.task_id)
      ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER tasks_begin AFTER INSERT ON tasks FOR EACH ROW
  WHEN (NEW.status NOT IN ('COMPLETED', 'CANCELED')) EXECUTE FUNCTION note_open_task();
CREATE TRIGGER tasks_end AFTER UPDATE ON tasks FOR EACH ROW
  WHEN (OLD.status IS DISTINCT FROM NEW.status AND NEW.status IN ('COMPLETED', 'CANCELED'))
  EXECUTE FUNCTION note_open_task();
