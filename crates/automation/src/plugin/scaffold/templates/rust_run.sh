#!/bin/sh
# Runs the program that `cargo build --release` makes.
program="$(dirname "$0")/target/release/plugin"
if [ ! -x "$program" ]; then
    echo '{"status":"error","error":"{{name}} is not built; run `cargo build --release` in its directory","retry":false}'
    exit 78
fi
exec "$program"
