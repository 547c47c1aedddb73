-- What changed among a tenant's agents. Same number, name and columns as on the Postgres side.

-- A tenant's row (agent_id is empty) counts the changes to its agents; an agent's, also of one that is gone, has
-- that number as of its last change. A broker that read the agents at a number asks for what is above it.
CREATE TABLE agent_changes (
  tenant    TEXT NOT NULL,
  agent_id  TEXT NOT NULL,
  revision  INTEGER NOT NULL,
  PRIMARY KEY (tenant, agent_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_changes_since ON agent_changes (tenant, revision);

-- By trigger, so that it also counts what a person changes with sqlite3.
CREATE TRIGGER agents_changed_by_insert AFTER INSERT ON agents
BEGIN
  INSERT INTO agent_changes (tenant, agent_id, revision)
    SELECT NEW.tenant, changed.id, 0 FROM (SELECT '' AS id UNION ALL SELECT NEW.agent_id) AS changed
    WHERE NOT EXISTS (SELECT 1 FROM agent_changes WHERE tenant = NEW.tenant AND agent_id = changed.id);
  UPDATE agent_changes SET revision = revision + 1 WHERE tenant = NEW.tenant AND agent_id = '';
  UPDATE agent_changes SET revision =
      (SELECT revision FROM agent_changes WHERE tenant = NEW.tenant AND agent_id = '')
    WHERE tenant = NEW.tenant AND agent_id = NEW.agent_id;
END;
CREATE TRIGGER agents_changed_by_update AFTER UPDATE ON agents
BEGIN
  INSERT INTO agent_changes (tenant, agent_id, revision)
    SELECT NEW.tenant, changed.id, 0 FROM (SELECT '' AS id UNION ALL SELECT NEW.agent_id) AS changed
    WHERE NOT EXISTS (SELECT 1 FROM agent_changes WHERE tenant = NEW.tenant AND agent_id = changed.id);
  UPDATE agent_changes SET revision = revision + 1 WHERE tenant = NEW.tenant AND agent_id = '';
  UPDATE agent_changes SET revision =
      (SELECT revision FROM agent_changes WHERE tenant = NEW.tenant AND agent_id = '')
    WHERE tenant = NEW.tenant AND agent_id = NEW.agent_id;
END;
CREATE TRIGGER agents_changed_by_delete AFTER DELETE ON agents
BEGIN
  INSERT INTO agent_changes (tenant, agent_id, revision)
    SELECT OLD.tenant, changed.id, 0 FROM (SELECT '' AS id UNION ALL SELECT OLD.agent_id) AS changed
    WHERE NOT EXISTS (SELECT 1 FROM agent_changes WHERE tenant = OLD.tenant AND agent_id = changed.id);
  UPDATE agent_changes SET revision = revision + 1 WHERE tenant = OLD.tenant AND agent_id = '';
  UPDATE agent_changes SET revision =
      (SELECT revision FROM agent_changes WHERE tenant = OLD.tenant AND agent_id = '')
    WHERE tenant = OLD.tenant AND agent_id = OLD.agent_id;
END;
