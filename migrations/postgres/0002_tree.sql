-- The Merkle tree over each tenant's records. The leaves' hashes stand in the records; kept besides are
-- every eighth level above them, and the right edge in `audit.log_heads.frontier`.

CREATE TABLE audit.nodes (
  tenant  text   COLLATE "C" NOT NULL,
  level   bigint NOT NULL,
  idx     bigint NOT NULL,
  hash    bytea  NOT NULL,
  PRIMARY KEY (tenant, level, idx)
);

CREATE TRIGGER nodes_append_only BEFORE UPDATE OR DELETE ON audit.nodes
  FOR EACH ROW EXECUTE FUNCTION audit.refuse_change();
CREATE TRIGGER nodes_no_truncate BEFORE TRUNCATE ON audit.nodes
  FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

-- Public keys that sign tree heads. The private ones are never in the database.
CREATE TABLE audit.tree_keys (
  public_key  bytea  PRIMARY KEY,
  created_at  bigint NOT NULL,
  retired_at  bigint
);

-- How many records the log had after the transaction that appended this one: its receipt is over that
-- tree, whenever it is asked for.
ALTER TABLE audit.records ADD COLUMN tree_size bigint;
