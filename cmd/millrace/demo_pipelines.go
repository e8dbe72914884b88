package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"millrace/pipeline/definition"
)

//go:embed demo/*.yaml
var demoFiles embed.FS

// demoDefinitions are the sample pipelines of `serve --demo`.
func demoDefinitions() (list []definition.Definition, err error) {
	err = fs.WalkDir(demoFiles, "demo", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := demoFiles.ReadFile(name)
		if err != nil {
			return err
		}
		x, faults := definition.ReadYAML(text)
		if len(faults) > 0 {
			return fmt.Errorf("%s: %v", name, faults)
		}
		list = append(list, x)
		return nil
	})
	return list, err
}

// deployDemo deploys the sample pipelines that are not there. One that somebody has changed, or stopped, stays as it is.
func deployDemo(shelf *definition.Shelf) error {
	list, err := demoDefinitions()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for i := range list {
		_, err := shelf.Save(&list[i], 0, "demo")
		if errors.Is(err, definition.ErrExists) {
			continue
		}
		if err == nil {
			_, _, err = shelf.Deploy(list[i].ID, "sample pipeline of serve --demo", "demo")
		}
		if err != nil {
			return fmt.Errorf("demo: pipeline %s: %w", list[i].ID, err)
		}
	}
	return nil
}
