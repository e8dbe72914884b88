package main

import (
	"testing"

	"millrace/pipeline/definition"
	"millrace/pipeline/nodes"
	"millrace/pipeline/script"
)

// The sample pipelines compile without a fault or a warning, and their files are written as an export would write them.
func TestDemoPipelines(t *testing.T) {
	scripts := script.NewEngine(script.Options{})
	defer scripts.Close()
	c := definition.NewCompiler(nodes.All(nodes.Options{}), scripts)
	list, err := demoDefinitions()
	if err != nil || len(list) < 4 {
		t.Fatalf("%d, %v", len(list), err)
	}
	for i := range list {
		if _, faults := c.Compile(&list[i], 1, 1); len(faults) > 0 {
			t.Errorf("%s: %v", list[i].ID, faults)
		}
		if list[i].Description == "" || list[i].Name == "" {
			t.Errorf("%s does not say what it is for", list[i].ID)
		}
	}
}
