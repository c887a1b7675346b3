.PHONY: test race bench generate ci

test: ## the tests that need nothing but Go
	go test ./...

race: ## the same under the race detector, which needs a C compiler
	CGO_ENABLED=1 go test -race -short ./...

bench: ## a minute's measurement of all kernels, beside the libraries found
	go run ./cmd/tilework bench --preset quick

generate: ## write the generated files again
	go generate ./...

ci: ## everything that must hold before a change lands
	.ci/run
