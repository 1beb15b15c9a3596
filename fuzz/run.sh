#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds every fuzz target and runs each for the given seconds, JOBS of them (1) at a time:
#
#     fuzz/run.sh SECONDS [TARGET...]
#
# What cargo-fuzz does without a sanitizer, which safe code needs none of, so that a stable toolchain will do: the flags
# below are cargo-fuzz's. The corpora begin with tests/fixtures and grow in fuzz/corpus; a crash is left in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift

host=$(rustc -vV | sed -n 's/^host: //p')
coverage=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing)
RUSTFLAGS="${coverage[*]}" cargo build -q --release --locked --bins

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=($(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' Cargo.toml))

# Every file is a seed of every target: libFuzzer keeps those that reach something new.
seed() {
    local file at=0
    mkdir -p "corpus/$1"
    while IFS= read -r -d '' file; do
        cp "$file" "corpus/$1/seed-$((at += 1))"
    done < <(find ../tests/fixtures -type f -size -65k -print0 | sort -z)
}

fuzz() {
    local log="target/$1.log"
    seed "$1"
    mkdir -p "artifacts/$1"
    if ! "target/$host/release/$1" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=16384 \
        -print_final_stats=1 -artifact_prefix="artifacts/$1/" "corpus/$1" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "$1: a crash; fuzz/artifacts/$1 has the input" >&2
        return 1
    fi
    echo "COUNT $1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
        "$(sed -n 's/^#.*cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1) edges reached, no crash"
}
export -f seed fuzz
export seconds host
printf '%s\n' "${targets[@]}" | xargs -P "${JOBS:-1}" -I{} bash -euo pipefail -c 'fuzz {}'
