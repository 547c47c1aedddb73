# The daily doors. Each is thin: what it does stands in scripts/ or in the program itself, and CI
# (.ci/run) calls the same.

.DEFAULT_GOAL := help
.PHONY: help run demo test lint fmt bench drill docs licences release ci

help: ## what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## a broker on SQLite in ./handoffd-data, at 127.0.0.1:8080
	cargo run --locked -- serve

demo: ## four agents, three boundaries, one rejection, one injection; prints and verifies the trace
	cargo run --locked -- demo

test: ## every test, on SQLite and Postgres (ARGS="--test store" for some)
	scripts/test $(ARGS)

lint: ## format, clippy, docs, shell scripts, licences
	scripts/lint

fmt: ## format the code
	cargo fmt --all

bench: ## the benchmarks (ARGS go to them)
	scripts/with-postgres cargo bench --locked $(ARGS)

drill: ## trace and bundle timed in a log of a million records; writes docs/drill.md (RECORDS=50000 for less)
	cargo bench --locked --bench evidence -- drill --records $(or $(RECORDS),1000000) --out $(CURDIR)/docs/drill.md

docs: ## the API documentation of the library, into target/doc
	cargo doc --no-deps --locked --lib --features full

licences: ## licences, bans and sources of all dependencies
	scripts/licences

release: ## binaries, archive, SBOM and checksums of this commit, into dist/
	scripts/release

ci: ## what CI runs
	.ci/run
