-- What tasks may spend. Same number, name and columns as on the SQLite side.

-- The books of the task's tree, as JSON (src/domain/funds.rs). Null: begun before there were any.
ALTER TABLE tasks ADD COLUMN funds text;
