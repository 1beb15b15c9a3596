# SPDX-License-Identifier: MIT OR Apache-2.0
# `make help` lists the targets. Nothing here needs the network but setup (Debian's packages) and Cargo's first build.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

# Cargo is where rustup puts it, also under sudo without a login.
export PATH := $(PATH):$(HOME)/.cargo/bin

DESTDIR ?=
prefix ?= /usr/local
# Not below prefix: gpuhook reads /etc/gpuhook/config.toml.
sysconfdir ?= /etc
bindir ?= $(prefix)/bin
datadir ?= $(prefix)/share
mandir ?= $(datadir)/man
docdir ?= $(datadir)/doc/gpuhook
unitdir ?= $(prefix)/lib/systemd/system

TARGET_DIR ?= $(or $(CARGO_TARGET_DIR),target)
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# What `make install` installs; name another to package a binary that was built elsewhere.
BINARY ?= $(TARGET_DIR)/$(HOST)/release/gpuhook

DOCS := README.md SECURITY.md LICENSE-MIT LICENSE-APACHE docs/flow.md docs/kernel-features.md docs/design-notes.md \
	docs/findings.md docs/requests.md docs/compatibility.md

# A machine of CI has everything, so what cannot be tested there is a failure and no skip.
ifeq ($(CI),true)
export GPUHOOK_MUST_WORK := 1
endif

.PHONY: help setup build test demo lint bench race fuzz failpoints endurance install uninstall

help: ## lists the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do printf '%-12s %s\n' "$$name" "$$text"; done

setup: ## installs what build, test and demo need, from Debian's packages
	@tests/setup.sh

build: ## builds the release binary, static
	cargo build --release -p gpuhook

test: setup ## runs all tests: real LXC and runc containers, as root
	cargo build --workspace --bins
	@$(MAKE) failpoints
	@if cargo nextest --version >/dev/null 2>&1; then cargo nextest run --workspace; else cargo test --workspace; fi

demo: setup ## plays the story of the changed numbers (with a driver: majors, plan and probe of this host)
	cargo build --workspace --bins
	$(TARGET_DIR)/$(HOST)/debug/demo

lint: setup ## formatting, clippy, docs, and the dependency tree where cargo-deny is installed
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses sources; \
	else echo 'SKIP cargo deny check: cargo-deny is not installed (cargo install cargo-deny)'; fi

bench: setup ## what the hook costs beside /bin/true: alone, in runc and LXC starts, per open, in memory (N: runs)
	cargo build -q --release -p gpuhook -p gpuhook-tests --bin gpuhook --bin bench
	$(TARGET_DIR)/$(HOST)/release/bench $(N)

failpoints: ## builds the gpuhook that tests/tests/kills.rs kills at every step (never installed)
	cargo build -q -p gpuhook --features failpoints --target-dir $(TARGET_DIR)/failpoints

fuzz: setup ## every fuzz target for SECONDS (15)
	fuzz/run.sh $(or $(SECONDS),15)

endurance: setup failpoints ## everything that is counted, in its long form (an hour), and docs/hardening.md from it
	tests/endurance.sh

race: setup ## N injections (20000) while a process in the container swaps directories for links to the host
	cargo run --release -q -p gpuhook-tests --bin race -- $(or $(N),20000)

install: ## places the built binary and its files (DESTDIR= prefix= sysconfdir=)
	@test -x $(BINARY) || { echo '$(BINARY) is not there; hint: make build' >&2; exit 1; }
	install -D -m 0755 $(BINARY) $(DESTDIR)$(bindir)/gpuhook
	ln -sf gpuhook $(DESTDIR)$(bindir)/gpuhook-runtime
	install -d $(DESTDIR)$(datadir)/gpuhook/hooks.d $(DESTDIR)$(mandir)/man8 $(DESTDIR)$(docdir) $(DESTDIR)$(unitdir)
	sed -e 's|@BINDIR@|$(bindir)|g' -e 's|@DATADIR@|$(datadir)|g' install/lxc/gpuhook.conf > $(DESTDIR)$(datadir)/gpuhook/lxc.conf
	sed -e 's|@BINDIR@|$(bindir)|g' install/systemd/gpuhook-nodes.service > $(DESTDIR)$(unitdir)/gpuhook-nodes.service
	sed -e 's|@BINDIR@|$(bindir)|g' install/hooks.d/gpuhook.json > $(DESTDIR)$(datadir)/gpuhook/hooks.d/gpuhook.json
	{ cat install/gpuhook.8.head; $(BINARY) --help | sed -e 's/\\/\\e/g' -e "s/^[.']/\\\\\&&/" -e 's/-/\\-/g'; cat install/gpuhook.8.tail; } > $(DESTDIR)$(mandir)/man8/gpuhook.8
	chmod 0644 $(DESTDIR)$(datadir)/gpuhook/lxc.conf $(DESTDIR)$(datadir)/gpuhook/hooks.d/gpuhook.json $(DESTDIR)$(mandir)/man8/gpuhook.8 $(DESTDIR)$(unitdir)/gpuhook-nodes.service
	install -m 0644 $(DOCS) $(DESTDIR)$(docdir)
	test -e $(DESTDIR)$(sysconfdir)/gpuhook/config.toml || install -D -m 0644 install/config.toml $(DESTDIR)$(sysconfdir)/gpuhook/config.toml

uninstall: ## removes what install placed, but the administrator's config.toml
	rm -f $(DESTDIR)$(bindir)/gpuhook $(DESTDIR)$(bindir)/gpuhook-runtime $(DESTDIR)$(datadir)/gpuhook/lxc.conf $(DESTDIR)$(datadir)/gpuhook/hooks.d/gpuhook.json $(DESTDIR)$(mandir)/man8/gpuhook.8 $(DESTDIR)$(unitdir)/gpuhook-nodes.service
	rm -f $(addprefix $(DESTDIR)$(docdir)/,$(notdir $(DOCS)))
	rmdir --ignore-fail-on-non-empty $(DESTDIR)$(datadir)/gpuhook/hooks.d $(DESTDIR)$(datadir)/gpuhook $(DESTDIR)$(docdir)

-include tests/vm/vm.mk
