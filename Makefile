# make demo: build, start a server, train on this computer and on a cluster, fetch the model, serve it, stop.
# make serve-demo: train and serve alone.
# make test: every test that needs only Go and Python (and says by name what it left out).
SHELL = /bin/bash
GO ?= go
GOFLAGS += -trimpath
PKGS = ./...
TESTS ?= $(PKGS)
# Packages whose tests stop, break and start again engines that are not ours.
DRIVERS = ./internal/target/docker ./internal/target/kube ./internal/target/slurm ./internal/fleet/slurm ./internal/fleet/ssh

.PHONY: build slim demo serve-demo test check drivers kueue targets serving clients cross vm bench clean

CROSS = bin/trainyard-linux-amd64 bin/trainyard-linux-arm64 bin/trainyard-darwin-arm64 bin/trainyard-windows-amd64.exe

# Programs for other systems that were made once are kept as new as this one: the server sends them to machines.
build: bin/trainyard $(wildcard $(filter bin/trainyard-linux-%,$(CROSS)))

SLIM = internal/taskrun/slim/packed/linux-amd64.gz internal/taskrun/slim/packed/linux-arm64.gz

# With all that is embedded.
SOURCES = $(shell find . -name '*.go') $(shell find cmd internal -type f ! -name '*.go' ! -path '*/testdata/*' ! -path '*/packed/*' ! -path '*/__pycache__/*') go.mod
PROGRAM = CGO_ENABLED=0 $(GO) build $(GOFLAGS) -tags slimtask -ldflags '-s -w'

bin/trainyard: $(SOURCES) $(SLIM)
	$(PROGRAM) -o $@ ./cmd/trainyard

# The small program that engines start for a task, for nodes' processors. It travels in the other one, packed; "go build" alone makes one
# without it, which has engines start itself.
slim: $(SLIM)
$(SLIM): internal/taskrun/slim/packed/linux-%.gz: $(SOURCES)
	@mkdir -p bin $(@D)
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build $(GOFLAGS) -buildvcs=false -ldflags '-s -w' -o bin/trainyard-task-$* ./cmd/trainyard-task
	@gzip -9nc bin/trainyard-task-$* >$@.$$$$ && mv $@.$$$$ $@

demo: build
	@sh examples/demo.sh bin/trainyard

serve-demo: build
	@sh examples/serve.sh bin/trainyard

test: build
	@set -o pipefail; $(GO) test -v $(PKGS) 2>&1 | awk -f tools/summary.awk

check: build
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet $(PKGS)
	$(GO) vet -tags kueue ./internal/target/kube ./cmd/trainyard
	cd tools && $(GO) build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck $(PKGS)
	@set -o pipefail; $(GO) test -race -timeout 30m -v $(TESTS) 2>&1 | awk -f tools/summary.awk

drivers:
	@set -o pipefail; $(GO) test -race -timeout 30m -parallel 4 -v $(DRIVERS) 2>&1 | awk -f tools/summary.awk

# Kueue itself, in a cluster of its own (root, and the packages that test/engines/kube/up.sh names): some minutes, and six more of a processor
# the first time, so not part of test.
kueue: build
	@set -o pipefail; dir=$$(mktemp -d)/kube; lines=$$(test/engines/kube/up.sh "$$dir" | tail -n 20) && eval "$$lines" || exit 1; \
	trap 'test/engines/kube/down.sh "$$dir"; rmdir "$$(dirname "$$dir")"' EXIT; \
	lines=$$(test/engines/kube/kueue.sh "$$dir" | tail -n 1) && eval "$$lines" && \
	$(GO) test -tags kueue -count=1 -p 1 -timeout 20m -v -run Kueue ./internal/target/kube ./cmd/trainyard 2>&1 | awk -f tools/summary.awk

# The same job files on every kind of target, and the table of it; then every engine is unplugged in the middle of a job. Engines are those that TRAINYARD_TEST_* variables lead to: see
# test/engines. TABLE is relative to this folder.
TABLE ?= docs/targets.md
targets: build
	@set -o pipefail; TRAINYARD_TARGETS_TABLE=$(abspath $(TABLE)) $(GO) test -count=1 -timeout 20m -parallel 4 -v \
	-run 'TestTheSameJobFiles|TestUnplugging|TestAMissingImage|TestAPilotThat|TestSettingsOfAnEngine' ./cmd/trainyard 2>&1 | awk -f tools/summary.awk

# The same model on every kind of serving, and the page with the table of it; engines as for targets.
PAGE ?= docs/serving.md
serving: build
	@set -o pipefail; TRAINYARD_SERVING_TABLE=$(abspath $(PAGE)) $(GO) test -count=1 -timeout 20m -parallel 4 -v \
	-run TestTheSameModelOnEveryKind ./cmd/trainyard 2>&1 | awk -f tools/summary.awk

# The official clients against this program: Azure's Python SDK, MLflow 2 and 3, HashiCorp's Go client, and a browser. They are large
# downloads, so not part of test.
clients: build
	sh test/sdk/run.sh bin/trainyard
	sh test/mlflow/run.sh bin/trainyard
	cd internal/arm/hashicorp && $(GO) test ./...
	cd test/studio && TRAINYARD=$(CURDIR)/bin/trainyard $(GO) test ./...

# The program for every system it is meant for: server and nodes on Linux, client and local target on the others. A server finds those for
# its machines beside its own program.
cross: $(CROSS)
$(CROSS): bin/trainyard-%: $(SOURCES) $(SLIM)
	GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(basename $(word 2,$(subst -, ,$*))) $(PROGRAM) -o $@ ./cmd/trainyard

# Tasks on the kernel's cgroups version 2 with every controller, and on the other processor, in emulated machines: minutes, and not part of test.
VM = -test.run 'TestConformance$$|TestNodeLimit|TestHiddenPaths|TestNothingElse|TestFolderIsForOneDriver|TestAgentKilledAtAnyStep'
vm:
	test/vm/run.sh amd64 ./internal/target/process $(VM)
	test/vm/run.sh arm64 ./internal/target/process $(VM)

# Trainyard alone, and beside Docker, Slurm and Kubernetes: engines that TRAINYARD_TEST_* variables lead to, and for the others those that can
# be started here (root, and the packages that test/engines/*/up.sh name); the table says which were left out.
bench: build
	$(GO) build -o bin/bench ./internal/bench
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/bench-least ./internal/bench/least
	bin/bench -binary bin/trainyard -engines test/engines -out docs/benchmarks.md

clean:
	rm -rf bin internal/taskrun/slim/packed
