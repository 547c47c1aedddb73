-- Attempts at delivery, for operators. Same number, name and columns as on the Postgres side.
-- Expand only: an older binary goes on working beside, and keeps none.

-- One row is an attempt at a handoff: not the first one where the receiver took it at once. A ring of the last 20 of a handoff.
-- Deleted with the handoff's content, by an erasure or the end of retention.
CREATE TABLE delivery_attempts (
  tenant        TEXT NOT NULL,
  handoff_id    TEXT NOT NULL,
  -- The attempt's number modulo 20.
  slot          INTEGER NOT NULL,
  -- From 1, as the handoff counts its attempts.
  attempt       INTEGER NOT NULL,
  begun_at      INTEGER NOT NULL,
  -- Microseconds from the request to its outcome; NULL where nothing was sent.
  duration_us   INTEGER,
  -- The way that it took; NULL where nothing was sent.
  transport     TEXT,
  -- As the label `outcome` of the metric handoff_delivery_attempts_total.
  outcome       TEXT NOT NULL,
  -- The HTTP status that the receiver answered; NULL without one.
  status        INTEGER,
  -- The broker's sentence on the failure; holds no part of a body and no secret.
  error         TEXT,
  -- Headers of the request as JSON, a list of pairs; secret values are replaced.
  headers       TEXT NOT NULL,
  -- The first 4 KiB of the receiver's answer; NULL where there was none.
  answer        TEXT,
  PRIMARY KEY (tenant, handoff_id, slot)
) STRICT, WITHOUT ROWID;
