-- Payload schemas that contracts name. Same number, name and columns as on the Postgres side.

-- One version of a payload schema: its canonical document. Rows are inserted only. The ordinal says how
-- many versions were there before: of two that saw the same ones, the second is refused.
CREATE TABLE payload_schemas (
  tenant TEXT NOT NULL,
  schema_id TEXT NOT NULL,
  version TEXT NOT NULL,
  ordinal INTEGER NOT NULL,
  doc TEXT NOT NULL,
  sha256 BLOB NOT NULL,
  migration TEXT,
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, schema_id, version),
  UNIQUE (tenant, schema_id, ordinal)
) STRICT;
