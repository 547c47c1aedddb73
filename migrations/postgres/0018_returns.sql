-- Tasks that came back to the agent that asked for their return (returnTo), until it acts on them. Same number, name
-- and columns as on the SQLite side. Expand only: an older binary goes on working beside.

CREATE TABLE returns (
  tenant      text COLLATE "C" NOT NULL,
  handoff_id  text COLLATE "C" NOT NULL,
  task_id     text COLLATE "C" NOT NULL,
  agent_id    text COLLATE "C" NOT NULL,
  returned_at bigint NOT NULL,
  -- Until then, microseconds, a poll of the inbox has it.
  visible_at  bigint NOT NULL,
  PRIMARY KEY (tenant, handoff_id)
);
CREATE INDEX returns_inbox ON returns (tenant, agent_id, visible_at);
