-- Contracts about edges. Same number, name and columns as on the SQLite side.

-- One version of a contract: its canonical document. Rows are inserted only.
CREATE TABLE contracts (
  tenant       text   COLLATE "C" NOT NULL,
  contract_id  text   COLLATE "C" NOT NULL,
  version      text   COLLATE "C" NOT NULL,
  doc          text   NOT NULL,
  sha256       bytea  NOT NULL,
  source       text   COLLATE "C" NOT NULL,
  target       text   COLLATE "C" NOT NULL,
  created_at   bigint NOT NULL,
  PRIMARY KEY (tenant, contract_id, version)
);

-- What a contract's dedupe key was last seen with, as a hash, and the handoff that it made.
CREATE TABLE contract_repeats (
  tenant      text   COLLATE "C" NOT NULL,
  repeat_key  text   COLLATE "C" NOT NULL,
  handoff_id  text   COLLATE "C" NOT NULL,
  seen_at     bigint NOT NULL,
  PRIMARY KEY (tenant, repeat_key)
) WITH (fillfactor = 50);
