-- Tasks that came back to the agent that asked for their return (returnTo), until it acts on them. Same number, name
-- and columns as on the Postgres side. Expand only: an older binary goes on working beside.

CREATE TABLE returns (
  tenant      TEXT NOT NULL,
  handoff_id  TEXT NOT NULL,
  task_id     TEXT NOT NULL,
  agent_id    TEXT NOT NULL,
  returned_at INTEGER NOT NULL,
  -- Until then, microseconds, a poll of the inbox has it.
  visible_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant, handoff_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX returns_inbox ON returns (tenant, agent_id, visible_at);
