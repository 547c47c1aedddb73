-- Events and who is told of them. Same number, name and columns as on the Postgres side.

-- What happened. A row belongs to the record with its leaf index and is committed with it; it holds
-- ids, codes and figures only. Rows are inserted, and deleted once they are old.
CREATE TABLE events (
  tenant TEXT NOT NULL,
  leaf_index INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at INTEGER NOT NULL,
  task_id TEXT,
  handoff_id TEXT,
  source TEXT,
  target TEXT,
  audience TEXT,
  data TEXT NOT NULL,
  PRIMARY KEY (tenant, leaf_index, ordinal)
) STRICT, WITHOUT ROWID;
CREATE INDEX events_audience ON events (tenant, audience, leaf_index, ordinal)
  WHERE audience IS NOT NULL;

CREATE TABLE subscriptions (
  tenant TEXT NOT NULL,
  subscription_id TEXT NOT NULL,
  doc TEXT NOT NULL,
  secrets TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, subscription_id)
) STRICT;

-- How far each subscriber has been told, and which broker tells it now.
CREATE TABLE event_cursors (
  tenant TEXT NOT NULL,
  subscriber TEXT NOT NULL,
  audience TEXT,
  leaf_index INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  active INTEGER NOT NULL,
  broker TEXT,
  lease_until INTEGER NOT NULL,
  next_at INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  failing_since INTEGER,
  attempts INTEGER NOT NULL,
  PRIMARY KEY (tenant, subscriber)
) STRICT;

-- The last attempts of each subscriber, as a ring of fixed size.
CREATE TABLE event_deliveries (
  tenant TEXT NOT NULL,
  subscriber TEXT NOT NULL,
  slot INTEGER NOT NULL,
  number INTEGER NOT NULL,
  leaf_index INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  at INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  status INTEGER,
  detail TEXT,
  duration_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, subscriber, slot)
) STRICT;

-- Agents that had a callbackUrl before there were events: told from here on.
INSERT INTO event_cursors
SELECT a.tenant, 'agent/' || a.agent_id, a.agent_id, h.size - 1, 2147483647, 1, NULL, 0, 0, 0, NULL, 0
FROM agents AS a JOIN audit_log_heads AS h ON h.tenant = a.tenant
WHERE a.doc LIKE '%"callbackUrl":"http%';
