-- Indexes for statements that read more rows than they need, and a look of retention from the beginning. Same number and
-- names as on the SQLite side. Expand only: an older binary goes on working beside.

-- Serves the erasure's DELETE of what a handoff's dedupe key was seen with.
CREATE INDEX contract_repeats_handoff ON contract_repeats (tenant, handoff_id);
-- Serves the list of open dead letters, their number, and retention's look for tasks that they hold.
CREATE INDEX dead_letters_open ON dead_letters (tenant, created_at, handoff_id) WHERE status = 'OPEN';
-- Serves the list of a task's escalations, newest first.
CREATE INDEX escalations_task ON escalations (tenant, task_id, created_at, escalation_id);
-- Serves the search for segments with erased contents. The salt comes first: it stands before the bytes of the row.
CREATE INDEX contents_forgotten ON contents (tenant, segment) WHERE salt IS NULL AND segment IS NOT NULL;

-- Retention looks at all records once more: until now it passed over handoffs whose content went with another page.
UPDATE purge_marks SET done_below = 0, scanned_to = 0;
