-- Attempts at delivery, for operators. Same number, name and columns as on the SQLite side.
-- Expand only: an older binary goes on working beside, and keeps none.

-- One row is an attempt at a handoff: not the first one where the receiver took it at once. A ring of the last 20 of a handoff.
-- Deleted with the handoff's content, by an erasure or the end of retention.
CREATE TABLE delivery_attempts (
  tenant        text COLLATE "C" NOT NULL,
  handoff_id    text COLLATE "C" NOT NULL,
  -- The attempt's number modulo 20.
  slot          integer NOT NULL,
  -- From 1, as the handoff counts its attempts.
  attempt       integer NOT NULL,
  begun_at      bigint NOT NULL,
  -- Microseconds from the request to its outcome; NULL where nothing was sent.
  duration_us   bigint,
  -- The way that it took; NULL where nothing was sent.
  transport     text COLLATE "C",
  -- As the label `outcome` of the metric handoff_delivery_attempts_total.
  outcome       text COLLATE "C" NOT NULL,
  -- The HTTP status that the receiver answered; NULL without one.
  status        integer,
  -- The broker's sentence on the failure; holds no part of a body and no secret.
  error         text,
  -- Headers of the request as JSON, a list of pairs; secret values are replaced.
  headers       text NOT NULL,
  -- The first 4 KiB of the receiver's answer; NULL where there was none.
  answer        text,
  PRIMARY KEY (tenant, handoff_id, slot)
);
