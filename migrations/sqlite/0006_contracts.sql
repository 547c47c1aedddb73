-- Contracts about edges. Same number, name and columns as on the Postgres side.

-- One version of a contract: its canonical document. Rows are inserted only.
CREATE TABLE contracts (
  tenant TEXT NOT NULL,
  contract_id TEXT NOT NULL,
  version TEXT NOT NULL,
  doc TEXT NOT NULL,
  sha256 BLOB NOT NULL,
  source TEXT NOT NULL,
  target TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, contract_id, version)
) STRICT;

-- What a contract's dedupe key was last seen with, as a hash, and the handoff that it made.
CREATE TABLE contract_repeats (
  tenant TEXT NOT NULL,
  repeat_key TEXT NOT NULL,
  handoff_id TEXT NOT NULL,
  seen_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, repeat_key)
) STRICT, WITHOUT ROWID;
