-- What the receiver of an accepted handoff asks its sender (specification 10.3), and the conversation that a handoff belongs
-- to. Same number, name and columns as on the Postgres side. Expand only: an older binary goes on working beside. To it a handoff
-- with an open question is an accepted one whose lease ends when the answer is due.

-- The number of the open question; null: none is open. `status` is then ACCEPTED.
ALTER TABLE handoffs ADD COLUMN question INTEGER;
-- All questions of the handoff, with ids of their contents, as JSON; null for none.
ALTER TABLE handoffs ADD COLUMN questions TEXT;
-- `conversationId` of the message; null where it has none, an older version committed it, or it was erased.
ALTER TABLE handoffs ADD COLUMN conversation_id TEXT;
CREATE INDEX handoffs_conversation ON handoffs (tenant, conversation_id, created_at)
  WHERE conversation_id IS NOT NULL;
-- The number of the question that the item tells of; null: the task came back.
ALTER TABLE returns ADD COLUMN question INTEGER;
