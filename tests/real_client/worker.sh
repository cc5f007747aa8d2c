#!/bin/sh
# A worker with nothing but POSIX sh and curl: no SDK, no jq, no signatures.
#
# Environment: BASE_URL and API_KEY (needed), HANDLER (needed: a shell command; it gets the claim
# on stdin and INTENT_ID, CLAIM_TOKEN in its environment; its output becomes the result, a non-zero
# exit a failure), GOAL, NAMESPACE, WORKER_ID, CAPABILITIES, EMPTY_MAX (stop after that many empty
# claims in a row; 0 means never).
#
# Without a JSON parser it relies on three promises of the server: the claim is one line starting
# with "{", "id" and "claim_token" come before the payload, Retry-After is bare digits.
set -u

: "${BASE_URL:?}" "${API_KEY:?}" "${HANDLER:?}"
GOAL=${GOAL:-shell_task}
NAMESPACE=${NAMESPACE:-default}
WORKER_ID=${WORKER_ID:-shell-worker}
CAPABILITIES=${CAPABILITIES:-shell}
EMPTY_MAX=${EMPTY_MAX:-0}

# Prints the answer to one claim, headers first.
claim() {
    curl -sS -i --noproxy '*' --max-time 10 -X POST -G \
        -H "X-API-KEY: $API_KEY" \
        -H "X-Worker-ID: $WORKER_ID" \
        -H "X-Worker-Capabilities: $CAPABILITIES" \
        --data-urlencode "goal=$GOAL" \
        --data-urlencode "namespace=$NAMESPACE" \
        "$BASE_URL/claim"
}

# text_after '"id":"' TEXT prints what stands between that marker and the next quote.
text_after() {
    rest=${2#*"$1"}
    printf '%s' "${rest%%\"*}"
}

# Keeps only characters that mean the same inside and outside a JSON string.
json_safe() {
    tr '\n' ' ' | tr -cd 'A-Za-z0-9 ._:/=+-' | cut -c 1-500
}

# report fulfill|fail JSON: 200 ends well, 404 means the lease is gone for good, and anything else
# is tried three times in all.
report() {
    pause=2
    for try in 1 2 3; do
        status=$(curl -sS -o /dev/null -w '%{http_code}' --noproxy '*' --max-time 10 \
            -H "X-API-KEY: $API_KEY" -H 'Content-Type: application/json' \
            --data "$2" "$BASE_URL/$1/$INTENT_ID")
        case $status in
        200) echo "$1 $INTENT_ID"; return 0 ;;
        404) echo "lease_lost $INTENT_ID"; return 0 ;;
        esac
        echo "$1 answered $status, try $try" >&2
        [ "$try" -lt 3 ] && sleep "$pause"
        pause=$((pause * 2))
    done
    echo "gave_up $INTENT_ID"
}

work_on() {
    INTENT_ID=$(text_after '"id":"' "$1")
    CLAIM_TOKEN=$(text_after '"claim_token":"' "$1")
    export INTENT_ID CLAIM_TOKEN
    if output=$(printf '%s' "$1" | sh -c "$HANDLER" 2>&1); then
        text=$(printf '%s' "$output" | json_safe)
        report fulfill \
            "{\"claim_token\":\"$CLAIM_TOKEN\",\"result\":\"$text\",\"result_type\":\"text\"}"
    else
        text=$(printf '%s' "$output" | json_safe)
        report fail "{\"claim_token\":\"$CLAIM_TOKEN\",\"error\":\"$text\"}"
    fi
}

empty=0
while :; do
    answer=$(claim)
    status=$(printf '%s\n' "$answer" | sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p')
    case $status in
    200)
        empty=0
        work_on "$(printf '%s\n' "$answer" | sed -n '/^{/,$p')"
        ;;
    204)
        wait=$(printf '%s\n' "$answer" | sed -n 's/^[Rr]etry-[Aa]fter://p' | tr -cd '0-9')
        echo "empty, waiting ${wait:-none}"
        empty=$((empty + 1))
        [ "$empty" -eq "$EMPTY_MAX" ] && exit 0
        sleep "${wait:-5}"
        ;;
    *)
        echo "claim answered ${status:-nothing}" >&2
        exit 1
        ;;
    esac
done
