package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clone gives the committed sources in a folder of their own.
func clone(t *testing.T, name string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	command(t, "git", "clone", "--quiet", "file://"+root, dir)
	return dir
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Two releases of one commit, made in different folders, are the same to the last octet, and what is in them is what the linker
// says. MILLRACE_LONG=1 does it for both architectures.
func TestReleaseIsReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("make race: it builds the same programs as make unit, without anything that could race")
	}
	only := "amd64"
	if os.Getenv("MILLRACE_LONG") != "" {
		only = ""
	}
	outs := [2]string{}
	for i, name := range []string{"one", "another-place/with-a-longer-name"} {
		source := clone(t, name)
		outs[i] = filepath.Join(t.TempDir(), "dist")
		r := release{source: source, out: outs[i], version: "1.2.3", only: only}
		if err := r.make(); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(outs[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := map[bool]int{true: 4, false: 7}[only != ""]; len(entries) != want {
		t.Errorf("%d files, want %d", len(entries), want)
	}
	for _, e := range entries {
		a, errA := os.ReadFile(filepath.Join(outs[0], e.Name()))
		b, errB := os.ReadFile(filepath.Join(outs[1], e.Name()))
		if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs between two builds (%d and %d octets, %v)", e.Name(), len(a), len(b), err)
		}
	}
	sums := exec.Command("sha256sum", "--quiet", "-c", "SHA256SUMS")
	sums.Dir = outs[0]
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("SHA256SUMS: %v: %s", err, out)
	}
	program := filepath.Join(t.TempDir(), "millrace")
	unpack(t, filepath.Join(outs[0], "millrace-1.2.3-linux-amd64.tar.gz"), "millrace-1.2.3-linux-amd64/millrace", program)
	testBill(t, filepath.Join(outs[0], "millrace-1.2.3-linux-amd64.cdx.json"), program)
	testVersion(t, program)
	testPackage(t, filepath.Join(outs[0], "millrace_1.2.3_amd64.deb"))
}

func unpack(t *testing.T, archive, name, to string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s in %s: %v", name, archive, err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" {
			t.Errorf("%s belongs to %d %q", h.Name, h.Uid, h.Uname)
		}
		if h.Name == name {
			content, err := io.ReadAll(r)
			if err := errors.Join(err, os.WriteFile(to, content, fs.FileMode(h.Mode))); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// The bill of materials names every module of the program and no other.
func testBill(t *testing.T, file, program string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b bill
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Components) != len(info.Deps)+1 || b.Components[0].Name != "std" {
		t.Errorf("%d components, the program has %d modules and the standard library", len(b.Components), len(info.Deps))
	}
	for _, m := range info.Deps {
		if !slices.ContainsFunc(b.Components, func(c component) bool { return c.Name == m.Path && c.Version == m.Version }) {
			t.Errorf("%s %s is not in the bill", m.Path, m.Version)
		}
	}
	refs := map[string]bool{}
	for _, c := range b.Components {
		if refs[c.Ref] {
			t.Errorf("the reference %s is there twice", c.Ref)
		}
		refs[c.Ref] = true
	}
	for _, ref := range b.Dependencies[0].DependsOn {
		if !refs[ref] {
			t.Errorf("a dependency on %s, which is no component", ref)
		}
	}
}

// The program says of itself what release told it.
func testVersion(t *testing.T, program string) {
	t.Helper()
	var v struct {
		Version, Commit, Date, Platform string
		Modified                        bool
		Modules                         []any
	}
	if err := json.Unmarshal([]byte(command(t, program, "version", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	head := strings.TrimSpace(command(t, "git", "rev-parse", "HEAD"))
	if v.Version != "1.2.3" || v.Commit != head || v.Date == "" || v.Modified || v.Platform != "linux/amd64" || len(v.Modules) < 20 {
		t.Errorf("version: %+v, HEAD is %s", v, head)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("the program is not static: %v %v", libs, err)
	}
}

// dpkg reads, installs, upgrades and removes the package. The settings that somebody changed stay, and so do the values, also
// after a purge. The package's scripts run with other programs in place of those that would change this machine.
func testPackage(t *testing.T, deb string) {
	t.Helper()
	info := command(t, "dpkg-deb", "--info", deb)
	for _, want := range []string{"Package: millrace", "Version: 1.2.3", "Architecture: amd64", "conffiles", "postinst", "prerm"} {
		if !strings.Contains(info, want) {
			t.Errorf("dpkg-deb --info lacks %q:\n%s", want, info)
		}
	}
	list := command(t, "dpkg-deb", "--contents", deb)
	for _, want := range []string{"./etc/millrace/config.yaml", "./usr/bin/millrace", "./lib/systemd/system/millrace.service", "./usr/share/bash-completion/completions/millrace", "./usr/share/doc/millrace/copyright"} {
		if !strings.Contains(list, " "+want+"\n") {
			t.Errorf("the package lacks %s", want)
		}
	}
	for line := range strings.Lines(list) {
		if !strings.Contains(line, " root/root ") {
			t.Errorf("not root's: %s", line)
		}
	}
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "stand-ins"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	told := filepath.Join(root, "told")
	for name, script := range map[string]string{"adduser": `echo "adduser $*" >>"$TOLD"`, "chown": `echo "chown $*" >>"$TOLD"`, "getent": "exit 2", "systemctl": `echo "systemctl $*" >>"$TOLD"`, "ldconfig": "", "start-stop-daemon": ""} {
		if err := os.WriteFile(filepath.Join(root, "stand-ins", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		t.Helper()
		cmd := exec.Command("dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends", "--force-not-root", "--force-confdef", "--log=" + filepath.Join(root, "log")}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "stand-ins")+":"+os.Getenv("PATH")+":/usr/sbin:/sbin", "TOLD="+told)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("dpkg %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	dpkg("--install", deb)
	settings, value := filepath.Join(root, "etc/millrace/config.yaml"), filepath.Join(root, "var/lib/millrace/values")
	text, err := os.ReadFile(settings)
	if err != nil || !bytes.Contains(text, []byte("\ndata: /var/lib/millrace ")) {
		t.Errorf("settings: %v: %.200s", err, text)
	}
	if err := os.WriteFile(settings, append(text, "# ours\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(value, []byte("42.70"), 0o640); err != nil {
		t.Fatalf("the data folder: %v", err)
	}
	if said, err := os.ReadFile(told); err != nil || !strings.Contains(string(said), "adduser --system --group") || !strings.Contains(string(said), "chown millrace:millrace "+root+"/var/lib/millrace") {
		t.Errorf("postinst did: %s %v", said, err)
	}
	command(t, filepath.Join(root, "usr/bin/millrace"), "config", "check", settings)
	dpkg("--install", deb) // an upgrade to the same
	if again, err := os.ReadFile(settings); err != nil || !bytes.HasSuffix(again, []byte("# ours\n")) {
		t.Errorf("the upgrade changed the settings: %v", err)
	}
	dpkg("--remove", "millrace")
	if _, err := os.Stat(settings); err != nil {
		t.Errorf("removal took the settings: %v", err)
	}
	dpkg("--purge", "millrace")
	if got, err := os.ReadFile(value); err != nil || string(got) != "42.70" {
		t.Errorf("the values are gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/bin/millrace")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the program is still there: %v", err)
	}
}

// systemd takes the unit, and finds little that a broken-into box could reach.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../millrace.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unit := filepath.Join(dir, "millrace.service")
	// verify wants the program to be there; this one is.
	if err := os.WriteFile(unit, bytes.ReplaceAll(text, []byte("/usr/bin/millrace "), []byte("/bin/true ")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := command(t, "systemd-analyze", "verify", "--man=no", unit); strings.Contains(out, "millrace") {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	// The threshold is ten times the level: 1.5.
	command(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", unit)
	for _, want := range []string{"Type=notify\n", "WatchdogSec=", "User=millrace\n", "StateDirectory=millrace\n", "Restart=always\n"} {
		if !bytes.Contains(text, []byte("\n"+want)) {
			t.Errorf("the unit lacks %s", strings.TrimSpace(want))
		}
	}
}

func TestVersionsOfPackages(t *testing.T) {
	for version, want := range map[string]string{"1.2.3": "1.2.3", "v1.2.3": "1.2.3", "1.2.3-4-gabcdef": "1.2.3+4+gabcdef", "abcdef0": "0~abcdef0", "80ed835": "0~80ed835", "80ed835-dirty": "0~80ed835+dirty", "": "0~"} {
		if got := debVersion(version); got != want {
			t.Errorf("%q becomes %q, want %q", version, got, want)
		}
	}
	if _, err := packaged([]byte("data: elsewhere\n")); err == nil {
		t.Error("a config.yaml without the keys was taken")
	}
}
