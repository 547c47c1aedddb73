-- Who goes first. Same number, name and columns as on the SQLite side.
-- An older broker beside a newer one writes no priority: its handoffs are normal ones.

-- 0 urgent, 1 high, 2 normal, 3 low.
ALTER TABLE outbox ADD COLUMN priority integer NOT NULL DEFAULT 2;
CREATE INDEX outbox_order ON outbox (tenant, target, priority, created_at);
-- The new one serves whatever the old one did; nothing depends on it but speed.
DROP INDEX outbox_receiver;
