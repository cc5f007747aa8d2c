#!/usr/bin/env bash
# {{name}}: one request on standard input, one answer on standard output, then the end.
# Standard error is kept with the job, so write there whatever helps to understand a failure.
set -euo pipefail

request=$(cat)

# The first text with this key. `command` and `job_id` stand before everything that comes from outside; to look deeper into
# the request, use a JSON tool such as jq or write the plugin in another language.
text_of() {
    local pattern="\"$1\"[[:space:]]*:[[:space:]]*\"([A-Za-z0-9_-]+)\""
    if [[ $request =~ $pattern ]]; then
        printf '%s' "${BASH_REMATCH[1]}"
    fi
}

# A text as JSON, with its quotes.
json() {
    local text=$1
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\n'/\\n}
    text=${text//$'\r'/\\r}
    text=${text//$'\t'/\\t}
    printf '"%s"' "$text"
}

refuse() {
    printf '{"status":"error","error":%s,"retry":false}\n' "$(json "$1")"
}

protocol='"protocol"[[:space:]]*:[[:space:]]*2[^0-9]'
if [[ ! $request =~ $protocol ]]; then
    refuse "this plugin speaks protocol 2 only"
    exit 78
fi

command=$(text_of command)
case $command in
    poll)
        printf '{"status":"ok","result":"polled","events":[{"type":"{{name}}.polled","payload":{"job_id":%s}}]}\n' \
            "$(json "$(text_of job_id)")"
        ;;
    handle)
        printf '{"status":"ok","result":"handled","logs":[{"level":"info","message":%s}]}\n' \
            "$(json "the request has ${#request} characters")"
        ;;
    health)
        printf '{"status":"ok","result":"healthy"}\n'
        ;;
    *)
        refuse "unknown command: $command"
        ;;
esac
