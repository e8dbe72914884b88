// Package check holds what is deployed to the programs that read it: the Helm chart is rendered by Helm's own engine and decoded
// with Kubernetes' own types, alerts and dashboard by Prometheus' parsers, the Dockerfile by BuildKit's. It is a module of its
// own, so that none of these libraries is in the product's go.mod. Called by: `make test`.
package check
