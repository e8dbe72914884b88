package uns_test

import (
	"strings"
	"testing"

	"millrace/uns"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func namespace(workspaces ...string) *uns.Namespace {
	return uns.NewNamespace(options(func(o *uns.Options) { o.Workspaces = append(o.Workspaces, workspaces...) }))
}

func TestParse(t *testing.T) {
	n := namespace("lab")
	deep := strings.TrimSuffix(strings.Repeat("a/", 32), "/")
	for _, c := range []struct {
		topic string
		want  uns.Name
		fault string
	}{
		{"mHv1.0/main/line1/temp", uns.Name{Place: uns.Value, Workspace: "main", Path: "line1/temp"}, ""},
		{"mHv1.0/lab/a", uns.Name{Place: uns.Value, Workspace: "lab", Path: "a"}, ""},
		{"mHv1.0/main/line 1/Öl °C", uns.Name{Place: uns.Value, Workspace: "main", Path: "line 1/Öl °C"}, ""},
		{"mHv1.0/main/line1/_meta/$x", uns.Name{Place: uns.Value, Workspace: "main", Path: "line1/_meta/$x"}, ""},
		{"mHv1.0/main/_ingress/c1/line1/temp", uns.Name{Place: uns.Value, Workspace: "main", Path: "line1/temp", Client: "c1"}, ""},
		{"mHv1.0/main/_ingress/c2/line1/temp", uns.Name{Place: uns.ForeignInbox, Workspace: "main", Path: "line1/temp", Client: "c2"}, `belongs to client "c2"`},
		{"mHv1.0/main/_ingress/C1/a", uns.Name{Place: uns.ForeignInbox, Workspace: "main", Path: "a", Client: "C1"}, "belongs"},
		{"mHv1.0/main/_ingress", uns.Name{Place: uns.Invalid, Workspace: "main"}, "names no client"},
		{"mHv1.0/main/_ingress/", uns.Name{Place: uns.Invalid, Workspace: "main"}, "names no client"},
		{"mHv1.0/main/_ingress//a", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "a"}, "names no client"},
		{"mHv1.0/main/_ingress/c1", uns.Name{Place: uns.Invalid, Workspace: "main", Client: "c1"}, "path is empty"},
		{"mHv1.0/main/_ingress/c1/a/", uns.Name{Place: uns.Invalid, Workspace: "main", Client: "c1", Path: "a/"}, "level 2 of the path is empty"},
		{"mHv1.0/main/_ingress/c1/_ingress/c2/a", uns.Name{Place: uns.Invalid, Workspace: "main", Client: "c1", Path: "_ingress/c2/a"}, "reserved"},
		{"mHv1.0/main/_verdict/c1/reply/7", uns.Name{Place: uns.VerdictTopic, Workspace: "main", Path: "_verdict/c1/reply/7", Client: "c1"}, ""},
		{"mHv1.0/main/_verdict/c1", uns.Name{Place: uns.VerdictTopic, Workspace: "main", Path: "_verdict/c1", Client: "c1"}, ""},
		{"mHv1.0/main/_verdict", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "_verdict"}, "names no client"},
		{"mHv1.0/main/_verdict/c1//x", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "_verdict/c1//x", Client: "c1"}, "level 3 of the path is empty"},
		{"mHv1.0/main/_other/x", uns.Name{Place: uns.Reserved, Workspace: "main", Path: "_other/x"}, `"_other", is reserved`},
		{"mHv1.0/main/$SYS/x", uns.Name{Place: uns.Reserved, Workspace: "main", Path: "$SYS/x"}, "reserved"},
		{"mHv1.0", uns.Name{Place: uns.Invalid}, "names no workspace: wanted mHv1.0/<workspace>/<path>, known: main, lab"},
		{"mHv1.0/", uns.Name{Place: uns.Invalid}, "names no workspace"},
		{"mHv1.0/main", uns.Name{Place: uns.Invalid, Workspace: "main"}, "path is empty"},
		{"mHv1.0/main/", uns.Name{Place: uns.Invalid, Workspace: "main"}, "path is empty"},
		{"mHv1.0/Main/a", uns.Name{Place: uns.Invalid}, `unknown workspace "Main", known: main, lab`},
		{"mHv1.0/main/mHv1.0/a", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "mHv1.0/a"}, "the namespace itself"},
		// F10
		{"mHv1.0/main//line1/temp", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "/line1/temp"}, "level 1 of the path is empty (byte 0)"},
		{"mHv1.0/main/line1//temp", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "line1//temp"}, "level 2 of the path is empty (byte 6)"},
		{"mHv1.0/main/line1/temp/", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "line1/temp/"}, "level 3 of the path is empty (byte 11)"},
		{"mHv1.0/main/line1/+", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "line1/+"}, "wildcard '+' at byte 6"},
		{"mHv1.0/main/a#", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "a#"}, "wildcard '#' at byte 1"},
		{"mHv1.0/main/a\x07b", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "a\x07b"}, "control character 0x07 at byte 1"},
		{"mHv1.0/main/a\u0085", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "a\u0085"}, "control character U+0085 at byte 1"},
		{"mHv1.0/main/a\xff", uns.Name{Place: uns.Invalid, Workspace: "main", Path: "a\xff"}, "byte 1 of the path (0xFF) is not UTF-8"},
		{"mHv1.0/main/" + deep, uns.Name{Place: uns.Value, Workspace: "main", Path: deep}, ""},
		{"mHv1.0/main/" + deep + "/a", uns.Name{Place: uns.Invalid, Workspace: "main", Path: deep + "/a"}, "33 levels, at most 32"},
		{"mHv1.0/main/" + strings.Repeat("x", 1024), uns.Name{Place: uns.Value, Workspace: "main", Path: strings.Repeat("x", 1024)}, ""},
		{"mHv1.0/main/" + strings.Repeat("x", 1025), uns.Name{Place: uns.Invalid, Workspace: "main", Path: strings.Repeat("x", 1025)}, "1025 bytes, at most 1024"},
		{"/line1/temp", uns.Name{}, ""},
		{"line1//temp/", uns.Name{}, ""},
		{"mHv1.0x/main/a", uns.Name{}, ""},
		{"mhv1.0/main/a", uns.Name{}, ""},
		{"/mHv1.0/main/a", uns.Name{}, ""},
		{"", uns.Name{}, ""},
	} {
		got := n.Parse(c.topic, "c1")
		if d := cmp.Diff(c.want, got, cmpopts.IgnoreFields(uns.Name{}, "Fault")); d != "" {
			t.Errorf("%.60q: %s", c.topic, d)
		}
		if !strings.Contains(got.Fault, c.fault) || (c.fault == "") != (got.Fault == "") {
			t.Errorf("%.60q: fault %q, want %q in it", c.topic, got.Fault, c.fault)
		}
	}
}

func TestPath(t *testing.T) {
	n := namespace("lab")
	for _, c := range []struct{ workspace, topic, path, fault string }{
		{"main", "line1/temp", "line1/temp", ""},
		{"main", "mHv1.0/main/line1/temp", "line1/temp", ""},
		{"lab", "mHv1.0/main/line1/temp", "", `the topic is in workspace "main", asked for was "lab"`},
		{"nope", "a", "", `unknown workspace "nope", known: main, lab`},
		{"main", "mHv1.0/main", "", "path is empty"},
		{"main", "mHv1.0", "", "asked for was"},
		{"main", "", "", "path is empty"},
		{"main", "a/", "", "level 2 of the path is empty"},
		{"main", "_ingress/c1/a", "", "reserved"},
	} {
		path, fault := n.Path(c.workspace, c.topic)
		if path != c.path || !strings.Contains(fault, c.fault) || (c.fault == "") != (fault == "") {
			t.Errorf("%s %q: got %q, %q", c.workspace, c.topic, path, fault)
		}
	}
	if got := n.Full("main", "a/b"); got != "mHv1.0/main/a/b" {
		t.Errorf("Full: %s", got)
	}
}

func TestValidFilter(t *testing.T) {
	for f, want := range map[string]bool{
		"": false, "a": true, "/": true, "+": true, "#": true, "+/#": true, "a/+/b": true, "a/#": true, "//": true,
		"a#": false, "a/b#": false, "#/a": false, "a+": false, "+a": false, "a/#/b": false, "##": false, "++": false,
		"a\x00": false, "a\xff": false, strings.Repeat("a", 65535): true, strings.Repeat("a", 65536): false, "$SYS/#": true,
	} {
		if got := uns.ValidFilter(f); got != want {
			t.Errorf("ValidFilter(%.40q) = %v", f, got)
		}
	}
	for name, want := range map[string]bool{
		"": false, "a/b": true, "/": true, "a+": false, "#": false, "a\x00": false, "\xc3\x28": false, "Öl": true, "$SYS": true,
	} {
		if got := uns.ValidTopicName([]byte(name)); got != want {
			t.Errorf("ValidTopicName(%q) = %v", name, got)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		want          bool
	}{
		// F08
		{"line1/press", "line1/press", true}, {"line1/press", "line1/press/secret", false}, {"line1/press", "line1/pressX", false},
		{"line1/#", "line1", true}, {"line1/#", "line1/a/b", true}, {"line1/+", "line1/a", true}, {"line1/+", "line1", false},
		{"line1/+", "line1/", true}, {"+/press", "line1/press", true}, {"line1/press/#", "line1/press", true},
		{"+/#", "a", true}, {"a/+/#", "a", false}, {"a/+/#", "a/b", true}, {"#", "a/b", true}, {"+", "a/b", false},
		{"#", "$SYS/a", false}, {"+/a", "$SYS/a", false}, {"$SYS/#", "$SYS/a", true}, {"$SYS/+", "$SYS/a", true}, {"a/#", "a/$b", true},
		// F10
		{"+/line1/temp", "/line1/temp", true}, {"+/line1/temp", "line1/temp", false}, {"line1//#", "line1//temp", true},
		{"line1//#", "line1/temp", false}, {"+/+", "/", true}, {"/+", "/", true}, {"/", "/", true}, {"+", "/", false},
		{"a/b", "a", false}, {"a", "a/b", false}, {"", "a", false}, {"a", "", false}, {"+", "", false},
	} {
		if got := uns.Match(c.filter, c.topic); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.filter, c.topic, got)
		}
	}
}

// naive is Match as the standard words it, level by level, by recursion.
func naive(filter, topic []string) bool {
	switch {
	case len(filter) == 0:
		return len(topic) == 0
	case filter[0] == "#":
		return true
	case len(topic) == 0:
		return false
	case filter[0] == "+" || filter[0] == topic[0]:
		return naive(filter[1:], topic[1:])
	}
	return false
}

func TestMatchAgainstNaive(t *testing.T) {
	level := rapid.SampledFrom([]string{"", "a", "b", "ab", "$a", "_a"})
	wild := rapid.SampledFrom([]string{"", "a", "b", "ab", "$a", "+", "+", "#"})
	rapid.Check(t, func(t *rapid.T) {
		topic := rapid.SliceOfN(level, 1, 5).Draw(t, "topic")
		filter := rapid.SliceOfN(wild, 1, 5).Draw(t, "filter")
		f, name := strings.Join(filter, "/"), strings.Join(topic, "/")
		if !uns.ValidFilter(f) || name == "" {
			return
		}
		want := naive(filter, topic) && !(strings.HasPrefix(name, "$") && (filter[0] == "+" || filter[0] == "#"))
		if got := uns.Match(f, name); got != want {
			t.Fatalf("Match(%q, %q) = %v", f, name, got)
		}
	})
}

func FuzzTopic(f *testing.F) {
	for _, s := range []string{"mHv1.0/main/a/b", "mHv1.0/main/_ingress/c1/a", "mHv1.0/main/_verdict/c1/x", "mHv1.0", "mHv1.0/main//", "a/b", "mHv1.0/main/\x00", "mHv1.0/main/\xff", "mHv1.0/lab/$x"} {
		f.Add(s, "c1")
	}
	n := namespace("lab")
	f.Fuzz(func(t *testing.T, topic, client string) {
		name := n.Parse(topic, client)
		switch name.Place {
		case uns.Value:
			if path, fault := n.Path(name.Workspace, name.Path); fault != "" || path != name.Path {
				t.Fatalf("%q: a good topic whose path is refused: %s", topic, fault)
			}
			full := n.Full(name.Workspace, name.Path)
			if again := n.Parse(full, client); again.Place != uns.Value || again.Path != name.Path {
				t.Fatalf("%q leads to %q, which is read as %+v", topic, full, again)
			}
			if !uns.ValidTopicName([]byte(full)) || strings.Contains(full, "//") {
				t.Fatalf("%q leads to %q", topic, full)
			}
			if name.Client != "" && name.Client != client {
				t.Fatalf("%q: %s writes the inbox of %s", topic, client, name.Client)
			}
		case uns.Ordinary:
			if topic == "mHv1.0" || strings.HasPrefix(topic, "mHv1.0/") {
				t.Fatalf("%q is taken for an ordinary topic", topic)
			}
		case uns.VerdictTopic:
			if !strings.HasPrefix(name.Path, "_verdict/"+name.Client) || name.Client == "" {
				t.Fatalf("%q: %+v", topic, name)
			}
		default:
			if name.Fault == "" {
				t.Fatalf("%q: %+v without a fault", topic, name)
			}
		}
	})
}

func FuzzFilter(f *testing.F) {
	for _, s := range [][2]string{{"a/#", "a"}, {"+/+", "/"}, {"#", "$SYS"}, {"a+", "a"}, {"a/+/c", "a/b/c"}, {"\xff", "\xff"}, {"", ""}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, filter, topic string) {
		got := uns.Match(filter, topic)
		if !uns.ValidFilter(filter) || !uns.ValidTopicName([]byte(topic)) {
			return
		}
		want := naive(strings.Split(filter, "/"), strings.Split(topic, "/")) && !(topic[0] == '$' && (filter[0] == '+' || filter[0] == '#'))
		if got != want {
			t.Fatalf("Match(%q, %q) = %v", filter, topic, got)
		}
		if !strings.ContainsAny(filter, "+#") && got != (filter == topic) {
			t.Fatalf("a literal filter %q against %q: %v", filter, topic, got)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if !uns.Match("line1/+/temp/#", "line1/press-07/temp/inner") {
			b.Fatal("no match")
		}
	}
}
