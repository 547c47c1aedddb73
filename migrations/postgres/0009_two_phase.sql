-- Batches whose records are in a database of their own (`audit.database_url`). SQLite has the number, and
-- no such table.

-- What became of a batch: committed with it, or put here as given up by whoever found it prepared and
-- undecided. The key decides who was first. Committed ones go once nothing is prepared under their names; there are
-- few of the others, and they stay.
CREATE TABLE two_phase (
  gid        text    COLLATE "C" PRIMARY KEY,
  committed  boolean NOT NULL
);

-- A legal hold on a task is looked for among its dead letters too.
CREATE INDEX dead_letters_task ON dead_letters (tenant, task_id);
