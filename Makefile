# make build · stage · demo · test · check · bench · soak · package · install
# Each target installs what it needs on a Debian machine that has Rust. Those that use the test bed need root.

SHELL      := /bin/bash
CARGO      ?= cargo
CPU        := $(shell uname -m)
TRIPLE     := $(CPU)-unknown-linux-gnu
BUILD      := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
STAGE      := $(BUILD)/stage
BED        := tests/testbed
SCRIPTS     = $(shell git ls-files remotes tests packaging .ci | while read -r f; do [ -f "$$f" ] && head -c 64 "$$f" | grep -qE '^\#!.*\b(ba|da)?sh\b' && echo "$$f"; done)

.PHONY: help build stage demo test check bench soak package install clean

help:
	@echo "make build    release programs, static kvmad-node"
	@echo "make stage    a front-end folder (ONE_LOCATION) in $(STAGE)"
	@echo "make demo     a VM's life on a real KVM host of the test bed (root)"
	@echo "make test     all tests, on the test bed (root)"
	@echo "make check    format, lints, shell scripts, licences, documentation"
	@echo "make bench    speed, as ratios; reports, never fails"
	@echo "make soak     long fault and load runs; writes docs/soak-report.md"
	@echo "make package  .deb and .rpm        make install DESTDIR= PREFIX=   for others"

build:
	packaging/need build
	$(CARGO) build --release --bins
	RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release --target $(TRIPLE) --bin kvmad-node

stage: build
	packaging/stage $(STAGE)

check:
	packaging/need build check
	$(CARGO) fmt --check
	$(CARGO) clippy --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --quiet
	shellcheck $(SCRIPTS)
	$(CARGO) deny --log-level error check licenses bans sources
	@if [ -d "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs" ]; then $(CARGO) deny --offline check advisories; \
	 else echo "check: no advisory database at hand, advisories not checked"; fi

test: stage
	packaging/need test package
	$(BED)/up
	KVMAD_STAGE=$(abspath $(STAGE)) $(CARGO) nextest run --run-ignored all; \
	  status=$$?; $(BED)/down; exit $$status

package: stage
	packaging/need package
	packaging/package $(STAGE) $(BUILD)/packages

# As root into the system, or below DESTDIR for packagers; nothing outside PREFIX.
PREFIX     ?= /usr/local
install: stage
	packaging/lay $(STAGE) "$(DESTDIR)/" "$(PREFIX)"

demo: stage
	tests/demo

bench: stage
	benches/run

soak: stage
	packaging/need test
	tests/soak

clean:
	$(CARGO) clean
