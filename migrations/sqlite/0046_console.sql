-- Sessions of the console, and indexes for what it lists first. Same number, name and columns as on the Postgres side.
-- Expand only: an older binary goes on working beside, and has no console.

-- One row is a login of a person by a key. Deleted at the end of the session.
CREATE TABLE console_sessions (
  tenant        TEXT NOT NULL,
  session_id    TEXT NOT NULL,
  -- SHA-256 of the random token that the cookie holds.
  token_hash    BLOB NOT NULL,
  -- The key of the login, and its role at that time.
  key_id        TEXT NOT NULL,
  role          TEXT NOT NULL,
  created_at    INTEGER NOT NULL,
  -- The last request, to the minute.
  last_seen_at  INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  -- The name that the browser gives itself, 120 characters at most; NULL without one.
  user_agent    TEXT,
  PRIMARY KEY (tenant, session_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX console_sessions_token ON console_sessions (token_hash);
CREATE INDEX console_sessions_time ON console_sessions (tenant, created_at, session_id);
CREATE INDEX console_sessions_key ON console_sessions (tenant, key_id, created_at);
CREATE INDEX console_sessions_expiry ON console_sessions (expires_at);
CREATE INDEX console_sessions_idle ON console_sessions (last_seen_at);

-- Serve what needs attention: the oldest open escalations, and the tasks of a tenant that wait for longest.
CREATE INDEX escalations_waiting ON escalations (tenant, created_at, escalation_id) WHERE status = 'OPEN';
CREATE INDEX waiting_tasks_oldest ON waiting_tasks (tenant, since, task_id);
