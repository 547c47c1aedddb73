-- Rolling caps. Same number, name and columns as on the SQLite side.

-- What a tenant (agent_id is empty) or an agent may spend within a window, and what counts against it. usd_nanos is
-- null where the settings say how much; books are JSON (src/domain/cap.rs), and change only under this row's lock.
CREATE TABLE caps (
    tenant     text NOT NULL,
    agent_id   text NOT NULL,
    window_s   bigint NOT NULL,
    usd_nanos  bigint,
    mark       bigint NOT NULL,
    books      text NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (tenant, agent_id, window_s)
);
