#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Counts what the tests of hardening count, in their long form, and writes docs/hardening.md from it. A number that is set
# from outside (REPEAT, CYCLES, AT_ONCE, RACE, FUZZ in seconds, KILLS, which as 0 needs no virtual machine) takes the long
# one's place, for a trial. A run that fails goes on, when it is called again, with the part that failed: those that passed
# are kept in target/endurance (remove it to begin anew) until all have.
set -euo pipefail
cd "$(dirname "$0")/.."
export GPUHOOK_MUST_WORK=1 GPUHOOK_REPEAT=${REPEAT:-500} GPUHOOK_CYCLES=${CYCLES:-1000} GPUHOOK_AT_ONCE=${AT_ONCE:-50}
export JOBS=${JOBS:-$(nproc)}
race=${RACE:-1000000} fuzz=${FUZZ:-300} kills=${KILLS:-200}

kept=target/endurance/$GPUHOOK_REPEAT-$GPUHOOK_CYCLES-$GPUHOOK_AT_ONCE-$race-$kills-$fuzz
mkdir -p "$kept"
cargo build -q -p gpuhook -p gpuhook-tests --bins
cargo build -q -p gpuhook-tests --tests
cargo build -q -p gpuhook-tests --bin race --release

# part TITLE COMMAND...: what it counted, and how long it took.
parts=()
part() {
    local title=$1 began=$SECONDS
    local file=$kept/${title//[^a-z0-9_]/-}
    shift
    parts+=("$file")
    [ ! -e "$file" ] || return 0
    "$@" >"$kept/output" 2>&1 || { tail -n 60 "$kept/output" >&2; exit 1; }
    {
        printf '\n## %s, %d s\n\n' "$title" $((SECONDS - began))
        LC_ALL=C sed -n 's/^\([a-z]*: \)\{0,1\}.*COUNT /- \1/p; s/^race: /- /p; s/^escapes: /- escapes: /p' "$kept/output"
        grep -ao 'test result: ok. [0-9]* passed' "$kept/output" | sed 's/^test result: ok\. /- /' || true
    } | tee "$kept/said"
    mv "$kept/said" "$file"
}

for name in syscalls no_refusal hostile kills errors load; do
    part "tests/tests/$name.rs" cargo test -q -p gpuhook-tests --test "$name" -- --nocapture --test-threads=1
done
part "make race" make -s race "N=$race"
[ "$kills" = 0 ] || VM_KILLS=$kills VM_LIMIT=6000 VM_SILENCE=4000 \
    part "make test-vm TESTS=a_hook_killed" make -s test-vm TESTS=a_hook_killed
part "fuzz/fuzz_targets, $fuzz s each, $JOBS at a time" fuzz/run.sh "$fuzz"

{
    printf '# What was counted\n\nWritten by `make endurance` on %s, Linux %s, %d processors. Times are of that machine and its load.\n' \
        "$(date -u +%F)" "$(uname -r)" "$(nproc)"
    [ "$race" -ge 1000000 ] && [ "$fuzz" -ge 300 ] && [ "$kills" -ge 200 ] || printf '\n**A short run**, with the counts that stand below.\n'
    cat "${parts[@]}"
} >docs/hardening.md
rm -r "$kept"
