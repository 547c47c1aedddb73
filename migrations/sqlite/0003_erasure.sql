-- Erasure, access and legal hold. Same number, name and columns as on the Postgres side.

-- One erasure of a data subject. `subject_key` is a keyed hash of the subject's id: who has the master
-- key and the id finds the row, nobody else can name the person. `subject_id` stands here only while
-- data is still being erased.
CREATE TABLE erasures (
  tenant TEXT NOT NULL,
  erasure_id TEXT NOT NULL,
  subject_key BLOB NOT NULL,
  subject_id TEXT,
  commitment BLOB NOT NULL,
  scope TEXT NOT NULL,
  reason TEXT NOT NULL,
  status TEXT NOT NULL,
  held INTEGER NOT NULL,
  data INTEGER NOT NULL,
  contents INTEGER NOT NULL,
  checkpoints INTEGER NOT NULL,
  leaf_index INTEGER,
  requested_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  completed_at INTEGER,
  PRIMARY KEY (tenant, erasure_id)
) STRICT;
CREATE INDEX erasures_subject ON erasures (tenant, subject_key, requested_at);
CREATE INDEX erasures_unfinished ON erasures (updated_at) WHERE status <> 'COMPLETED';

-- What may not be erased: a subject, or whoever has data on a task. `subject_id` goes with the release.
CREATE TABLE legal_holds (
  tenant TEXT NOT NULL,
  hold_id TEXT NOT NULL,
  subject_key BLOB,
  subject_id TEXT,
  task_id TEXT,
  reason TEXT NOT NULL,
  placed_at INTEGER NOT NULL,
  released_at INTEGER,
  PRIMARY KEY (tenant, hold_id)
) STRICT;
CREATE INDEX legal_holds_active ON legal_holds (tenant, subject_key) WHERE released_at IS NULL;

-- A subject's data in log order, for pages of it.
CREATE INDEX personal_data_held ON personal_data (tenant, subject_id, leaf_index, ordinal);
DROP INDEX personal_data_subject;
