-- Events and who is told of them. Same number, name and columns as on the SQLite side.

-- What happened. A row belongs to the record with its leaf index and is committed with it; it holds
-- ids, codes and figures only. Rows are inserted, and deleted once they are old.
CREATE TABLE events (
  tenant      text    COLLATE "C" NOT NULL,
  leaf_index  bigint  NOT NULL,
  ordinal     integer NOT NULL,
  event_id    text    COLLATE "C" NOT NULL,
  type        text    COLLATE "C" NOT NULL,
  at          bigint  NOT NULL,
  task_id     text    COLLATE "C",
  handoff_id  text    COLLATE "C",
  source      text    COLLATE "C",
  target      text    COLLATE "C",
  audience    text    COLLATE "C",
  data        text    NOT NULL,
  PRIMARY KEY (tenant, leaf_index, ordinal)
);
CREATE INDEX events_audience ON events (tenant, audience, leaf_index, ordinal)
  WHERE audience IS NOT NULL;

CREATE TABLE subscriptions (
  tenant           text   COLLATE "C" NOT NULL,
  subscription_id  text   COLLATE "C" NOT NULL,
  doc              text   NOT NULL,
  secrets          text   NOT NULL,
  created_at       bigint NOT NULL,
  updated_at       bigint NOT NULL,
  PRIMARY KEY (tenant, subscription_id)
);

-- How far each subscriber has been told, and which broker tells it now.
CREATE TABLE event_cursors (
  tenant         text    COLLATE "C" NOT NULL,
  subscriber     text    COLLATE "C" NOT NULL,
  audience       text    COLLATE "C",
  leaf_index     bigint  NOT NULL,
  ordinal        integer NOT NULL,
  active         boolean NOT NULL,
  broker         text    COLLATE "C",
  lease_until    bigint  NOT NULL,
  next_at        bigint  NOT NULL,
  failures       integer NOT NULL,
  failing_since  bigint,
  attempts       bigint  NOT NULL,
  PRIMARY KEY (tenant, subscriber)
) WITH (fillfactor = 50);

-- The last attempts of each subscriber, as a ring of fixed size.
CREATE TABLE event_deliveries (
  tenant       text    COLLATE "C" NOT NULL,
  subscriber   text    COLLATE "C" NOT NULL,
  slot         integer NOT NULL,
  number       bigint  NOT NULL,
  leaf_index   bigint  NOT NULL,
  ordinal      integer NOT NULL,
  event_id     text    COLLATE "C" NOT NULL,
  type         text    COLLATE "C" NOT NULL,
  at           bigint  NOT NULL,
  attempt      integer NOT NULL,
  outcome      text    COLLATE "C" NOT NULL,
  status       integer,
  detail       text,
  duration_us  bigint  NOT NULL,
  PRIMARY KEY (tenant, subscriber, slot)
) WITH (fillfactor = 70);

-- Agents that had a callbackUrl before there were events: told from here on.
INSERT INTO event_cursors
SELECT a.tenant, 'agent/' || a.agent_id, a.agent_id, h.size - 1, 2147483647, true, NULL, 0, 0, 0, NULL, 0
FROM agents AS a JOIN audit.log_heads AS h ON h.tenant = a.tenant
WHERE a.doc LIKE '%"callbackUrl":"http%';
