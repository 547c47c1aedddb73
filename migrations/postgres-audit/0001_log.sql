-- The log in a database of its own (`audit.database_url`): the schema `audit` as migrations 0001 to 0009
-- make it beside the operations, and whose log it is.

CREATE SCHEMA audit;

-- Which installation this log belongs to: the same value stands among the facts of its operational
-- database. One row.
CREATE TABLE audit.identity (
  one           boolean PRIMARY KEY CHECK (one),
  installation  text    COLLATE "C" NOT NULL
);

CREATE TABLE audit.log_heads (
  tenant    text   COLLATE "C" PRIMARY KEY,
  log_id    text   COLLATE "C" NOT NULL,
  size      bigint NOT NULL,
  hash      bytea  NOT NULL,
  frontier  bytea
) WITH (fillfactor = 50);

CREATE TABLE audit.records (
  tenant       text   COLLATE "C" NOT NULL,
  leaf_index   bigint NOT NULL,
  record_hash  bytea  NOT NULL,
  kind         text   COLLATE "C" NOT NULL,
  task_id      text   COLLATE "C",
  handoff_id   text   COLLATE "C",
  content_id   text   COLLATE "C",
  recorded_at  bigint NOT NULL,
  body         bytea  NOT NULL,
  tree_size    bigint,
  PRIMARY KEY (tenant, leaf_index)
);
CREATE INDEX records_task ON audit.records (tenant, task_id, leaf_index) WHERE task_id IS NOT NULL;
CREATE INDEX records_handoff ON audit.records (tenant, handoff_id)
  WHERE kind IN ('HANDOFF', 'DEAD_LETTERED', 'NO_OP');
ALTER TABLE audit.records ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE audit.nodes (
  tenant  text   COLLATE "C" NOT NULL,
  level   bigint NOT NULL,
  idx     bigint NOT NULL,
  hash    bytea  NOT NULL,
  PRIMARY KEY (tenant, level, idx)
);

CREATE TABLE audit.tree_keys (
  public_key  bytea  PRIMARY KEY,
  created_at  bigint NOT NULL,
  retired_at  bigint
);

CREATE FUNCTION audit.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is append-only: % refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER records_append_only BEFORE UPDATE OR DELETE ON audit.records
  FOR EACH ROW EXECUTE FUNCTION audit.refuse_change();
CREATE TRIGGER records_no_truncate BEFORE TRUNCATE ON audit.records
  FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();
CREATE TRIGGER nodes_append_only BEFORE UPDATE OR DELETE ON audit.nodes
  FOR EACH ROW EXECUTE FUNCTION audit.refuse_change();
CREATE TRIGGER nodes_no_truncate BEFORE TRUNCATE ON audit.nodes
  FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();
