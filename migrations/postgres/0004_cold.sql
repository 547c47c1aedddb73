-- The cold tier. Same number, name and columns as on the SQLite side.
-- A content whose bytes lie in a segment of the archive: `bytes` is null, `salt` is not, and the
-- three columns say where. The salt never leaves the database: without it the frame in the segment
-- opens no commitment. Erasing sets `salt` null and leaves the place, so that the archive finds
-- which segments still hold what is to be forgotten.

ALTER TABLE contents ADD COLUMN segment text COLLATE "C";
ALTER TABLE contents ADD COLUMN seg_offset bigint;
ALTER TABLE contents ADD COLUMN seg_length bigint;
CREATE INDEX contents_segment ON contents (tenant, segment) WHERE segment IS NOT NULL;

-- Who does what only one broker may do at a time. What is written under a lease names its owner in
-- the same transaction, so an owner that was overtaken writes nothing, whatever its clock says.
CREATE TABLE leases (
  name text COLLATE "C" PRIMARY KEY,
  owner text COLLATE "C" NOT NULL,
  held_until bigint NOT NULL
);

-- How far a tenant's log was gone through. Everything below `done_below` is archived, erased or has
-- no content; up to `scanned_to` only what was held back then is still hot, and is looked at again
-- from `rescan_at` on.
CREATE TABLE archive_marks (
  tenant text COLLATE "C" PRIMARY KEY,
  done_below bigint NOT NULL,
  scanned_to bigint NOT NULL,
  rescan_at bigint NOT NULL
);
