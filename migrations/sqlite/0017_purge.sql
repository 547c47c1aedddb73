-- The end of retention. Same number, name and columns as on the Postgres side.
-- When a content's time was over and it went for good; null where it is kept, and where a person's request
-- erased it. The record that lists it is the evidence; this tells readers why there is nothing to read.
ALTER TABLE contents ADD COLUMN purged_at INTEGER;

-- How far a tenant's log was gone through for what is past its time: as `archive_marks`. `unclean` is set
-- before a run takes anything, and taken back once segments and files are clean of what went.
CREATE TABLE purge_marks (
  tenant TEXT PRIMARY KEY,
  done_below INTEGER NOT NULL,
  scanned_to INTEGER NOT NULL,
  rescan_at INTEGER NOT NULL,
  unclean INTEGER NOT NULL
) STRICT;
