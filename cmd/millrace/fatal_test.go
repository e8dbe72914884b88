package main

import (
	"errors"
	"testing"
)

func TestFatalIsShort(t *testing.T) {
	for said, want := range map[string]string{
		"historian: the disk refused a write (on-disk corruption: d/000010.sst; bounds: [a, b]; details: x\n(1) stack\n  | file.go:1)": "historian: d/000010.sst is damaged: see whether the disk is well, then restore a backup",
		"kv: the disk refused a write (no space left on device)":                                                                       "kv: the disk refused a write (no space left on device)",
	} {
		if got := shortFatal(errors.New(said)).Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
