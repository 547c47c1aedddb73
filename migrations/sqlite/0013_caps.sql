-- Rolling caps. Same number, name and columns as on the Postgres side.

-- What a tenant (agent_id is empty) or an agent may spend within a window, and what counts against it. usd_nanos is
-- null where the settings say how much; books are JSON (src/domain/cap.rs), and change only under this row's lock.
CREATE TABLE caps (
    tenant     TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    window_s   INTEGER NOT NULL,
    usd_nanos  INTEGER,
    mark       INTEGER NOT NULL,
    books      TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent_id, window_s)
) STRICT, WITHOUT ROWID;
