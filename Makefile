# `make check` is what a change must pass; .ci/run is what CI adds to it.

GO       ?= go
FUZZTIME ?= 10s
TARGETS  ?= linux/amd64 linux/arm64 darwin/arm64

# git refuses a clone that another user owns, and `go build` with it.
VCS := $(shell git status --porcelain >/dev/null 2>&1 || echo -buildvcs=false)

.PHONY: build cross test race lint fuzz bench check

build:
	CGO_ENABLED=0 $(GO) build $(VCS) -trimpath -o gate ./cmd/gate

# Each system that gate is built for; the tests of each are vetted by `make lint`.
cross:
	@set -e; for target in $(TARGETS); do \
		echo "go build ./... for $$target"; \
		GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0 $(GO) build $(VCS) ./...; \
	done

test:
	$(GO) test -timeout 30m ./...

# The race detector is the one place that needs a C compiler. It makes a run
# many times slower, so the long tests are left to `make test`.
race:
	CGO_ENABLED=1 $(GO) test -race -short -timeout 30m ./...

lint:
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) && if [ -n "$$unformatted" ]; then \
		echo "not formatted by gofmt:" $$unformatted >&2; exit 1; fi
	$(GO) vet ./...
	@set -e; for target in $(TARGETS); do \
		echo "go vet ./... for $$target"; \
		GOOS=$${target%/*} GOARCH=$${target#*/} CGO_ENABLED=0 $(GO) vet ./...; \
	done
	$(GO) tool staticcheck ./...

# Every fuzz target of every package, FUZZTIME each.
fuzz:
	@set -e; for package in $$($(GO) list ./...); do \
		listed=$$($(GO) test -list '^Fuzz' "$$package"); \
		for target in $$listed; do case $$target in Fuzz*) \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package";; \
		esac; done; \
	done

bench:
	$(GO) run $(VCS) ./bench

check: lint test
