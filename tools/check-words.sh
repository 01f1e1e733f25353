#!/usr/bin/env bash
# Looks for what must not stand in the tree: paths of somebody's machine, and notes to self.
#
#   tools/check-words.sh           lists the places, status 1 if there are any
set -euo pipefail
cd "$(dirname "$0")/.."

# In pieces, so that this file doesn't find itself.
paths="(^|[^A-Za-z0-9_.~\$}-])/(wo""rk|ro""ot|ho""me)(/|[^A-Za-z0-9_-]|\$)"
notes="\\b(TO""DO|FIX""ME|XX""X)\\b"

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    list() { git ls-files -z --cached --others --exclude-standard --deduplicate; }
else
    list() { find . \( -name .git -o -name build -o -name target \) -prune -o -type f -print0; }
fi
# A file that git lists and that is gone is no finding.
found=$(list | xargs -0 -r grep -InsHE -e "$paths" -e "$notes" || true)
if [ -n "$found" ]; then
    echo "$found"
    exit 1
fi
