-- Clocks compared, and erasures widened. Same number, names and columns as on the SQLite side. Expand only: an older binary
-- goes on working beside, and leaves both columns NULL.

-- Microseconds by which the broker's clock was ahead of the database's at its last heartbeat.
ALTER TABLE brokers ADD COLUMN clock_offset_us bigint;

-- The erasure that took the datum: a later one of a wider scope finds by it which tasks the person's data came with.
ALTER TABLE personal_data ADD COLUMN erasure_id text COLLATE "C";
CREATE INDEX personal_data_erasure ON personal_data (tenant, erasure_id) WHERE erasure_id IS NOT NULL;
