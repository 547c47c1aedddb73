-- The cold tier. Same number, name and columns as on the Postgres side.
-- A content whose bytes lie in a segment of the archive: `bytes` is null, `salt` is not, and the
-- three columns say where. The salt never leaves the database: without it the frame in the segment
-- opens no commitment. Erasing sets `salt` null and leaves the place, so that the archive finds
-- which segments still hold what is to be forgotten.

ALTER TABLE contents ADD COLUMN segment TEXT;
ALTER TABLE contents ADD COLUMN seg_offset INTEGER;
ALTER TABLE contents ADD COLUMN seg_length INTEGER;
CREATE INDEX contents_segment ON contents (tenant, segment) WHERE segment IS NOT NULL;

-- Who does what only one broker may do at a time. What is written under a lease names its owner in
-- the same transaction, so an owner that was overtaken writes nothing, whatever its clock says.
CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  owner TEXT NOT NULL,
  held_until INTEGER NOT NULL
) STRICT;

-- How far a tenant's log was gone through. Everything below `done_below` is archived, erased or has
-- no content; up to `scanned_to` only what was held back then is still hot, and is looked at again
-- from `rescan_at` on.
CREATE TABLE archive_marks (
  tenant TEXT PRIMARY KEY,
  done_below INTEGER NOT NULL,
  scanned_to INTEGER NOT NULL,
  rescan_at INTEGER NOT NULL
) STRICT;
