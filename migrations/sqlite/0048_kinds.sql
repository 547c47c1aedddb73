-- The kinds of two partial indexes as terms of an OR. SQLite fills a temporary b-tree with the items of an IN list each time that
-- it evaluates the list, and it evaluates both for each new record. SQLite alone: Postgres compares with an array. The indexes
-- keep their names and their rows.

DROP INDEX records_state;
CREATE INDEX records_state ON audit_records (tenant, leaf_index)
  WHERE kind = 'AGENT_CREATED' OR kind = 'AGENT_UPDATED' OR kind = 'AGENT_DELETED' OR
    kind = 'ENDPOINT_DISABLED' OR kind = 'ENDPOINT_FAILING' OR kind = 'ENDPOINT_RECOVERED' OR
    kind = 'SECRET_ROTATED' OR kind = 'CONTRACT_PUT' OR kind = 'PAYLOAD_SCHEMA_PUT' OR
    kind = 'KEY_CREATED' OR kind = 'KEY_REVOKED' OR kind = 'SUBSCRIPTION_CREATED' OR
    kind = 'SUBSCRIPTION_UPDATED' OR kind = 'SUBSCRIPTION_DELETED' OR kind = 'SUBSCRIPTION_DISABLED' OR
    kind = 'SUBSCRIPTION_REPLAYED' OR kind = 'LEGAL_HOLD_PLACED' OR kind = 'LEGAL_HOLD_RELEASED' OR
    kind = 'BUDGET_CHANGED' OR kind = 'STATE_ADOPTED';

DROP INDEX records_handoff;
CREATE INDEX records_handoff ON audit_records (tenant, handoff_id)
  WHERE kind = 'HANDOFF' OR kind = 'DEAD_LETTERED' OR kind = 'NO_OP';
