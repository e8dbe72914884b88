package main

import (
	"encoding/json"
	"errors"
	"fmt"
)

type configCommand struct {
	Check configCheck `cmd:"" help:"Validate; prints every fault with its place."`
	Print configPrint `cmd:"" help:"Print every setting in force and where it comes from."`
}

type configCheck struct {
	File string `arg:"" optional:"" help:"File to check (default ./config.yaml)."`
}

func (c configCheck) Run(con console, g *globals) error {
	file := c.File
	if file == "" {
		file = g.Config
	}
	if file == "" {
		file = "config.yaml"
	}
	_, err := loadConfig(file, con.env, g.flags())
	var faults configFaults
	if errors.As(err, &faults) && g.JSON {
		if err := json.NewEncoder(con.out).Encode(map[string]any{"file": file, "valid": false, "faults": faults}); err != nil {
			return err
		}
		return errTold
	}
	if err != nil {
		return err
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]any{"file": file, "valid": true})
	}
	_, err = fmt.Fprintf(con.out, "%s: valid\n", file)
	return err
}

type configPrint struct{}

func (configPrint) Run(con console, g *globals) error {
	c, err := loadConfig(g.Config, con.env, g.flags())
	if err != nil {
		return err
	}
	type row struct {
		Key    string `json:"key"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	var rows []row
	for _, s := range c.settings() {
		rows = append(rows, row{s.path, s.text(), c.source[s.path]})
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]any{"settings": rows})
	}
	for _, r := range rows {
		if _, err := fmt.Fprintf(con.out, "%-42s %-24s # %s\n", r.Key+":", r.Value, r.Source); err != nil {
			return err
		}
	}
	return nil
}

// flags are the settings given as flags of the call.
func (g *globals) flags() map[string]string {
	if g.Data == "" {
		return nil
	}
	return map[string]string{"data": g.Data}
}
