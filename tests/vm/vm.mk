# SPDX-License-Identifier: MIT OR Apache-2.0
SUITE ?= bookworm
SUITES ?= bookworm trixie

.PHONY: vm test-vm

vm: ## a root shell in a virtual Debian with the stand-in driver (SUITE=bookworm|trixie)
	@tests/vm/run $(SUITE) shell

test-vm: ## the tests that need a kernel of their own, on every suite (SUITES=..., TESTS=words of names)
	@status=0; for suite in $(SUITES); do tests/vm/run $$suite tests $(TESTS) || status=1; done; exit $$status
