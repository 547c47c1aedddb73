-- One handoff, one transaction: the rows that the broker writes for a submission, on its own tables,
-- with the log's head locked last, and no batching. The yardstick of benches/load; see
-- docs/performance.md. The sizes are those of a 4 KB message as the broker packs it.
\set n random(1, 9000000000000000000)
\set at random(1, 9000000000000000)
BEGIN;
SELECT status FROM tasks WHERE tenant = 'bare' AND task_id = lpad(:n::text, 36, 't') FOR UPDATE;
SELECT status FROM handoffs WHERE tenant = 'bare' AND handoff_id = lpad(:n::text, 36, 'h');
INSERT INTO tasks VALUES ('bare', lpad(:n::text, 36, 't'), 'HANDING_OFF', 'sender-1', NULL, NULL, 1, 1, 1, 0, 10000000, 400000000, :at, :at);
INSERT INTO handoffs VALUES ('bare', lpad(:n::text, 36, 'h'), lpad(:n::text, 36, 't'), NULL, 'sender-1', '1.0.0', lpad(:n::text, 36, 'e'), 'receiver-1', 'receiver-1', '1.0.0', 'webhook', 'PENDING', 1, 1, NULL, 10000000, 400000000, 1200, 300, true, lpad(:n::text, 36, 'e'), 1, lpad(:n::text, 36, 'c'), decode(md5(:n::text), 'hex'), decode(repeat(md5(:n::text), 2), 'hex'), NULL, '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', :at, NULL, NULL);
INSERT INTO outbox VALUES ('bare', lpad(:n::text, 36, 'h'), lpad(:n::text, 36, 't'), 1, 'receiver-1', 'webhook', :at, 1, 'broker-1', :at);
INSERT INTO checkpoints VALUES ('bare', lpad(:n::text, 36, 't'), lpad(:n::text, 36, 'e'), 1, 'sender-1', decode(repeat(md5(:n::text), 2), 'hex'), decode(md5(:n::text), 'hex'), 'zstd', decode(repeat(md5(:n::text), :checkpoint), 'hex'), :at);
INSERT INTO contents VALUES ('bare', lpad(:n::text, 36, 'c'), decode(md5(:n::text), 'hex'), 'zstd', decode(repeat(md5(:n::text), :content), 'hex'), :at);
SELECT size FROM audit.log_heads WHERE tenant = 'bare' FOR UPDATE \gset
INSERT INTO audit.records VALUES ('bare', :size, decode(repeat(md5(:n::text), 2), 'hex'), 'HANDOFF', lpad(:n::text, 36, 't'), lpad(:n::text, 36, 'h'), lpad(:n::text, 36, 'c'), :at, decode(repeat(md5(:n::text), :record), 'hex'));
UPDATE audit.log_heads SET size = :size + 1, hash = decode(repeat(md5(:n::text), 2), 'hex') WHERE tenant = 'bare';
COMMIT;
