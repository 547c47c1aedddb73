-- Second opinions that are asked for after the commit. Same number, names and columns as on the SQLite side. Expand only:
-- an older binary goes on working beside.

-- One row is a committed handoff that the external classifier is still to be asked about; deleted with its record.
CREATE TABLE opinions_due (
  tenant      text COLLATE "C" NOT NULL,
  handoff_id  text COLLATE "C" NOT NULL,
  -- Claims so far. The last one's number is the token of whoever asks.
  attempts    integer NOT NULL DEFAULT 0,
  -- When the classifier may be asked, microseconds; a claim moves it to the end of its lease.
  next_at     bigint NOT NULL,
  PRIMARY KEY (tenant, handoff_id)
);
CREATE INDEX opinions_due_next ON opinions_due (next_at);
