-- Between which times a handoff's latency is measured, in microseconds; its acceptance may be recorded by another
-- broker, or after a restart. `started_at`: the first byte of its request, or its release from the dead letters;
-- null in rows of before, where `created_at` stands for it. `offered_at`: when its receiver could first take it.
ALTER TABLE handoffs ADD COLUMN started_at INTEGER;
ALTER TABLE handoffs ADD COLUMN offered_at INTEGER;
