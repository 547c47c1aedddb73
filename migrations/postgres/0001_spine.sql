-- The spine. Same number, name and columns as on the SQLite side.
-- Ids and canonical JSON are kept as the exact text or bytes that were hashed (never jsonb, which
-- reorders); time is microseconds since the epoch, bound from the broker's clock. Hot tables and
-- unique keys lead with the tenant, so that the data distributes.

CREATE TABLE tenants (
  tenant      text   COLLATE "C" PRIMARY KEY,
  created_at  bigint NOT NULL
);

-- Facts about this database, set once (e.g. the check value of the master key).
CREATE TABLE facts (
  name   text  COLLATE "C" PRIMARY KEY,
  value  bytea NOT NULL
);

CREATE TABLE brokers (
  broker   text   COLLATE "C" PRIMARY KEY,
  seen_at  bigint NOT NULL
);

CREATE TABLE api_keys (
  tenant      text   COLLATE "C" NOT NULL,
  key_id      text   COLLATE "C" NOT NULL,
  key_hash    bytea  NOT NULL,
  role        text   COLLATE "C" NOT NULL,
  agent_id    text   COLLATE "C",
  label       text   NOT NULL,
  created_at  bigint NOT NULL,
  expires_at  bigint,
  PRIMARY KEY (tenant, key_id)
);
CREATE UNIQUE INDEX api_keys_hash ON api_keys (key_hash);

CREATE TABLE agents (
  tenant      text   COLLATE "C" NOT NULL,
  agent_id    text   COLLATE "C" NOT NULL,
  doc         text   NOT NULL,
  secrets     text   NOT NULL,
  created_at  bigint NOT NULL,
  updated_at  bigint NOT NULL,
  PRIMARY KEY (tenant, agent_id)
);

CREATE TABLE tasks (
  tenant                text   COLLATE "C" NOT NULL,
  task_id               text   COLLATE "C" NOT NULL,
  status                text   COLLATE "C" NOT NULL,
  holder                text   COLLATE "C" NOT NULL,
  checkpoint_execution  text   COLLATE "C",
  checkpoint_seq        bigint,
  fence                 bigint NOT NULL,
  handoffs              bigint NOT NULL,
  undelivered           bigint NOT NULL,
  failures              bigint NOT NULL,
  spent_nanos           bigint NOT NULL,
  remaining_nanos       bigint NOT NULL,
  created_at            bigint NOT NULL,
  updated_at            bigint NOT NULL,
  PRIMARY KEY (tenant, task_id)
);
CREATE INDEX tasks_created ON tasks (tenant, created_at DESC, task_id DESC);

CREATE TABLE handoffs (
  tenant                text    COLLATE "C" NOT NULL,
  handoff_id            text    COLLATE "C" NOT NULL,
  task_id               text    COLLATE "C" NOT NULL,
  parent_id             text    COLLATE "C",
  source                text    COLLATE "C" NOT NULL,
  source_version        text    NOT NULL,
  source_execution      text    COLLATE "C" NOT NULL,
  target                text    COLLATE "C" NOT NULL,
  target_type           text    NOT NULL,
  target_version        text    NOT NULL,
  mode                  text    COLLATE "C" NOT NULL,
  status                text    COLLATE "C" NOT NULL,
  fencing_token         bigint  NOT NULL,
  attempts              integer NOT NULL,
  deadline_at           bigint,
  spent_nanos           bigint  NOT NULL,
  remaining_nanos       bigint  NOT NULL,
  prompt_tokens         bigint  NOT NULL,
  completion_tokens     bigint  NOT NULL,
  idempotent            boolean NOT NULL,
  checkpoint_execution  text    COLLATE "C",
  checkpoint_seq        bigint,
  content_id            text    COLLATE "C",
  digest_salt           bytea   NOT NULL,
  digest                bytea   NOT NULL,
  reason                text,
  traceparent           text    NOT NULL,
  created_at            bigint  NOT NULL,
  accepted_at           bigint,
  ended_at              bigint,
  PRIMARY KEY (tenant, handoff_id)
);
CREATE INDEX handoffs_task ON handoffs (tenant, task_id);
CREATE INDEX handoffs_created ON handoffs (tenant, created_at DESC, handoff_id DESC);
CREATE INDEX handoffs_open ON handoffs (tenant, target) WHERE status IN ('PENDING', 'ACCEPTED');
CREATE INDEX handoffs_deadline ON handoffs (deadline_at)
  WHERE deadline_at IS NOT NULL AND status IN ('PENDING', 'ACCEPTED');

-- What still has to reach a receiver. Rows are deleted when settled; a claim moves `visible_at`.
CREATE TABLE outbox (
  tenant      text    COLLATE "C" NOT NULL,
  handoff_id  text    COLLATE "C" NOT NULL,
  task_id     text    COLLATE "C" NOT NULL,
  seq         bigint  NOT NULL,
  target      text    COLLATE "C" NOT NULL,
  mode        text    COLLATE "C" NOT NULL,
  visible_at  bigint  NOT NULL,
  attempt     integer NOT NULL,
  claimed_by  text    COLLATE "C",
  created_at  bigint  NOT NULL,
  PRIMARY KEY (tenant, handoff_id)
) WITH (fillfactor = 70);
CREATE INDEX outbox_receiver ON outbox (tenant, target, created_at);
CREATE INDEX outbox_task ON outbox (tenant, task_id, seq);

CREATE TABLE checkpoints (
  tenant        text   COLLATE "C" NOT NULL,
  task_id       text   COLLATE "C" NOT NULL,
  execution_id  text   COLLATE "C" NOT NULL,
  seq           bigint NOT NULL,
  agent_id      text   COLLATE "C" NOT NULL,
  commitment    bytea  NOT NULL,
  salt          bytea  NOT NULL,
  codec         text   COLLATE "C" NOT NULL,
  bytes         bytea  NOT NULL,
  created_at    bigint NOT NULL,
  PRIMARY KEY (tenant, task_id, execution_id, seq)
);

CREATE TABLE idempotency_keys (
  tenant           text   COLLATE "C" NOT NULL,
  agent_id         text   COLLATE "C" NOT NULL,
  idempotency_key  text   COLLATE "C" NOT NULL,
  handoff_id       text   COLLATE "C" NOT NULL,
  created_at       bigint NOT NULL,
  PRIMARY KEY (tenant, agent_id, idempotency_key)
);

CREATE TABLE dead_letters (
  tenant      text   COLLATE "C" NOT NULL,
  handoff_id  text   COLLATE "C" NOT NULL,
  task_id     text   COLLATE "C" NOT NULL,
  source      text   COLLATE "C" NOT NULL,
  target      text   COLLATE "C",
  reason      text   NOT NULL,
  failures    text   NOT NULL,
  status      text   COLLATE "C" NOT NULL,
  created_at  bigint NOT NULL,
  PRIMARY KEY (tenant, handoff_id)
);
CREATE INDEX dead_letters_created ON dead_letters (tenant, created_at DESC, handoff_id DESC);

-- The log stands in a schema of its own (ruling X5), so that its grants can be told apart.
CREATE SCHEMA audit;

CREATE TABLE audit.log_heads (
  tenant    text   COLLATE "C" PRIMARY KEY,
  log_id    text   COLLATE "C" NOT NULL,
  size      bigint NOT NULL,
  hash      bytea  NOT NULL,
  frontier  bytea
) WITH (fillfactor = 50);

CREATE TABLE audit.records (
  tenant       text   COLLATE "C" NOT NULL,
  leaf_index   bigint NOT NULL,
  record_hash  bytea  NOT NULL,
  kind         text   COLLATE "C" NOT NULL,
  task_id      text   COLLATE "C",
  handoff_id   text   COLLATE "C",
  content_id   text   COLLATE "C",
  recorded_at  bigint NOT NULL,
  body         bytea  NOT NULL,
  PRIMARY KEY (tenant, leaf_index)
);
CREATE INDEX records_task ON audit.records (tenant, task_id, leaf_index) WHERE task_id IS NOT NULL;
CREATE INDEX records_handoff ON audit.records (tenant, handoff_id)
  WHERE kind IN ('HANDOFF', 'DEAD_LETTERED', 'NO_OP');
ALTER TABLE audit.records ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE FUNCTION audit.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the audit log is append-only: % refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER records_append_only BEFORE UPDATE OR DELETE ON audit.records
  FOR EACH ROW EXECUTE FUNCTION audit.refuse_change();
CREATE TRIGGER records_no_truncate BEFORE TRUNCATE ON audit.records
  FOR EACH STATEMENT EXECUTE FUNCTION audit.refuse_change();

-- What records commit to, beside the log: can be erased without touching a record. An erased row
-- keeps its id and has neither salt nor bytes.
CREATE TABLE contents (
  tenant      text   COLLATE "C" NOT NULL,
  content_id  text   COLLATE "C" NOT NULL,
  salt        bytea,
  codec       text   COLLATE "C" NOT NULL,
  bytes       bytea,
  created_at  bigint NOT NULL,
  PRIMARY KEY (tenant, content_id)
);
ALTER TABLE contents ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Personal data apart from the message, indexed by data subject (seed 000 §12.3).
CREATE TABLE personal_data (
  tenant      text    COLLATE "C" NOT NULL,
  leaf_index  bigint  NOT NULL,
  ordinal     integer NOT NULL,
  handoff_id  text    COLLATE "C",
  subject_id  text    NOT NULL,
  salt        bytea,
  codec       text    COLLATE "C" NOT NULL,
  bytes       bytea,
  created_at  bigint  NOT NULL,
  PRIMARY KEY (tenant, leaf_index, ordinal)
);
CREATE INDEX personal_data_subject ON personal_data (tenant, subject_id);
CREATE INDEX personal_data_handoff ON personal_data (tenant, handoff_id) WHERE handoff_id IS NOT NULL;
