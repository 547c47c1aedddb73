#!/bin/sh
# An agent that greets: it waits for handoffs, and answers each with a greeting. With --once it ends after the first.
# sh, sed and curl alone; the SDKs (docs/sdk) do the same in ten lines, with leases, retries and questions.
set -eu

BROKER=${HANDOFFD_URL:-http://127.0.0.1:8080}
cd "$(dirname "$0")"

field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }   # good enough for what follows
call()  { curl -fsS --max-time 90 -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' "$@"; }

# The agent's key, from the file that `handoffd apply --secrets-out` wrote.
KEY=$(grep '"name":"hello-receiver"' hello-keys.jsonl | field apiKey)

while true; do
  ITEM=$(call "$BROKER/agents/hello-receiver/inbox?wait=30")
  TOKEN=$(echo "$ITEM" | field fencingToken)
  [ -n "$TOKEN" ] || continue
  HANDOFF=$(echo "$ITEM" | sed -n 's/.*"handoffId":"\([0-9a-f-]*\)".*/\1/p')
  NAME=$(echo "$ITEM" | sed -n 's/.*"currentState":{[^}]*"name":"\([^"]*\)".*/\1/p')
  call "$BROKER/handoffs/$HANDOFF/accept" -d "{\"fencingToken\":$TOKEN}" > /dev/null
  echo "hello-receiver: Hello, $NAME!"
  call "$BROKER/handoffs/$HANDOFF/complete" -d "{\"fencingToken\":$TOKEN,\"result\":{\"greeting\":\"Hello, $NAME!\"}}" > /dev/null
  [ "${1:-}" != --once ] || exit 0
done
