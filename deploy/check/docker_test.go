package check

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// The image is built from nothing, holds one static program, runs as nobody in particular and keeps its values on a volume; the
// linter of BuildKit has no complaint.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Warnings) > 0 {
		t.Errorf("warnings: %v", tree.Warnings)
	}
	complaints := linter.New(&linter.Config{Warn: func(rule, description, url, message string, at []parser.Range) {
		t.Errorf("%s: %s", rule, message)
	}})
	stages, _, err := instructions.Parse(tree.AST, complaints)
	if err != nil {
		t.Fatal(err)
	}
	last := stages[len(stages)-1]
	if last.BaseName != "scratch" {
		t.Errorf("the image is built on %s", last.BaseName)
	}
	if !strings.Contains(string(text), "CGO_ENABLED=0") {
		t.Error("the program is not static")
	}
	user, entry, check := "", "", ""
	var volumes []string
	for _, c := range last.Commands {
		switch c := c.(type) {
		case *instructions.RunCommand:
			t.Error("a program is run in an image that has none")
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			if c.PrependShell {
				t.Error("ENTRYPOINT wants a shell")
			}
			entry = strings.Join(c.CmdLine, " ")
		case *instructions.HealthCheckCommand:
			check = strings.Join(c.Health.Test, " ")
		case *instructions.VolumeCommand:
			volumes = c.Volumes
		}
	}
	if user != "65532:65532" || entry != "/usr/bin/millrace" || check != "CMD /usr/bin/millrace status" || !slices.Contains(volumes, "/data") {
		t.Errorf("user %q, entrypoint %q, health check %q, volumes %v", user, entry, check, volumes)
	}
}
