# Tollgate's tasks. `make` lists them. CI runs `make test` (.ci/run).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables

# Where cargo puts things; absolute, because tools run from other directories too.
CARGO_TARGET_DIR ?= target
TARGET := $(abspath $(CARGO_TARGET_DIR))
TOOLS := $(TARGET)/tools
STATE := $(TARGET)/make
export PATH := $(TOOLS)/bin:$(PATH)

# Tools that a fresh machine lacks are built once, at these versions, into target/tools; unoptimised,
# and nextest without its self-update, as the building takes longer than they ever run.
NEXTEST := cargo-nextest@0.9.143 --no-default-features --features default-no-update
DENY := cargo-deny@0.20.2
MACHETE := cargo-machete@0.9.2
FUZZ := cargo-fuzz@0.13.2

# `make run ARGS="--listen 127.0.0.1:8000"`
ARGS ?=
# `make it FILTER=auth::`: only those tests.
FILTER ?=
# `make fuzz SECONDS_EACH=600`
SECONDS_EACH ?= 60
# `make soak KILLS=1000 SEED=42`
KILLS ?= 200
SEED ?=
IMAGE ?= tollgate:dev

say = @printf '\n\033[1m==> %s\033[0m\n' '$(1)'
need = @command -v $(firstword $(subst @, ,$(1))) >/dev/null || \
	{ echo '    $(firstword $(1)) is not here: building it into $(TOOLS) (once)'; \
	  CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR='$(TOOLS)/build' \
	    cargo install --quiet --locked --debug --root '$(TOOLS)' $(1); \
	  rm -rf '$(TOOLS)/build'; }

##@ Use

.PHONY: run
run: ## Start the gateway with no service: prints a token and three lines to paste
	$(call say,tollgate dev (Ctrl-C ends it))
	@cargo run --quiet --locked --bin tollgate -- dev $(ARGS)

.PHONY: release
release: ## Build the optimised binary: target/release/tollgate
	$(call say,release build)
	@cargo build --release --locked --bin tollgate

.PHONY: image
image: ## Build the container image (needs docker)
	$(call say,image $(IMAGE))
	@docker build --file deploy/Dockerfile --tag '$(IMAGE)' .

##@ Check

.PHONY: test
test: ## Everything that CI runs, with its own set-up; goes on after a failure, ends with totals
	@tests/run '$(STATE)' format-check lint doc it clients

.PHONY: format-check
format-check: ## Is every file formatted?
	$(call say,formatting)
	@cargo fmt --all --check

.PHONY: lint
lint: ## Clippy on all targets; a warning is an error
	$(call say,clippy)
	@cargo clippy --quiet --locked --all-targets -- -D warnings

.PHONY: doc
doc: ## rustdoc; a broken link is an error
	$(call say,rustdoc)
	@RUSTDOCFLAGS='-D warnings' cargo doc --quiet --locked --no-deps --document-private-items

.PHONY: redis
redis: ## The redis-server that tests start: found, or installed by apt where root may
	@tests/redis

.PHONY: postgres
postgres: ## The PostgreSQL that tests start: found, or installed by apt where root may
	@tests/postgres

.PHONY: it
it: redis postgres ## The integration tests (with the OpenAPI drift and import-direction checks); FILTER=name
	$(call say,integration tests)
	$(call need,$(NEXTEST))
	@cargo nextest run --locked $(FILTER)

.PHONY: soak
soak: redis postgres ## Kill the gateway KILLS times under load, look at what is left; SEED=number repeats one
	$(call say,$(KILLS) kills)
	$(call need,$(NEXTEST))
	@TEST_CRASH_KILLS=$$((($(KILLS) + 3) / 4)) $(if $(SEED),TEST_CRASH_SEED=$(SEED)) \
		cargo nextest run --locked --profile soak --no-capture 'audit::crash::'

.PHONY: clients
clients: ## Real clients against a running gateway: OpenAI SDKs, EventSource, curl, schemathesis
	$(call say,client tests)
	@cargo build --quiet --locked --bin tollgate
	@tests/clients/run

.PHONY: deps
deps: ## Dependencies: bans, licences, sources, and unused ones
	$(call say,bans and licences and sources (cargo-deny))
	$(call need,$(DENY))
	@cargo deny --log-level error check bans licenses sources
	$(call say,unused dependencies (cargo-machete))
	$(call need,$(MACHETE))
	@cargo machete --with-metadata .

.PHONY: advisories
advisories: ## Known vulnerabilities in dependencies (fetches a database)
	$(call say,known vulnerabilities (cargo-deny))
	$(call need,$(DENY))
	@cargo deny --log-level error check advisories

.PHONY: fuzz
fuzz: ## Every fuzz target for SECONDS_EACH (needs a nightly toolchain)
	$(call need,$(FUZZ))
	@targets=$$(cargo +nightly fuzz list); \
	for target in $$targets; do \
		printf '\n\033[1m==> fuzz %s for %s s\033[0m\n' "$$target" '$(SECONDS_EACH)'; \
		cargo +nightly fuzz run "$$target" -- -max_total_time='$(SECONDS_EACH)'; \
	done

.PHONY: bench
bench: redis postgres ## Micro-benchmarks, then end to end beside a bare pass-through proxy
	$(call say,release build)
	@cargo build --release --locked --bin tollgate
	$(call say,micro-benchmarks)
	@cargo bench --locked --bench micro
	$(call say,end to end)
	@cargo bench --locked --bench end_to_end

##@ Change

.PHONY: fmt
fmt: ## Format every file
	$(call say,formatting)
	@cargo fmt --all

.PHONY: openapi
openapi: ## Write openapi/tollgate.json from the code
	$(call say,openapi/tollgate.json)
	@mkdir -p '$(STATE)' openapi
	@cargo run --quiet --locked --bin tollgate -- openapi >'$(STATE)/openapi.json'
	@mv '$(STATE)/openapi.json' openapi/tollgate.json

.PHONY: clean
clean: ## Remove what was built and installed here (data/ stays: it holds the audit)
	$(call say,clean)
	@cargo clean --quiet
	@rm -rf tests/clients/node_modules

.PHONY: help
help: ## This list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
