-- Fewer writes a handoff, as far as an older broker beside can stand it. There is no 19: it is SQLite's alone.

-- A task's checkpoints are found by the key, and sorted: they are few.
DROP INDEX checkpoints_created;

-- A task is written anew soon after it was made, and no column of an index changes: with room in its page for the new
-- row, its indexes are left alone.
ALTER TABLE tasks SET (fillfactor = 80);
