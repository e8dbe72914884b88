package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// item is a file of an archive.
type item struct {
	name    string // with / and without a leading one
	mode    int64
	content []byte
}

// tarball packs the items with all their folders, everything root's and of the same moment.
func tarball(items []item, moment time.Time, prefix string) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	var made []string
	var folder func(dir string) error
	folder = func(dir string) error {
		if dir == "." || slices.Contains(made, dir) {
			return nil
		}
		if err := folder(path.Dir(dir)); err != nil {
			return err
		}
		made = append(made, dir)
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: prefix + dir + "/", Mode: 0o755, ModTime: moment, Uname: "root", Gname: "root", Format: tar.FormatUSTAR})
	}
	if prefix != "" {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: prefix, Mode: 0o755, ModTime: moment, Uname: "root", Gname: "root", Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
	}
	for _, it := range items {
		if err := folder(path.Dir(it.name)); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: prefix + it.name, Mode: it.mode, Size: int64(len(it.content)), ModTime: moment, Uname: "root", Gname: "root", Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(it.content); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// read gives files of the sources as items at other places; pairs of source and place.
func (r *release) read(mode int64, pairs ...string) (list []item, err error) {
	for i := 0; i < len(pairs); i += 2 {
		content, err := os.ReadFile(filepath.Join(r.source, filepath.FromSlash(pairs[i])))
		if err != nil {
			return nil, err
		}
		list = append(list, item{pairs[i+1], mode, content})
	}
	return list, nil
}

// archive is the program with what one needs to run it by hand.
func (r *release) archive(name string, program []byte) ([]byte, error) {
	rest, err := r.read(0o644, "LICENSE", "LICENSE", "NOTICE", "NOTICE", "README.md", "README.md", "CHANGELOG.md", "CHANGELOG.md", "config.yaml", "config.yaml",
		"deploy/millrace.service", "millrace.service", "deploy/METRICS.md", "METRICS.md", "deploy/prometheus/millrace.rules.yaml", "millrace.rules.yaml", "deploy/grafana/box.json", "grafana-box.json",
		"deploy/grafana/history.json", "grafana-history.json", "deploy/grafana/provisioning/datasources/millrace.yaml", "grafana-datasource.yaml")
	if err != nil {
		return nil, err
	}
	return tarball(append([]item{{"millrace", 0o755, program}}, rest...), r.moment, name+"/")
}

// debVersion makes a package version of ours: Debian's begin with a digit, and one that is only a commit comes before all others.
func debVersion(version string) string {
	v := strings.ReplaceAll(strings.TrimPrefix(version, "v"), "-", "+")
	if v == "" || v[0] < '0' || v[0] > '9' || !strings.Contains(v, ".") {
		v = "0~" + v
	}
	return v
}

// deb is the Debian package: an ar archive of its version, its control files and its content (deb(5)).
func (r *release) deb(arch string, program, bill []byte) ([]byte, error) {
	settings, err := os.ReadFile(filepath.Join(r.source, "config.yaml"))
	if err != nil {
		return nil, err
	}
	if settings, err = packaged(settings); err != nil {
		return nil, err
	}
	content := []item{{"etc/millrace/config.yaml", 0o644, settings}, {"usr/bin/millrace", 0o755, program}, {"usr/share/doc/millrace/millrace.cdx.json", 0o644, bill}}
	rest, err := r.read(0o644, "deploy/millrace.service", "lib/systemd/system/millrace.service", "LICENSE", "usr/share/doc/millrace/copyright", "NOTICE", "usr/share/doc/millrace/NOTICE",
		"README.md", "usr/share/doc/millrace/README.md", "CHANGELOG.md", "usr/share/doc/millrace/CHANGELOG.md", "docs/operating.md", "usr/share/doc/millrace/operating.md",
		"docs/payloads.md", "usr/share/doc/millrace/payloads.md", "docs/mqtt.md", "usr/share/doc/millrace/mqtt.md", "deploy/METRICS.md", "usr/share/doc/millrace/METRICS.md",
		"deploy/prometheus/millrace.rules.yaml", "usr/share/doc/millrace/millrace.rules.yaml", "deploy/grafana/box.json", "usr/share/doc/millrace/grafana-box.json",
		"deploy/grafana/history.json", "usr/share/doc/millrace/grafana-history.json", "deploy/grafana/provisioning/datasources/millrace.yaml", "usr/share/doc/millrace/grafana-datasource.yaml")
	if err != nil {
		return nil, err
	}
	content = append(content, rest...)
	for shell, place := range map[string]string{"bash": "usr/share/bash-completion/completions/millrace", "zsh": "usr/share/zsh/vendor-completions/_millrace", "fish": "usr/share/fish/vendor_completions.d/millrace.fish"} {
		text, err := os.ReadFile(filepath.Join(r.source, "cmd", "millrace", "completion", "millrace."+shell))
		if err != nil {
			return nil, err
		}
		content = append(content, item{place, 0o644, text})
	}
	slices.SortFunc(content, func(a, b item) int { return strings.Compare(a.name, b.name) })

	var size int64
	var sums bytes.Buffer
	for _, it := range content {
		size += int64(len(it.content))
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(it.content), it.name)
	}
	scripts, err := r.read(0o755, "deploy/debian/postinst", "postinst", "deploy/debian/postrm", "postrm", "deploy/debian/prerm", "prerm")
	if err != nil {
		return nil, err
	}
	control, err := os.ReadFile(filepath.Join(r.source, "deploy", "debian", "control"))
	if err != nil {
		return nil, err
	}
	filled := strings.NewReplacer("{{VERSION}}", debVersion(r.version), "{{ARCH}}", arch, "{{SIZE}}", fmt.Sprint((size+1023)/1024)).Replace(string(control))
	meta := append([]item{{"control", 0o644, []byte(filled)}, {"conffiles", 0o644, []byte("/etc/millrace/config.yaml\n")}, {"md5sums", 0o644, sums.Bytes()}}, scripts...)

	first, err := tarball(meta, r.moment, "./")
	if err != nil {
		return nil, err
	}
	second, err := tarball(content, r.moment, "./")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, m := range []struct {
		name    string
		content []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", first}, {"data.tar.gz", second}} {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, r.moment.Unix(), 0, 0, "100644", len(m.content))
		out.Write(m.content)
		if len(m.content)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	return out.Bytes(), nil
}

// packaged is config.yaml with the places of a package.
func packaged(settings []byte) ([]byte, error) {
	text := string(settings)
	for _, change := range [][2]string{{"\ndata: ./data ", "\ndata: /var/lib/millrace "}, {"\n  root: \"\" ", "\n  root: /var/backups/millrace "}} {
		if strings.Count(text, change[0]) != 1 {
			return nil, fmt.Errorf("config.yaml has %q not once", strings.TrimSpace(change[0]))
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	return []byte(text), nil
}
