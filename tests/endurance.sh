#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts what the tests of hardening count, and writes docs/hardening.md from it. SHORT=1 takes CI's numbers.
set -euo pipefail
cd "$(dirname "$0")/.."
export GPUHOOK_MUST_WORK=1 GPUHOOK_REPEAT=500 GPUHOOK_CYCLES=1000 GPUHOOK_AT_ONCE=50 GPUHOOK_FUZZ_SECONDS=300
race=1000000
if [ "${SHORT:-0}" = 1 ]; then
    export GPUHOOK_REPEAT=50 GPUHOOK_CYCLES=100 GPUHOOK_FUZZ_SECONDS=15
    race=20000
fi
# What is to be written is set from outside for a run that is only a trial.
export GPUHOOK_REPEAT=${REPEAT:-$GPUHOOK_REPEAT} GPUHOOK_CYCLES=${CYCLES:-$GPUHOOK_CYCLES}
export GPUHOOK_FUZZ_SECONDS=${FUZZ:-$GPUHOOK_FUZZ_SECONDS} GPUHOOK_AT_ONCE=${AT_ONCE:-$GPUHOOK_AT_ONCE}
race=${RACE:-$race}

scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
cargo build -q -p gpuhook -p gpuhook-tests --bins
export GPUHOOK_RACE=$race
for name in no_refusal hostile kills errors load fuzz; do
    echo "== $name" >&2
    cargo test -q -p gpuhook-tests --test "$name" -- --nocapture --test-threads=1 >"$scratch/$name" 2>&1 ||
        { tail -n 40 "$scratch/$name" >&2; exit 1; }
done
{
    echo '# What was counted'
    echo
    echo "Written by \`make endurance\` on $(date -u +%F), Linux $(uname -r), $(nproc) cores. Times are of that machine and its load."
    [ "$race" -ge 1000000 ] || printf '\n**A short run**, with the counts that stand below; the whole one takes two hours.\n'
    for name in no_refusal hostile kills errors load fuzz; do
        printf '\n## tests/tests/%s.rs\n\n' "$name"
        grep -ao 'COUNT .*' "$scratch/$name" | sed 's/^COUNT /- /'
        grep -ao 'test result: ok. [0-9]* passed' "$scratch/$name" | sed 's/^test result: ok\. /- /'
    done
} >docs/hardening.md
