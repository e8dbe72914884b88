package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// architectures are those of Go and of Debian, which agree on both.
var architectures = []string{"amd64", "arm64"}

type release struct {
	source, out, version, only string

	moment time.Time // of the commit; every time stamp is this one
	files  []string  // names in out, as they are made
}

func (r *release) make() error {
	if r.only != "" && !slices.Contains(architectures, r.only) {
		return fmt.Errorf("-arch %s is none of %s", r.only, strings.Join(architectures, ", "))
	}
	if err := r.look(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, arch := range architectures {
		if r.only != "" && r.only != arch {
			continue
		}
		if err := r.one(arch); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	return r.sums()
}

// look asks git for the version and the time of the commit.
func (r *release) look() error {
	if r.version == "" {
		text, err := r.run("git", "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return err
		}
		r.version = strings.TrimPrefix(text, "v")
	}
	text, err := r.run("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("git log tells %q where a time belongs", text)
	}
	r.moment = time.Unix(seconds, 0).UTC()
	return nil
}

// run runs a program in the sources and gives what it prints, without the end of line.
func (r *release) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = r.source
	var told bytes.Buffer
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(told.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// build gives the program for arch. Nothing of this machine goes into it: no paths, no time, no build id.
func (r *release) build(arch, to string) ([]byte, error) {
	to, err := filepath.Abs(to)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -buildid= -X main.version="+r.version, "-o", to, "./cmd/millrace")
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, text)
	}
	return os.ReadFile(to)
}

// one makes everything for one architecture.
func (r *release) one(arch string) error {
	dir, err := os.MkdirTemp("", "millrace-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := r.build(arch, filepath.Join(dir, "millrace"))
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(filepath.Join(dir, "millrace"))
	if err != nil {
		return err
	}
	if r.only == "" && !r.clean(info) {
		fmt.Fprintln(os.Stderr, "release: the sources are not those of the commit; nobody can build this again")
	}
	bill, err := billOf(info, program, r.version, arch, r.moment)
	if err != nil {
		return err
	}
	name := "millrace-" + r.version + "-linux-" + arch
	archive, err := r.archive(name, program)
	if err != nil {
		return err
	}
	deb, err := r.deb(arch, program, bill)
	if err != nil {
		return err
	}
	return errors.Join(r.put(name+".tar.gz", archive), r.put(name+".cdx.json", bill), r.put("millrace_"+debVersion(r.version)+"_"+arch+".deb", deb))
}

func (r *release) clean(info *buildinfo.BuildInfo) bool {
	for _, s := range info.Settings {
		if s.Key == "vcs.modified" {
			return s.Value == "false"
		}
	}
	return false
}

func (r *release) put(name string, content []byte) error {
	r.files = append(r.files, name)
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// sums writes SHA256SUMS, as sha256sum -c reads it.
func (r *release) sums() error {
	slices.Sort(r.files)
	var text bytes.Buffer
	for _, name := range r.files {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), text.Bytes(), 0o644)
}
