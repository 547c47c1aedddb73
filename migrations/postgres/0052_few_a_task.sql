-- If one task has most of the handoffs (a loop, a test, an import), a sample of the table has one or two tasks. The planner then expects
-- half of the table for each task and scans all of it, and a list that looks at the handoffs of 4,000 tasks exceeds its time. This
-- setting replaces the estimate from the sample by ten handoffs a task. SQLite reads by the index in any case.
ALTER TABLE handoffs ALTER COLUMN task_id SET (n_distinct = -0.1);
ANALYZE handoffs (task_id);
