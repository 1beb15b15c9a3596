# SPDX-License-Identifier: MIT OR Apache-2.0
SUITE ?= bookworm
SUITES ?= bookworm trixie

.PHONY: vm test-vm compatibility

vm: ## a root shell in a virtual Debian with the stand-in driver (SUITE=bookworm|trixie)
	@tests/vm/run $(SUITE) shell

# Side by side, since a test in a virtual machine waits more than it works.
test-vm: ## the tests that need a kernel of their own, on every suite (SUITES=..., TESTS=words of names)
	@tests/vm/build-guest
	@running=; for suite in $(SUITES); do \
		{ tests/vm/run $$suite tests $(TESTS) 2>&1 | sed -u "s/^/$$suite: /"; } & running="$$running $$!"; \
	done; status=0; for job in $$running; do wait $$job || status=1; done; exit $$status

compatibility: ## writes docs/compatibility.md from the last result of each test on every suite
	@tests/vm/compatibility $(SUITES) > docs/compatibility.md.new && mv docs/compatibility.md.new docs/compatibility.md
