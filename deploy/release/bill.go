package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// bill is a bill of materials: CycloneDX 1.6, the fields that we fill.
type bill struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Purl       string     `json:"purl,omitempty"`
	Scope      string     `json:"scope,omitempty"`
	Hashes     []digest   `json:"hashes,omitempty"`
	Licenses   []licence  `json:"licenses,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type digest struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type licence struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// purl is the package URL of a Go module. Letters of a version such as +incompatible are escaped.
func purl(path, version string) string {
	levels := strings.Split(path, "/")
	for i := range levels {
		levels[i] = url.PathEscape(levels[i])
	}
	return "pkg:golang/" + strings.Join(levels, "/") + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
}

// billOf lists what the program was linked from, as the linker wrote it into the program: it cannot leave a module out, nor
// name one that only tests need.
func billOf(info *buildinfo.BuildInfo, program []byte, version, arch string, moment time.Time) ([]byte, error) {
	sum := sha256.Sum256(program)
	own := component{Ref: "millrace", Type: "application", Name: "millrace", Version: version, Hashes: []digest{{"SHA-256", hex.EncodeToString(sum[:])}}}
	apache := licence{}
	apache.License.ID = "Apache-2.0"
	own.Licenses = []licence{apache}
	own.Properties = append(own.Properties, property{"millrace:platform", "linux/" + arch})
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.time" {
			own.Properties = append(own.Properties, property{"millrace:" + s.Key, s.Value})
		}
	}
	number := strings.TrimPrefix(info.GoVersion, "go")
	std := component{Ref: purl("std", number), Type: "library", Name: "std", Version: number, Purl: purl("std", number), Scope: "required"}
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Components: []component{std}}
	uses := dependency{Ref: own.Ref, DependsOn: []string{std.Ref}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component{Type: "library", Name: m.Path, Version: m.Version, Purl: purl(m.Path, m.Version), Scope: "required"}
		c.Ref = c.Purl
		if m.Sum != "" {
			// Go's sum covers the list of files, not one archive, so it is no hash in the sense of the standard.
			c.Properties = []property{{"go:sum", m.Sum}}
		}
		b.Components = append(b.Components, c)
		uses.DependsOn = append(uses.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{uses}
	b.Metadata = metadata{Timestamp: moment.Format(time.RFC3339), Component: own}
	// A version 8 UUID of the program's own hash: the same for the same program.
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	b.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(b)
	return out.Bytes(), err
}
