#!/bin/sh
# An agent that hands a task to `hello-receiver`, in another process, and prints the result.
# sh, sed and curl alone; the SDKs (docs/sdk) do the same in five lines.
set -eu

BROKER=${HANDOFFD_URL:-http://127.0.0.1:8080}
cd "$(dirname "$0")"

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }   # good enough for what follows
call()  { curl -fsS --max-time 90 -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' "$@"; }
uuid()  { cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-F a-f; }
hex()   { uuid | tr -d - | cut -c "1-$1"; }

# The agent's key, from the file that `handoffd apply --secrets-out` wrote.
KEY=$(grep '"name":"hello-sender"' hello-keys.jsonl | field apiKey)
HANDOFF=$(uuid) NOW=$(date -u +%Y-%m-%dT%H:%M:%SZ)

# The contract asks for taskSummary, constraints, and name and provenance of the state; see handoffd/contracts.
call "$BROKER/handoffs" -d @- > /dev/null <<EOF
{
  "schemaVersion": "2.1", "handoffId": "$HANDOFF", "taskId": "$(uuid)", "parentHandoffId": null,
  "fromAgent": {"agentId": "hello-sender", "agentVersion": "1.0.0", "executionId": "$(uuid)"},
  "toAgent": {"agentId": "hello-receiver"},
  "timestamp": "$NOW",
  "taskDescription": "Greet the world",
  "taskSummary": "A greeting by name",
  "completedSubtasks": [{"subtaskId": "s0", "description": "Hear the name", "result": {"name": "world"}, "completedAt": "$NOW"}],
  "remainingSubtasks": [{"subtaskId": "s1", "description": "Say hello"}],
  "currentState": {"name": "world", "provenance": {"trajectory": "hello_sender.sh"}},
  "relevantContext": [], "constraints": ["language:en"],
  "costTracking": {"costSpentSoFarUSD": 0, "costBudgetRemainingUSD": 0.1, "tokenSpent": {"prompt": 0, "completion": 0}},
  "conversationHistorySummary": "The world asked to be greeted.",
  "conversationHistoryVerbatim": [], "toolCallHistory": [],
  "traceparent": "00-$(hex 32)-$(hex 16)-01",
  "checkpoint": {"step": "asked"}
}
EOF

while true; do
  DONE=$(call "$BROKER/handoffs/$HANDOFF?wait=60&until=ended&include=verdict")
  STATUS=$(echo "$DONE" | sed -n 's/.*"status":"\([A-Z_]*\)".*/\1/p')
  case $STATUS in COMPLETED | FAILED | REJECTED | EXPIRED | DEAD_LETTERED | CANCELED) break ;; esac
done
echo "hello-sender: $STATUS: $(echo "$DONE" | sed -n 's/.*"result":\({[^}]*}\).*/\1/p')"
