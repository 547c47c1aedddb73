-- The Merkle tree over each tenant's records. The leaves' hashes stand in the records; kept besides are
-- every eighth level above them, and the right edge in `audit_log_heads.frontier`.

CREATE TABLE audit_nodes (
  tenant TEXT NOT NULL,
  level INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  hash BLOB NOT NULL,
  PRIMARY KEY (tenant, level, idx)
) STRICT;

CREATE TRIGGER audit_nodes_no_update BEFORE UPDATE ON audit_nodes
BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only: UPDATE refused');
END;
CREATE TRIGGER audit_nodes_no_delete BEFORE DELETE ON audit_nodes
BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only: DELETE refused');
END;
CREATE TRIGGER audit_nodes_no_replace BEFORE INSERT ON audit_nodes
WHEN EXISTS (SELECT 1 FROM audit_nodes WHERE tenant = NEW.tenant AND level = NEW.level AND idx = NEW.idx)
BEGIN
  SELECT RAISE(ABORT, 'the audit log is append-only: REPLACE refused');
END;

-- Public keys that sign tree heads. The private ones are never in the database.
CREATE TABLE audit_tree_keys (
  public_key BLOB PRIMARY KEY,
  created_at INTEGER NOT NULL,
  retired_at INTEGER
) STRICT;

-- How many records the log had after the transaction that appended this one: its receipt is over that
-- tree, whenever it is asked for.
ALTER TABLE audit_records ADD COLUMN tree_size INTEGER;
