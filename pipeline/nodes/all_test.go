package nodes_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"millrace/pipeline/node"
	"millrace/pipeline/nodes"
	"millrace/pipeline/script"
	"millrace/pipeline/value"
)

func parse(t testing.TB, text string) value.Value {
	t.Helper()
	if text == "" {
		return value.Value{}
	}
	v, err := value.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func find(t testing.TB, name string) node.Type {
	t.Helper()
	for _, k := range nodes.All(nodes.Options{Reader: shelf{}}) {
		if k.Spec.Type == name {
			return k
		}
	}
	t.Fatalf("no type %s", name)
	return node.Type{}
}

// build makes a node, or gives its faults.
func build(t testing.TB, name, params string) (node.Node, []node.Fault) {
	t.Helper()
	e := script.NewEngine(script.Options{Timeout: time.Second})
	t.Cleanup(e.Close)
	k := find(t, name)
	filled, faults := node.Check(&k.Spec, parse(t, params))
	if len(faults) > 0 {
		return nil, faults
	}
	return k.New(&node.Config{Pipeline: "p", Workspace: "main", Node: "n", Params: filled, Scripts: e})
}

// call is what a node is called with; said gets what it logs.
func call(t testing.TB, trigger string, said *[]string, inputs ...string) *node.Call {
	s := &script.Scope{Trigger: parse(t, trigger)}
	for _, in := range inputs {
		s.Input = append(s.Input, parse(t, in))
	}
	c := &node.Call{Scope: s, Input: value.Null(), Attempt: 1, Key: []byte("key"), Now: time.Unix(1_800_000_000, 0),
		Log: func(level, text string) {
			if said != nil {
				*said = append(*said, level+" "+text)
			}
		}}
	if len(s.Input) > 0 {
		c.Input = s.Input[0]
	}
	return c
}

func text(v value.Value) string {
	if v.IsMissing() {
		return ""
	}
	return string(v.AppendJSON(nil))
}

// Every type says all there is to say of itself, and its example does what it says.
func TestEveryTypeIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range nodes.All(nodes.Options{Reader: shelf{}}) {
		s := &k.Spec
		t.Run(s.Type, func(t *testing.T) {
			if seen[s.Type] || !strings.HasPrefix(s.Type, s.Category+".") || s.Title == "" || !strings.HasSuffix(s.Doc, ".") {
				t.Errorf("%+v", s)
			}
			seen[s.Type] = true
			complete(t, s.Fields)
			for _, p := range s.Outputs {
				if p.Name == "" || p.Name == "error" || p.Doc == "" {
					t.Errorf("port %+v", p)
				}
			}
			n, faults := build(t, s.Type, s.Example.Params)
			if len(faults) > 0 || s.Example.Title == "" {
				t.Fatalf("the example: %v", faults)
			}
			if s.Trigger {
				if _, ok := n.(node.Trigger); !ok {
					t.Error("it is no trigger")
				}
				return
			}
			c := call(t, s.Example.Trigger, nil, s.Example.Input)
			r := n.Run(context.Background(), c)
			if r.Wait > 0 {
				c.Resumed = true
				r = n.Run(context.Background(), c)
			}
			ports := s.Outputs
			switch {
			case k.Ports != nil:
				ports = k.Ports(parse(t, s.Example.Params))
			case ports == nil:
				ports = []node.Port{{Name: "out"}}
			}
			port := 0
			for i, p := range ports {
				if p.Name == s.Example.Port {
					port = i
				}
			}
			out := r.Out
			if out.IsMissing() && r.Port >= 0 {
				out = c.Input
			}
			if r.Err != nil || len(ports) > 0 && r.Port != port || text(out) != s.Example.Out {
				t.Errorf("by port %d: %s, %v; want port %d: %s", r.Port, text(out), r.Err, port, s.Example.Out)
			}
		})
	}
}

func complete(t *testing.T, fields []node.Field) {
	for _, f := range fields {
		if f.Name == "" || f.Doc == "" || f.Title == "" || f.Kind == "" || f.Kind == node.SelectField && len(f.Options) < 2 {
			t.Errorf("field %+v", f)
		}
		if f.Default != "" {
			one := node.Spec{Fields: []node.Field{f}}
			one.Fields[0].Required = false
			if _, faults := node.Check(&one, value.Object(value.Field{Name: f.Name, Value: parse(t, f.Default)})); len(faults) > 0 {
				t.Errorf("the default of %s: %v", f.Name, faults)
			}
		}
		if f.Of != nil {
			complete(t, f.Of.Fields)
		}
		complete(t, f.Fields)
	}
}

const trigger = `{"topic":"line1/temp","value":21.50,"timestamp":"2026-12-01T10:00:00.000Z","quality":"uncertain"}`

func TestWhatNodesDo(t *testing.T) {
	for _, tt := range []struct {
		name, params string
		in           []string
		port         int
		out          string // or the error
	}{
		{"transform.set", `{"fields":[{"name":"a","value":1},{"name":"b","value":"{{ $json.a }}"}]}`, []string{`{"a":0,"z":9007199254740993}`}, 0, `{"a":1,"z":9007199254740993,"b":0}`},
		{"transform.set", `{"fields":[{"name":"x","value":["{{ $trigger.value }}","t {{ $trigger.value }}",{"k":"{{ $json.none }}","l":1.0}]}],"keepOnlySet":true}`, []string{`{"a":0}`}, 0, `{"x":[21.50,"t 21.50",{"l":1.0}]}`},
		{"transform.set", `{"fields":[{"name":"a.b.c","value":true}]}`, []string{`{"a":{"q":1}}`}, 0, `{"a":{"q":1,"b":{"c":true}}}`},
		{"transform.set", `{"fields":[{"name":"n","value":" 1.50 ","type":"number"},{"name":"t","value":2.0,"type":"text"},{"name":"b","value":0,"type":"boolean"},{"name":"j","value":"[1]","type":"json"}]}`, []string{`5`}, 0, `{"n":1.50,"t":"2.0","b":false,"j":[1]}`},
		{"transform.set", `{"fields":[{"name":"n","value":"x","type":"number"}]}`, []string{`5`}, 0, `n: "x" is no number`},
		{"transform.set", `{"fields":[{"name":"n","value":"{{ $json.q.x }}"}]}`, []string{`5`}, 0, `Cannot read property 'x' of undefined`},
		{"logic.javascript", `{"code":"throw new Error('no')"}`, []string{`5`}, 0, `no`},
		{"logic.javascript", `{"code":"let x = 1"}`, []string{`5`}, 0, `null`},
		{"logic.if", `{"condition":"{{ $json.a }}"}`, []string{`{"a":"x"}`}, 0, `{"a":"x"}`},
		{"logic.if", `{"condition":"$json.a"}`, []string{`{"a":0.0}`}, 1, `{"a":0.0}`},
		{"logic.filter", `{"condition":"false"}`, []string{`1`}, -1, ``},
		{"logic.switch", `{"rules":[{"name":"a","condition":"$json > 1"},{"name":"b","condition":"$json > 2"},{"name":"c","condition":"$json > 3"}],"mode":"all"}`, []string{`3`}, 0, `3`},
		{"logic.switch", `{"rules":[{"name":"a","condition":"$json > 1"}]}`, []string{`0`}, 1, `0`},
		{"flow.merge", `{}`, []string{`1`, `{"a":2}`}, 0, `[1,{"a":2}]`},
		{"flow.merge", `{"mode":"object"}`, []string{`{"a":1,"b":1}`, `2`, `{"b":2}`}, 0, `{"a":1,"b":2}`},
		{"flow.merge", `{"mode":"first"}`, []string{`7`, `8`}, 0, `7`},
		{"flow.stop", `{"status":"failed","message":"because {{ $json }}"}`, []string{`7`}, -1, `because 7`},
	} {
		n, faults := build(t, tt.name, tt.params)
		if len(faults) > 0 {
			t.Errorf("%s %s: %v", tt.name, tt.params, faults)
			continue
		}
		c := call(t, trigger, nil, tt.in...)
		before := text(c.Input)
		r := n.Run(context.Background(), c)
		got := r.Out
		if got.IsMissing() && r.Port >= 0 {
			got = c.Input
		}
		out := text(got)
		if r.Err != nil {
			out, _, _ = strings.Cut(r.Err.Error(), " at ")
			out = strings.TrimPrefix(out, "TypeError: ")
		}
		if out != tt.out || r.Port != tt.port {
			t.Errorf("%s %s: port %d %s, want port %d %s", tt.name, tt.params, r.Port, out, tt.port, tt.out)
		}
		if text(c.Input) != before {
			t.Errorf("%s: the input has become %s", tt.name, text(c.Input))
		}
	}
	n, _ := build(t, "logic.switch", `{"rules":[{"name":"a","condition":"$json > 1"},{"name":"b","condition":"$json > 2"},{"name":"c","condition":"$json > 3"}],"mode":"all"}`)
	if r := n.Run(context.Background(), call(t, trigger, nil, "3")); len(r.Also) != 1 || r.Also[0] != 1 {
		t.Errorf("%+v", r)
	}
}

func TestWait(t *testing.T) {
	n, _ := build(t, "action.wait", `{"duration":"20ms"}`)
	c := call(t, trigger, nil, "1")
	if r := n.Run(context.Background(), c); r.Wait != 20*time.Millisecond {
		t.Errorf("%+v", r)
	}
	c.Resumed = true
	if r := n.Run(context.Background(), c); r.Wait != 0 || r.Err != nil {
		t.Errorf("%+v", r)
	}
}

func TestOnChange(t *testing.T) {
	n, _ := build(t, "logic.onchange", `{"deadband":0.5,"value":"$json","key":"$trigger.topic"}`)
	for i, tt := range []struct {
		topic, in string
		dry       bool
		passes    bool
	}{
		{"a", "1", false, true}, {"a", "1.0", false, false}, {"a", "1.5", false, false}, {"a", "1.6", true, true}, {"a", "1.6", false, true}, {"b", "1.6", false, true}, {"a", `"x"`, false, true}, {"a", `"x"`, false, false}, {"a", "2", false, true},
	} {
		c := call(t, `{"topic":"`+tt.topic+`"}`, nil, tt.in)
		c.Dry = tt.dry
		if r := n.Run(context.Background(), c); (r.Port == 0) != tt.passes || r.Err != nil {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

func TestLog(t *testing.T) {
	var said []string
	n, _ := build(t, "system.log", `{"message":"v={{ $json }}","level":"warn"}`)
	n.Run(context.Background(), call(t, trigger, &said, "1.50"))
	if len(said) != 1 || said[0] != "warn v=1.50" {
		t.Errorf("%q", said)
	}
}

func TestPublish(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC).UnixNano()
	for _, tt := range []struct {
		params, topic, value, quality string
		time                          int64
		scale                         uint8
		stamped                       bool
		err                           string
	}{
		{`{"topic":"a/{{ $json.t }}","value":"{{ $trigger.value }}"}`, "a/x", "21.50", "uncertain", at, 6, true, ""},
		{`{"topic":"a","value":{"k":["{{ $json.n }}"]},"quality":"bad","timestamp":"now"}`, "a", `{"k":[9007199254740993]}`, "bad", 0, 0, false, ""},
		{`{"topic":"a","value":1.0,"timestamp":"{{ 1790000000 }}"}`, "a", "1.0", "uncertain", 1790000000e9, 9, true, ""},
		{`{"topic":"a","value":1,"timestamp":"{{ 1790000000123 }}"}`, "a", "1", "uncertain", 1790000000123e6, 6, true, ""},
		{`{"topic":"a","value":1,"timestamp":"{{ '2026-12-01T11:00:00.000001+01:00' }}"}`, "a", "1", "uncertain", at + 1000, 3, true, ""},
		{`{"topic":"a","value":1,"timestamp":"{{ 'soon' }}"}`, "", "", "", 0, 0, false, `the timestamp is "soon"`},
		{`{"topic":"{{ $json.none }}","value":1}`, "", "", "", 0, 0, false, "the topic is nothing"},
		{`{"topic":"a","value":"{{ $json.none }}"}`, "", "", "", 0, 0, false, "the value is undefined"},
		{`{"topic":"a","value":1,"quality":"{{ 'fine' }}"}`, "", "", "", 0, 0, false, `the quality is "fine"`},
	} {
		n, faults := build(t, "system.uns.publish", tt.params)
		if len(faults) > 0 {
			t.Errorf("%s: %v", tt.params, faults)
			continue
		}
		c := call(t, trigger, nil, `{"t":"x","n":9007199254740993}`)
		c.Trigger = node.Origin{Topic: "line1/temp", Time: at, Scale: 6, Quality: "uncertain"}
		r := n.Run(context.Background(), c)
		if tt.err != "" {
			if r.Err == nil || !strings.HasPrefix(r.Err.Error(), tt.err) {
				t.Errorf("%s: %v", tt.params, r.Err)
			}
			continue
		}
		if r.Err != nil || len(r.Publish) != 1 {
			t.Errorf("%s: %+v", tt.params, r)
			continue
		}
		if p := r.Publish[0]; p.Topic != tt.topic || text(p.Value) != tt.value || p.Quality != tt.quality || p.Time != tt.time || p.Scale != tt.scale || p.Stamped != tt.stamped {
			t.Errorf("%s: %+v %s", tt.params, p, text(p.Value))
		}
	}
}

func TestFaultsOfParameters(t *testing.T) {
	for _, tt := range []struct{ name, params, field string }{
		{"trigger.uns.subscribe", `{"topics":["a"],"filter":"1 +"}`, "filter"},
		{"trigger.uns.subscribe", `{"topics":["a"],"deadband":1}`, "deadband"},
		{"trigger.uns.subscribe", `{"topics":["a"],"sample":1.5}`, "sample"},
		{"trigger.uns.subscribe", `{"topics":["a"],"debounce":"1s","throttle":"1s"}`, "throttle"},
		{"trigger.uns.subscribe", `{"topics":[]}`, "topics"},
		{"transform.set", `{"fields":[{"name":"a..b","value":1}]}`, "fields[0].name"},
		{"transform.set", `{"fields":[{"name":"a","value":{"x":["{{ 1 + }}"]}}]}`, "fields[0].value.x[0]"},
		{"logic.javascript", `{"code":"return {"}`, "code"},
		{"logic.if", `{"condition":"a b"}`, "condition"},
		{"logic.switch", `{"rules":[{"name":"a","condition":"1"},{"name":"a","condition":"2"}]}`, "rules[1].name"},
		{"logic.switch", `{"rules":[{"name":"default","condition":"1"}]}`, "rules[0].name"},
		{"logic.onchange", `{"key":"1 +"}`, "key"},
		{"action.wait", `{"duration":"500d"}`, "duration"},
		{"system.uns.publish", `{"topic":"a","value":1,"quality":"fine"}`, "quality"},
		{"system.uns.publish", `{"topic":"a","value":1,"timestamp":"soon"}`, "timestamp"},
		{"system.uns.publish", `{"topic":"a/#","value":1}`, "topic"},
		{"system.uns.publishBatch", `{"items":"1 +","topic":"a","value":1}`, "items"},
		{"trigger.schedule", `{}`, "every"},
		{"trigger.schedule", `{"every":"5s","cron":"* * * * *"}`, "every"},
		{"trigger.schedule", `{"every":"5ms"}`, "every"},
		{"trigger.schedule", `{"cron":"* * *"}`, "cron"},
		{"trigger.schedule", `{"every":"5s","timeZone":"Mars"}`, "timeZone"},
		{"trigger.webhook", `{"secret":"short"}`, "secret"},
		{"trigger.webhook", `{"secret":"a-secret-of-24-characters","path":"a/b"}`, "path"},
	} {
		if _, faults := build(t, tt.name, tt.params); len(faults) != 1 || faults[0].Field != tt.field || faults[0].Message == "" {
			t.Errorf("%s %s: %v", tt.name, tt.params, faults)
		}
	}
}

func TestValuesTrigger(t *testing.T) {
	n, faults := build(t, "trigger.uns.subscribe", `{"topics":["a/#","b"],"on":"change","deadband":0.5,"filter":"$trigger.value > 1","throttle":"2s","sample":3,"maxAge":"1d"}`)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	v := n.(node.Trigger).Start().Values
	if strings.Join(v.Filters, " ") != "a/# b" || v.On != "change" || v.Deadband != 0.5 || v.Filter == nil || v.Throttle != 2*time.Second || v.Sample != 3 || v.MaxAge != 24*time.Hour {
		t.Errorf("%+v", v)
	}
}

func TestPublishBatch(t *testing.T) {
	n, faults := build(t, "system.uns.publishBatch", `{"items":"$json.list","topic":"{{ $item.m }}/{{ $index }}","value":"{{ $item.v }}","timestamp":"now"}`)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	r := n.Run(context.Background(), call(t, trigger, nil, `{"list":[{"m":"a","v":1.50},{"m":"b","v":9007199254740993}]}`))
	if r.Err != nil || len(r.Publish) != 2 || r.Publish[0].Topic != "a/0" || text(r.Publish[0].Value) != "1.50" || r.Publish[1].Topic != "b/1" || text(r.Publish[1].Value) != "9007199254740993" || string(r.Publish[0].Key) == string(r.Publish[1].Key) {
		t.Errorf("%+v", r)
	}
	for in, want := range map[string]string{`{"list":[{"m":"","v":1}]}`: "", `{"list":[{"m":"a","v":1},{"m":"a"}]}`: "item 1", `{"list":5}`: "wanted is a list"} {
		r := n.Run(context.Background(), call(t, trigger, nil, in))
		if want == "" {
			continue // an empty level is for the namespace to refuse
		}
		if r.Err == nil || !strings.Contains(r.Err.Error(), want) {
			t.Errorf("%s: %v", in, r.Err)
		}
	}
}

func TestScheduleAndWebhook(t *testing.T) {
	n, faults := build(t, "trigger.schedule", `{"cron":"0 6 * * *","timeZone":"Europe/Berlin"}`)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if s := n.(node.Trigger).Start().Schedule; s == nil || s.Zone.String() != "Europe/Berlin" || s.Cron != "0 6 * * *" {
		t.Errorf("%+v", s)
	}
	n, faults = build(t, "trigger.webhook", `{"secret":"a-secret-of-24-characters"}`)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if w := n.(node.Trigger).Start().Webhook; w == nil || w.Path != "in" {
		t.Errorf("%+v", w)
	}
}

// shelf is a namespace with one topic.
type shelf struct{}

func (shelf) Latest(workspace, filter string, limit int) ([]nodes.Reading, error) {
	if workspace != "main" || filter != "line1/recipe" && filter != "+/recipe" || limit < 1 {
		return nil, nil
	}
	n, _ := value.Number("42.50")
	return []nodes.Reading{{Topic: "line1/recipe", Value: n, Timestamp: "2026-12-01T10:00:00.000Z", Quality: "good"}}, nil
}

func (s shelf) Raw(_ context.Context, _, topic string, from, to time.Time, limit int) ([]nodes.Reading, error) {
	return []nodes.Reading{{Topic: topic, Value: value.Int(int64(to.Sub(from) / time.Second)), Timestamp: from.UTC().Format(time.RFC3339), Quality: "good"}}, nil
}

func (shelf) Summary(_ context.Context, _, _ string, from, to time.Time) (nodes.Summary, error) {
	return nodes.Summary{Count: uint64(to.Sub(from) / time.Second), Avg: value.Float(1.5)}, nil
}

func TestFetch(t *testing.T) {
	for params, want := range map[string]string{
		`{"topic":"line1/{{ $json }}"}`:            `{"topic":"line1/recipe","value":42.50,"timestamp":"2026-12-01T10:00:00.000Z","quality":"good"}`,
		`{"topic":"none"}`:                         `null`,
		`{"topic":"a","mode":"raw","from":"-15m"}`: `[{"topic":"a","value":900,"timestamp":"2027-01-15T07:45:00Z","quality":"good"}]`,
		`{"topic":"a","mode":"summary","from":"{{ 1799999940 }}","to":"2027-01-15T08:00:00Z"}`: `{"count":60,"avg":1.5}`,
		`{"topic":"a","mode":"raw","from":"soon"}`:                                             `from is "soon"`,
		`{"topic":"{{ '+/a' }}"}`:                                                              `the topic is "+/a"`,
	} {
		n, faults := build(t, "system.uns.fetchdata", params)
		if len(faults) > 0 {
			t.Errorf("%s: %v", params, faults)
			continue
		}
		r := n.Run(context.Background(), call(t, trigger, nil, `"recipe"`))
		got := text(r.Out)
		if r.Err != nil {
			got = r.Err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", params, got, want)
		}
	}
}
