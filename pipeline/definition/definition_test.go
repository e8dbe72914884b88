package definition_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/pipeline/definition"
	"millrace/pipeline/node"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

// plain is a node that hands its input on.
type plain struct{}

func (plain) Run(context.Context, *node.Call) node.Result { return node.Result{} }

type listens struct {
	plain
	filters []string
}

func (l listens) Start() node.Start { return node.Start{Values: &node.Values{Filters: l.filters}} }

func types() []node.Type {
	field := node.Field{Name: "topic", Kind: node.TopicField, Template: true}
	made := func(*node.Config) (node.Node, []node.Fault) { return plain{}, nil }
	return []node.Type{
		{Spec: node.Spec{Type: "trigger.values", Trigger: true, Fields: []node.Field{{Name: "topics", Kind: node.ListField, Required: true, Of: &node.Field{Kind: node.FilterField}}}}, New: func(c *node.Config) (node.Node, []node.Fault) {
			l := listens{}
			for i := range c.Params.Get("topics").Len() {
				l.filters = append(l.filters, c.Params.Get("topics").Index(i).Text())
			}
			return l, nil
		}},
		{Spec: node.Spec{Type: "test.set", Fields: []node.Field{{Name: "x", Kind: node.AnyField}, {Name: "n", Kind: node.NumberField, Default: "5"}}}, New: func(c *node.Config) (node.Node, []node.Fault) {
			if c.Params.Get("x").Text() == "bad" {
				return nil, []node.Fault{{Field: "x", Code: "bad", Message: "x is bad", Severity: node.SeverityError}}
			}
			return plain{}, nil
		}},
		{Spec: node.Spec{Type: "test.if", Outputs: []node.Port{{Name: "true"}, {Name: "false"}}}, New: made},
		{Spec: node.Spec{Type: "test.publish", Effect: true, Fields: []node.Field{field}}, New: made},
		{Spec: node.Spec{Type: "test.switch", Ports: true, Fields: []node.Field{{Name: "ports", Kind: node.ListField, Of: &node.Field{Kind: node.TextField}}}}, New: made, Ports: func(p value.Value) (ports []node.Port) {
			for i := range p.Get("ports").Len() {
				ports = append(ports, node.Port{Name: p.Get("ports").Index(i).Text()})
			}
			return ports
		}},
	}
}

const whole = `{"id":"p1","workspace":"main","name":"First","description":"two\nlines","labels":{"b":"2","a":"1"},
"settings":{"priority":"high","runOrder":"byKey","orderKey":"{{ $trigger.topic }}","timeout":"10s","historyDetail":"full"},
"nodes":[{"id":"in","type":"trigger.values","params":{"topics":["line1/#"]}},
{"id":"set","type":"test.set","name":"Set it","params":{"x":{"q":1.50,"t":"a\n  b\n"},"n":9007199254740993},"settings":{"timeout":"1s","retry":{"count":3,"backoff":"exponential","jitter":0.25},"onError":"continue"}},
{"id":"if","type":"test.if"},{"id":"out","type":"test.publish","params":{"topic":"line2/{{ $node[\"Set it\"].x }}"}}],
"edges":[{"from":"in","to":"set"},{"from":"set","to":"if"},{"from":"if","port":"true","to":"out"},{"from":"if","port":"error","to":"out"}],
"layout":{"in":[1,2]}}`

func read(t testing.TB, text string) definition.Definition {
	t.Helper()
	d, faults := definition.Read([]byte(text))
	if len(faults) > 0 {
		t.Fatalf("%v", faults)
	}
	return d
}

func compiler(t testing.TB) *definition.Compiler {
	e := script.NewEngine(script.Options{})
	t.Cleanup(e.Close)
	return definition.NewCompiler(types(), e)
}

func TestJSONAndYAMLAreTheSame(t *testing.T) {
	d := read(t, whole)
	again := read(t, string(d.AppendJSON(nil)))
	if diff := cmp.Diff(string(d.AppendJSON(nil)), string(again.AppendJSON(nil))); diff != "" {
		t.Error(diff)
	}
	text := d.YAML()
	y, faults := definition.ReadYAML(text)
	if len(faults) > 0 {
		t.Fatalf("%v\n%s", faults, text)
	}
	if diff := cmp.Diff(string(d.AppendJSON(nil)), string(y.AppendJSON(nil))); diff != "" {
		t.Errorf("%s\n%s", diff, text)
	}
	if string(y.YAML()) != string(text) {
		t.Errorf("written again it is\n%s", y.YAML())
	}
	if !strings.HasPrefix(string(text), "id: p1\nworkspace: main\nname: First\ndescription: |-\n  two\n  lines\nlabels:\n  a: \"1\"\n") || !strings.HasSuffix(string(text), "layout:\n  in:\n    - 1\n    - 2\n") {
		t.Errorf("%s", text)
	}
}

func TestPlan(t *testing.T) {
	d := read(t, whole)
	p, faults := compiler(t).Compile(&d, 7, 3)
	if len(faults) > 0 || p == nil {
		t.Fatal(faults)
	}
	if p.Number != 7 || p.Version != 3 || p.Settings.Lane != 0 || p.Settings.Order != definition.OrderByKey || p.Settings.Key == nil || p.Settings.Detail != definition.DetailFull || p.Settings.Timeout.Seconds() != 10 {
		t.Errorf("%+v", p)
	}
	shape := ""
	for _, s := range p.Steps {
		shape += fmt.Sprint(s.Number, s.ID, s.In, s.Out, s.Error, " ")
	}
	if want := "0in[] [[1]] [] 1set[0] [[2]] [] 2if[1] [[3] []] [3] 3out[2] [[]] [] "; shape != want {
		t.Errorf("%s\n%s", shape, want)
	}
	if s := p.Steps[1].Settings; s.Retries != 3 || !s.Exponential || s.Jitter != 0.25 || s.OnError != definition.ErrorContinues || s.Timeout.Seconds() != 1 {
		t.Errorf("%+v", s)
	}
	if p.Steps[2].Settings.OnError != definition.ErrorOutput || p.Steps[0].Settings.OnError != definition.ErrorStops || len(p.Triggers) != 1 {
		t.Error("what errors do")
	}
}

func TestEveryFaultIsNamed(t *testing.T) {
	in := `{"id":"in","type":"trigger.values","params":{"topics":["a/#"]}}`
	for text, want := range map[string]string{
		`{"id":"p"`: "syntax", `[]`: " wrong_kind",
		`{"id":5,"nodes":{},"zzz":1,"edges":[{"from":1,"q":2}],"settings":{"maxDepth":1.5}}`:                 "id wrong_kind, nodes wrong_kind, zzz unknown_field, edges[0].from wrong_kind, edges[0].q unknown_field, settings.maxDepth wrong_kind",
		`{"id":"p","id":"q","nodes":[` + in + `,{"id":"s","type":"test.set","params":{"x":{"a":1,"a":2}}}]}`: "id duplicate, nodes[1].params.x.a duplicate",
		`{"id":"a b","nodes":[]}`:                    "id id_invalid, nodes no_trigger",
		`{"id":"p","nodes":[` + in + `,` + in + `]}`: "in:id duplicate",
		`{"id":"p","nodes":[` + in + `,{"id":"s","type":"test.sett"},{"id":"","type":"test.set"},{"id":"t","type":"values"}]}`:                                                                                                                        "s:type unknown_type, nodes[2].id id_invalid, t:type unknown_type, ( unreachable)",
		`{"id":"p","nodes":[` + in + `,{"id":"s","type":"test.set","name":"in","params":{"n":"x","q":1}},{"id":"u","type":"test.set","params":{"x":"bad"}}],"edges":[{"from":"in","to":"s"},{"from":"in","to":"u"}]}`:                                 "s:name duplicate, s:params.q unknown_field, s:params.n wrong_kind, u:params.x bad",
		`{"id":"p","settings":{"priority":"urgent","runOrder":"byKey","timeout":"x","maxDepth":17},"nodes":[` + in + `]}`:                                                                                                                             "settings.priority not_an_option, settings.timeout duration_invalid, settings.maxDepth out_of_bounds, settings.orderKey missing_field",
		`{"id":"p","settings":{"runOrder":"byKey","orderKey":"1 +"},"nodes":[` + in + `]}`:                                                                                                                                                            "settings.orderKey script_invalid",
		`{"id":"p","nodes":[` + in + `,{"id":"s","type":"test.set","settings":{"timeout":"0s","onError":"panic","retry":{"count":101,"delay":"a","backoff":"b","jitter":2}}}],"edges":[{"from":"in","to":"s"}]}`:                                      "s:settings.timeout out_of_bounds, s:settings.retry.count out_of_bounds, s:settings.retry.backoff not_an_option, s:settings.retry.delay duration_invalid, s:settings.retry.jitter out_of_bounds, s:settings.onError not_an_option",
		`{"id":"p","nodes":[` + in + `,{"id":"s","type":"test.if"}],"edges":[{"from":"in","to":"s"},{"from":"in","to":"s"},{"from":"s","to":"in"},{"from":"s","port":"maybe","to":"s"},{"from":"x","to":"y"},{"from":"in","port":"error","to":"s"}]}`: "edges[1] duplicate, in:edges[2].to unknown_port, s:edges[3].port unknown_port, edges[4].from unknown_node, edges[4].to unknown_node, in:edges[5].port unknown_port",
		`{"id":"p","nodes":[` + in + `,{"id":"a","type":"test.set"},{"id":"b","type":"test.set"},{"id":"c","type":"test.set"}],"edges":[{"from":"in","to":"a"},{"from":"a","to":"b"},{"from":"b","to":"a"},{"from":"b","to":"c"}]}`:                   "a:edges cycle",
		`{"id":"p","nodes":[` + in + `,{"id":"a","type":"test.set","params":{"x":["{{ $node.b }} {{ $node[\"no\"].z }}"]}},{"id":"b","type":"test.set"}],"edges":[{"from":"in","to":"a"},{"from":"a","to":"b"}]}`:                                     "a:params.x[0] not_before, a:params.x[0] unknown_node",
		`{"id":"p","nodes":[` + in + `,{"id":"s","type":"test.set"}]}`:                                                               "(s: unreachable)",
		`{"id":"p","nodes":[` + in + `,{"id":"s","type":"test.publish","params":{"topic":"a/b"}}],"edges":[{"from":"in","to":"s"}]}`: "(s:params.topic loop)",
		`{"id":"p","nodes":[` + in + `,{"id":"s","type":"test.switch","params":{"ports":["x","y"]}},{"id":"t","type":"test.set"}],"edges":[{"from":"in","to":"s"},{"from":"s","port":"y","to":"t"},{"from":"s","port":"z","to":"t"}]}`: "s:edges[2].port unknown_port",
	} {
		d, faults := definition.Read([]byte(text))
		if !definition.Broken(faults) {
			var p *definition.Plan
			if p, faults = compiler(t).Compile(&d, 1, 1); (p == nil) != definition.Broken(faults) {
				t.Errorf("%s: plan %v with %v", text, p != nil, faults)
			}
		}
		var got []string
		for _, f := range faults {
			if f.Message == "" {
				t.Errorf("%s: %+v", text, f)
			}
			s := f.Field + " " + f.Code
			if f.Field == "" && f.Code == "syntax" {
				s = f.Code
			}
			if f.Node != "" {
				s = f.Node + ":" + s
			}
			if f.Severity == node.SeverityWarning {
				s = "(" + s + ")"
			}
			got = append(got, s)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s:\n got %s\nwant %s\n%v", text, strings.Join(got, ", "), want, faults)
		}
	}
}

func TestDiff(t *testing.T) {
	a := read(t, whole)
	b := read(t, strings.NewReplacer(`"count":3`, `"count":4`, `"q":1.50`, `"q":1.5,"r":null`, `{"id":"if","type":"test.if"}`, `{"id":"fi","type":"test.if"}`, `"to":"if"`, `"to":"fi"`, `"from":"if"`, `"from":"fi"`, `"in":[1,2]`, `"in":[1,3]`, `"priority":"high"`, `"priority":"low"`).Replace(whole))
	if list := definition.Diff(&a, &a); len(list) != 0 {
		t.Errorf("%v", list)
	}
	var got []string
	for _, d := range definition.Diff(&a, &b) {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s>%s", d.Kind, d.Node, d.What, d.Field, d.Was.String(), d.Is.String())))
	}
	want := []string{
		"pipeline  changed settings.priority high>low", "node set changed params.x.q 1.50>1.5", "node set added params.x.r >null", "node set changed settings.retry.count 3>4",
		`node fi added  >{"id":"fi","type":"test.if"}`, `node if removed  {"id":"if","type":"test.if"}>`,
		"edge  added  >set.out -> fi", "edge  added  >fi.true -> out", "edge  added  >fi.error -> out", "edge  removed  set.out -> if>", "edge  removed  if.true -> out>", "edge  removed  if.error -> out>",
		"layout  changed layout.in[1] 2>3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestYAMLFaults(t *testing.T) {
	for text, want := range map[string]string{
		"id: p\nid: q\n": "", "a: &x 1\nb: *x\n": "not allowed", "id: .inf\n": "finite", "id: 0x10\n": "no number", "": "documents", "id: a\n---\nid: b\n": "documents", "id: [\n": "", "id: !!str 5\n": "not allowed",
	} {
		if _, faults := definition.ReadYAML([]byte(text)); len(faults) == 0 || !strings.Contains(faults[0].Message, want) {
			t.Errorf("%q: %v", text, faults)
		}
	}
}

// Nothing that is read breaks the compiler, and what is written of it is read as the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"id":"p","nodes":[{"id":"a","type":"trigger.values","params":{"topics":["x: y","- a","#"]}}],"edges":[]}`))
	f.Add([]byte(`{"description":"a: b\n\n c #d\n","labels":{"yes":"no","":"~","1e3":"0x1"},"tests":[[],{},[[1]],"\u0000\ufeff"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, faults := definition.Read(text)
		if definition.Broken(faults) {
			return
		}
		compiler(t).Compile(&d, 1, 1)
		out := d.AppendJSON(nil)
		again, faults := definition.Read(out)
		if definition.Broken(faults) || string(again.AppendJSON(nil)) != string(out) {
			t.Fatalf("%s\n%v", out, faults)
		}
		y, faults := definition.ReadYAML(d.YAML())
		if definition.Broken(faults) || string(y.AppendJSON(nil)) != string(out) {
			t.Fatalf("%s\nas YAML\n%s\nis\n%s\n%v", out, d.YAML(), y.AppendJSON(nil), faults)
		}
	})
}
