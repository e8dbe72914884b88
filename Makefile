# Millrace. `make run` starts the box with a demo plant, `make test` runs everything a newcomer can run.
SHELL := /bin/bash
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 5s

.PHONY: build run test check unit race fuzz walk deployed release long lint bench deps clean

build: ## bin/millrace, static
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/millrace ./cmd/millrace

run: build ## the box with a simulated plant, in ./data
	./bin/millrace serve --demo

test: deps check unit race walk deployed fuzz ## everything, under 20 minutes on 2 cores
	@echo "make test: all passed"

deps: ## what the tests need beside Go: see .ci/deps
	@./.ci/deps

check: ## formatting, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...

unit: ## every package, shuffled
	go test -shuffle=on -timeout 10m $$(go list ./... | grep -v /cmd/)

race: ## the same under the race detector
	go test -race -short -timeout 15m ./...

walk: build ## the binary on real ports: walk, scripts, order of imports
	go test -timeout 10m ./cmd/...

fuzz: ## every fuzz target for a short while
	@./.ci/fuzz $(FUZZTIME)

deployed: ## chart, alerts, dashboard and Dockerfile against the libraries of those who read them, a module of its own
	cd deploy/check && go vet . && go test -timeout 10m .

release: ## dist/: static binaries, Debian packages, bills of materials and SHA256SUMS for amd64 and arm64
	go run ./deploy/release -out dist $(if $(RELEASE),-version $(RELEASE))

long: ## what takes longer: thousands of crash seeds, long models, long fuzzing, kill -9 under load
	MILLRACE_LONG=1 go test -timeout 120m ./...
	@./.ci/fuzz 5m
	$(MAKE) build && ./bin/millrace perf crash --kills 100

lint: ## golangci-lint with .golangci.yml (built from source, takes a while the first time)
	go run $(GOLANGCI) run ./...

bench: ## benchmarks beside the code
	go test -run '^$$' -bench . -benchmem ./historian/... ./uns ./auth ./broker ./web

clean:
	rm -rf bin dist
