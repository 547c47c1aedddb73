-- Handoffs by the user that they are for. Same number, names and columns as on the Postgres side.
-- Expand only: an older binary goes on working beside, and leaves the column NULL.

-- The reference to the user that the message names: a keyed hash of the id. NULL where it names none, and once erased.
ALTER TABLE handoffs ADD COLUMN user_ref TEXT;
CREATE INDEX handoffs_user ON handoffs (tenant, user_ref, created_at, handoff_id) WHERE user_ref IS NOT NULL;
