-- What brokers notice of receivers. Same number, names and columns as on the SQLite side.
-- Expand only: an older binary goes on working beside, and notes nothing.

-- One row is a receiver: the last that any broker noticed of it. Deleted with the agent.
CREATE TABLE receivers_seen (
  tenant           text COLLATE "C" NOT NULL,
  agent_id         text COLLATE "C" NOT NULL,
  -- The last request of the receiver for its inbox; NULL: none was noticed.
  last_poll_at     bigint,
  -- The last attempt that it answered; where it pulls, its last verdict.
  last_success_at  bigint,
  last_failure_at  bigint,
  -- Code of the last failure.
  last_failure     text COLLATE "C",
  PRIMARY KEY (tenant, agent_id)
);

-- One row is the circuit breaker that a broker has for a receiver, from its first opening on. Deleted with the broker's row in
-- brokers, and with the agent.
CREATE TABLE receiver_breakers (
  tenant      text COLLATE "C" NOT NULL,
  agent_id    text COLLATE "C" NOT NULL,
  broker      text COLLATE "C" NOT NULL,
  -- closed, half_open or open; NULL: nothing was tried for long after its cool-down.
  state       text COLLATE "C",
  -- When it left the state closed, or came back to it.
  since       bigint NOT NULL,
  -- Code of the last failure that this broker saw; NULL: none.
  reason      text COLLATE "C",
  PRIMARY KEY (tenant, agent_id, broker)
);

-- One row is five minutes of a receiver, added up over brokers. Deleted after 24 hours, and with the agent.
CREATE TABLE receiver_windows (
  tenant     text COLLATE "C" NOT NULL,
  agent_id   text COLLATE "C" NOT NULL,
  -- Microseconds; a multiple of five minutes.
  begins_at  bigint NOT NULL,
  attempts   bigint NOT NULL,
  -- Attempts that failed, time-outs among them.
  failures   bigint NOT NULL,
  timeouts   bigint NOT NULL,
  -- A JSON list of 40 counts: durations by size, each bound √2 times the one before, from 1 ms on.
  durations  text NOT NULL,
  PRIMARY KEY (tenant, agent_id, begins_at)
);
CREATE INDEX receiver_windows_age ON receiver_windows (begins_at);

-- By trigger, so that a broker of an older version deletes them as well. As the owner, as other triggers of agents do.
CREATE FUNCTION forget_noticed_receiver() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM receivers_seen AS s WHERE s.tenant = OLD.tenant AND s.agent_id = OLD.agent_id;
  DELETE FROM receiver_breakers AS b WHERE b.tenant = OLD.tenant AND b.agent_id = OLD.agent_id;
  DELETE FROM receiver_windows AS w WHERE w.tenant = OLD.tenant AND w.agent_id = OLD.agent_id;
  RETURN NULL;
END $$;
CREATE TRIGGER agents_noticed_no_more AFTER DELETE ON agents
  FOR EACH ROW EXECUTE FUNCTION forget_noticed_receiver();
