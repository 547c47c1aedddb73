-- When the holder of a lease was last heard of. Same number, names and columns as on the Postgres side. Expand only: an older
-- binary goes on working beside.

-- JSON: the interval that the holder stated, when it was heard of, the lease's end as of then; null where it stated none.
ALTER TABLE handoffs ADD COLUMN pulse TEXT;
