-- Erasure, access and legal hold. Same number, name and columns as on the SQLite side.

-- One erasure of a data subject. `subject_key` is a keyed hash of the subject's id: who has the master
-- key and the id finds the row, nobody else can name the person. `subject_id` stands here only while
-- data is still being erased.
CREATE TABLE erasures (
  tenant        text   COLLATE "C" NOT NULL,
  erasure_id    text   COLLATE "C" NOT NULL,
  subject_key   bytea  NOT NULL,
  subject_id    text,
  commitment    bytea  NOT NULL,
  scope         text   COLLATE "C" NOT NULL,
  reason        text   COLLATE "C" NOT NULL,
  status        text   COLLATE "C" NOT NULL,
  held          bigint NOT NULL,
  data          bigint NOT NULL,
  contents      bigint NOT NULL,
  checkpoints   bigint NOT NULL,
  leaf_index    bigint,
  requested_at  bigint NOT NULL,
  updated_at    bigint NOT NULL,
  completed_at  bigint,
  PRIMARY KEY (tenant, erasure_id)
);
CREATE INDEX erasures_subject ON erasures (tenant, subject_key, requested_at);
CREATE INDEX erasures_unfinished ON erasures (updated_at) WHERE status <> 'COMPLETED';

-- What may not be erased: a subject, or whoever has data on a task. `subject_id` goes with the release.
CREATE TABLE legal_holds (
  tenant       text   COLLATE "C" NOT NULL,
  hold_id      text   COLLATE "C" NOT NULL,
  subject_key  bytea,
  subject_id   text,
  task_id      text   COLLATE "C",
  reason       text   NOT NULL,
  placed_at    bigint NOT NULL,
  released_at  bigint,
  PRIMARY KEY (tenant, hold_id)
);
CREATE INDEX legal_holds_active ON legal_holds (tenant, subject_key) WHERE released_at IS NULL;

-- A subject's data in log order, for pages of it.
CREATE INDEX personal_data_held ON personal_data (tenant, subject_id, leaf_index, ordinal);
DROP INDEX personal_data_subject;
