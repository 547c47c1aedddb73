-- What was measured of a handoff's message against its receiver's context window, as JSON; null where an older version
-- committed it. Same number, name and columns as on the SQLite side. Expand only: an older binary goes on working beside.

ALTER TABLE handoffs ADD COLUMN context text;
-- The content that the receiver gets in the message's place, once the message was compressed.
ALTER TABLE handoffs ADD COLUMN sent_id text;
