#!/usr/bin/env bash
# One handoff with curl: what the README shows under "Five minutes with curl", as a script. Run it
# where `handoffd serve` was started, with a fresh ./handoffd-data; BROKER says where it listens.
# A test runs this file, and another holds the README against it.
set -eu

BROKER=${BROKER:-http://127.0.0.1:8080}
ADMIN=$(cat handoffd-data/admin.key)     # made at the first start

uuid()  { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }   # good enough for what follows
api()   { key=$1; shift; curl -sS -w '\n' -H "Authorization: Bearer $key" -H 'Content-Type: application/json' "$@"; }

# The operator registers two agents. Each gets a key, shown this once; intake may hand off to legal.
INTAKE=$(api "$ADMIN" "$BROKER/agents" -d '{"agentId":"intake","handoffTargets":["legal"]}' | field apiKey)
LEGAL=$(api "$ADMIN" "$BROKER/agents" -d '{"agentId":"legal"}' | field apiKey)

# Intake hands a task to legal. The 202 comes when handoff, checkpoint and audit record are on disk.
TASK=$(uuid) HANDOFF=$(uuid)
api "$INTAKE" "$BROKER/handoffs" -d @- <<EOF
{
  "schemaVersion": "2.1", "handoffId": "$HANDOFF", "taskId": "$TASK", "parentHandoffId": null,
  "fromAgent": {"agentId": "intake", "agentVersion": "1.0.0", "executionId": "$(uuid)"},
  "toAgent": {"agentId": "legal"},
  "timestamp": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
  "taskDescription": "Check the liability clauses",
  "completedSubtasks": [{"subtaskId": "s1", "description": "Read the contract", "result": {"pages": 12},
                         "completedAt": "$(date -u +%Y-%m-%dT%H:%M:%SZ)"}],
  "remainingSubtasks": [{"subtaskId": "s2", "description": "Check clauses 4.2 and 7.1"}],
  "currentState": {"clauses": ["4.2", "7.1"]},
  "relevantContext": [], "constraints": [],
  "costTracking": {"costSpentSoFarUSD": 0.08, "costBudgetRemainingUSD": 0.32,
                   "tokenSpent": {"prompt": 4200, "completion": 1800}},
  "conversationHistorySummary": "Two clauses speak of liability.",
  "conversationHistoryVerbatim": [], "toolCallHistory": [],
  "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  "checkpoint": {"step": "read", "pages": 12}
}
EOF

# Legal waits for its inbox, accepts under the fencing token that came along, does its part.
ITEM=$(api "$LEGAL" "$BROKER/agents/legal/inbox?wait=30")
echo "$ITEM"
TOKEN=$(echo "$ITEM" | field fencingToken)
api "$LEGAL" "$BROKER/handoffs/$HANDOFF/accept" -d "{\"fencingToken\":$TOKEN}"
api "$LEGAL" "$BROKER/handoffs/$HANDOFF/complete" -d "{\"fencingToken\":$TOKEN,\"result\":{\"risk\":\"low\"}}"
api "$LEGAL" "$BROKER/tasks/$TASK/complete" -d '{"output":{"verdict":"sign it"}}'

# What happened on the task, with what it cost and whether the evidence holds.
api "$ADMIN" "$BROKER/tasks/$TASK/trace"
