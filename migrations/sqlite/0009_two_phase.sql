-- A separate audit database is Postgres's alone: nothing to do here but to keep the numbers in step.
SELECT 1;
