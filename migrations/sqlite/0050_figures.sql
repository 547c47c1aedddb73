-- A task's cost and what it has left, as numbers, for lists: the budget in `funds` may be packed. Null in a row that an older version
-- wrote, where lists go by the figures that its last message stated.
ALTER TABLE tasks ADD COLUMN cost_nanos INTEGER;
ALTER TABLE tasks ADD COLUMN left_nanos INTEGER;
