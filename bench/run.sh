#!/bin/sh
# Benchmarks Weir beside its peers: see docs/benchmarks.md, or bench/run.sh --help.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "bench/run.sh: $python is missing or older than 3.11; name another one with PYTHON=..." >&2
    exit 2
}
exec "$python" "$here/run.py" "$@"
