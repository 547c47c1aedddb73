-- Payload schemas that contracts name. Same number, name and columns as on the SQLite side.

-- One version of a payload schema: its canonical document. Rows are inserted only. The ordinal says how
-- many versions were there before: of two that saw the same ones, the second is refused.
CREATE TABLE payload_schemas (
  tenant       text   COLLATE "C" NOT NULL,
  schema_id    text   COLLATE "C" NOT NULL,
  version      text   COLLATE "C" NOT NULL,
  ordinal      bigint NOT NULL,
  doc          text   NOT NULL,
  sha256       bytea  NOT NULL,
  migration    text,
  created_by   text   COLLATE "C" NOT NULL,
  created_at   bigint NOT NULL,
  PRIMARY KEY (tenant, schema_id, version),
  UNIQUE (tenant, schema_id, ordinal)
);
