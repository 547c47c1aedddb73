-- What brokers notice of receivers. Same number, names and columns as on the Postgres side.
-- Expand only: an older binary goes on working beside, and notes nothing.

-- One row is a receiver: the last that any broker noticed of it. Deleted with the agent.
CREATE TABLE receivers_seen (
  tenant           TEXT NOT NULL,
  agent_id         TEXT NOT NULL,
  -- The last request of the receiver for its inbox; NULL: none was noticed.
  last_poll_at     INTEGER,
  -- The last attempt that it answered; where it pulls, its last verdict.
  last_success_at  INTEGER,
  last_failure_at  INTEGER,
  -- Code of the last failure.
  last_failure     TEXT,
  PRIMARY KEY (tenant, agent_id)
) STRICT, WITHOUT ROWID;

-- One row is the circuit breaker that a broker has for a receiver, from its first opening on. Deleted with the broker's row in
-- brokers, at the start of the one broker of this file, and with the agent.
CREATE TABLE receiver_breakers (
  tenant      TEXT NOT NULL,
  agent_id    TEXT NOT NULL,
  broker      TEXT NOT NULL,
  -- closed, half_open or open; NULL: nothing was tried for long after its cool-down.
  state       TEXT,
  -- When it left the state closed, or came back to it.
  since       INTEGER NOT NULL,
  -- Code of the last failure that this broker saw; NULL: none.
  reason      TEXT,
  PRIMARY KEY (tenant, agent_id, broker)
) STRICT, WITHOUT ROWID;

-- One row is five minutes of a receiver, added up over brokers. Deleted after 24 hours, and with the agent.
CREATE TABLE receiver_windows (
  tenant     TEXT NOT NULL,
  agent_id   TEXT NOT NULL,
  -- Microseconds; a multiple of five minutes.
  begins_at  INTEGER NOT NULL,
  attempts   INTEGER NOT NULL,
  -- Attempts that failed, time-outs among them.
  failures   INTEGER NOT NULL,
  timeouts   INTEGER NOT NULL,
  -- A JSON list of 40 counts: durations by size, each bound √2 times the one before, from 1 ms on.
  durations  TEXT NOT NULL,
  PRIMARY KEY (tenant, agent_id, begins_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX receiver_windows_age ON receiver_windows (begins_at);

-- By trigger, so that a broker of an older version deletes them as well.
CREATE TRIGGER agents_noticed_no_more AFTER DELETE ON agents
BEGIN
  DELETE FROM receivers_seen WHERE tenant = OLD.tenant AND agent_id = OLD.agent_id;
  DELETE FROM receiver_breakers WHERE tenant = OLD.tenant AND agent_id = OLD.agent_id;
  DELETE FROM receiver_windows WHERE tenant = OLD.tenant AND agent_id = OLD.agent_id;
END;
