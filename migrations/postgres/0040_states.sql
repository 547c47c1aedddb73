-- Finds the records about agents, keys, contracts, payload schemas, subscriptions, legal holds and caps without reading the
-- others: a start and a verification hold the rows against them. Same number and name as on the SQLite side. Expand only: an
-- older binary goes on working beside.

CREATE INDEX records_state ON audit.records (tenant, leaf_index)
  WHERE kind IN ('AGENT_CREATED', 'AGENT_UPDATED', 'AGENT_DELETED', 'ENDPOINT_DISABLED', 'ENDPOINT_FAILING',
    'ENDPOINT_RECOVERED', 'SECRET_ROTATED', 'CONTRACT_PUT', 'PAYLOAD_SCHEMA_PUT', 'KEY_CREATED',
    'KEY_REVOKED', 'SUBSCRIPTION_CREATED', 'SUBSCRIPTION_UPDATED', 'SUBSCRIPTION_DELETED',
    'SUBSCRIPTION_DISABLED', 'SUBSCRIPTION_REPLAYED', 'LEGAL_HOLD_PLACED', 'LEGAL_HOLD_RELEASED',
    'BUDGET_CHANGED', 'STATE_ADOPTED');
