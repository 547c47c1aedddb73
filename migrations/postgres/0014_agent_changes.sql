-- What changed among a tenant's agents. Same number, name and columns as on the SQLite side.

-- A tenant's row (agent_id is empty) counts the changes to its agents; an agent's, also of one that is gone, has
-- that number as of its last change. A broker that read the agents at a number asks for what is above it.
CREATE TABLE agent_changes (
  tenant    text   COLLATE "C" NOT NULL,
  agent_id  text   COLLATE "C" NOT NULL,
  revision  bigint NOT NULL,
  PRIMARY KEY (tenant, agent_id)
);
CREATE INDEX agent_changes_since ON agent_changes (tenant, revision);

-- By trigger, so that it also counts what a broker of an older version changes, or a person with psql. At the end of
-- the transaction, under the lock of the log's head, so that nobody waits for this row who has another to give. As the
-- owner: who serves can count no change away.
CREATE FUNCTION count_agent_change() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  changed agents%ROWTYPE;
  number  bigint;
BEGIN
  IF TG_OP = 'DELETE' THEN changed := OLD; ELSE changed := NEW; END IF;
  INSERT INTO agent_changes AS c (tenant, agent_id, revision) VALUES (changed.tenant, '', 1)
    ON CONFLICT (tenant, agent_id) DO UPDATE SET revision = c.revision + 1
    RETURNING c.revision INTO number;
  INSERT INTO agent_changes AS c (tenant, agent_id, revision)
    VALUES (changed.tenant, changed.agent_id, number)
    ON CONFLICT (tenant, agent_id) DO UPDATE SET revision = excluded.revision;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER agents_changed AFTER INSERT OR UPDATE OR DELETE ON agents
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION count_agent_change();
