// Command millrace is the edge box: broker, historian, Unified Namespace and web in one process, and the
// commands that speak to a running one.
//
// Owns: the grammar of the command line, config.yaml, and the wiring (box.go), the only place that knows
// every part. Must not know: MQTT packets, keys on disk, how a payload is parsed.
// Called by: the operating system. Calls: every other folder, see imports_test.go for the rule.
package main
