-- Where a handoff stands in its sender's trace, and under which span of the broker's own it was committed: a
-- delivery goes on from there, also after a restart and at another broker. Empty: nothing came, nothing was
-- exported.
ALTER TABLE handoffs ADD COLUMN tracestate text NOT NULL DEFAULT '';
ALTER TABLE handoffs ADD COLUMN span text NOT NULL DEFAULT '';
