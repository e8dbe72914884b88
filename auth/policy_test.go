package auth_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/auth"

	"pgregory.net/rapid"
)

// What a topic is allowed, written as the actions that are: "p" publish, "r" receive.
func TestPolicyTopics(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rules []string
		scope auth.Scope
		want  map[string]string
	}{
		{"nothing is granted", nil, auth.ScopeUNS, map[string]string{"line1": "", "line1/press": ""}},
		{"a literal admits neither children nor longer names (F08)", []string{"allow uns publish line1/press"}, auth.ScopeUNS,
			map[string]string{"line1/press": "p", "line1/press/secret": "", "line1/pressX": "", "line1": "", "line1/pres": "", "Line1/press": ""}},
		{"# matches the level above it (F08)", []string{"allow uns subscribe line1/#"}, auth.ScopeUNS,
			map[string]string{"line1": "r", "line1/press": "r", "line1/press/a/b": "r", "line10": "", "line10/press": "", "line": ""}},
		{"+ is one level", []string{"allow uns publish,subscribe line1/+/temp"}, auth.ScopeUNS,
			map[string]string{"line1/press/temp": "pr", "line1/temp": "", "line1/a/b/temp": "", "line1/press": "", "line1/press/temp/x": ""}},
		{"+ first", []string{"allow uns subscribe +/press"}, auth.ScopeUNS,
			map[string]string{"line1/press": "r", "line2/press": "r", "press": "", "a/line1/press": ""}},
		{"+/# wants one level at least and matches its parent", []string{"allow mqtt subscribe +/#"}, auth.ScopeMQTT,
			map[string]string{"a": "r", "a/b": "r", "$a": "", "/": "r"}},
		{"wildcards first never match $ (F08)", []string{"allow mqtt publish,subscribe #", "allow mqtt publish,subscribe +/x"}, auth.ScopeMQTT,
			map[string]string{"$SYS/broker/uptime": "", "$SYS": "", "$a/x": "", "a/$x": "pr", "a/x": "pr"}},
		{"a filter that names $ matches it", []string{"allow mqtt subscribe $local/#"}, auth.ScopeMQTT,
			map[string]string{"$local": "r", "$local/a": "r", "$locals": ""}},
		{"# in uns reaches no reserved level", []string{"allow uns publish,subscribe #"}, auth.ScopeUNS,
			map[string]string{"a": "pr", "a/_b": "pr", "_ingress/dev1/a": "", "_x": "", "$x": "", "_verdict/dev2/a": ""}},
		{"own verdicts without a grant", nil, auth.ScopeUNS,
			map[string]string{"_verdict/dev1/a": "r", "_verdict/dev1": "r", "_verdict/dev10/a": "", "_verdict/dev/a": "", "_verdict": "", "_verdicts/dev1/a": ""}},
		{"deny wins over a narrower allow", []string{"allow uns publish line1/press/temp", "deny uns publish line1/#"}, auth.ScopeUNS,
			map[string]string{"line1/press/temp": "", "line1": ""}},
		{"deny cuts a piece out", []string{"allow uns publish,subscribe line1/#", "deny uns publish line1/press/#"}, auth.ScopeUNS,
			map[string]string{"line1/oven": "pr", "line1/press": "r", "line1/press/temp": "r", "line1/pressX": "pr"}},
		{"order does not matter", []string{"deny uns subscribe a/+/c", "allow uns subscribe a/#"}, auth.ScopeUNS,
			map[string]string{"a/b/c": "", "a/b": "r", "a/b/c/d": "r"}},
		{"${client} is the id, as a whole level", []string{"allow uns publish devices/${client}/#"}, auth.ScopeUNS,
			map[string]string{"devices/dev1/a": "p", "devices/dev1": "p", "devices/dev10/a": "", "devices/${client}/a": "", "devices/Dev1/a": ""}},
		{"scopes do not mix", []string{"allow mqtt publish,subscribe #"}, auth.ScopeUNS, map[string]string{"a": "", "a/b": ""}},
		{"nor the other way", []string{"allow uns publish,subscribe #"}, auth.ScopeMQTT, map[string]string{"a": "", "a/b": ""}},
		{"empty levels are levels", []string{"allow mqtt publish /a", "allow mqtt publish rtl//+/time"}, auth.ScopeMQTT,
			map[string]string{"/a": "p", "a": "", "//a": "", "rtl//x/time": "p", "rtl/x/time": "", "rtl//x//time": ""}},
		{"more than eight children", []string{
			"allow uns publish m/i", "allow uns publish m/h", "allow uns publish m/g", "allow uns publish m/f", "allow uns publish m/e",
			"allow uns publish m/d", "allow uns publish m/c", "allow uns publish m/b", "allow uns publish m/a", "allow uns publish m/k",
		}, auth.ScopeUNS, map[string]string{"m/a": "p", "m/e": "p", "m/f": "p", "m/k": "p", "m/j": "", "m/l": "", "m/0": "", "m": ""}},
		{"unknown scope", []string{"allow uns publish,subscribe #", "allow mqtt publish,subscribe #"}, "other", map[string]string{"a": ""}},
		{"the empty topic of an unresolved alias", []string{"allow mqtt publish,subscribe #", "allow mqtt publish,subscribe +"}, auth.ScopeMQTT,
			map[string]string{"": ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := policy(t, tc.rules...)
			for topic, want := range tc.want {
				got := ""
				if p.MayPublish(tc.scope, topic) {
					got += "p"
				}
				if p.MayReceive(tc.scope, topic) {
					got += "r"
				}
				if got != want {
					t.Errorf("%q: permitted %q, want %q", topic, got, want)
				}
			}
		})
	}
}

func TestNilPolicyPermitsNothing(t *testing.T) {
	var p *auth.Policy
	if p.MayPublish(auth.ScopeUNS, "a") || p.MayReceive(auth.ScopeUNS, "_verdict/dev1/a") || p.CouldReceive(auth.ScopeMQTT, "#") {
		t.Error("a nil policy permits something")
	}
}

// An id may begin with an underscore or equal a reserved level; ${client} must not reach anything by it.
func TestClientNamedLikeAReservedLevel(t *testing.T) {
	for _, id := range []string{"_verdict", "_ingress", "_x"} {
		p, fault := auth.CompileGrants(id, rules("allow uns publish,subscribe ${client}/#")...)
		if fault != nil {
			t.Fatal(fault)
		}
		for _, topic := range []string{"_verdict/dev2/a", "_ingress/dev2/a", "_x/a", id} {
			if p.MayPublish(auth.ScopeUNS, topic) || p.MayReceive(auth.ScopeUNS, topic) {
				t.Errorf("client %q reaches %q", id, topic)
			}
		}
		if !p.MayReceive(auth.ScopeUNS, "_verdict/"+id+"/a") {
			t.Errorf("client %q cannot read its own verdicts", id)
		}
		if p.CouldReceive(auth.ScopeUNS, "_x/#") || p.CouldReceive(auth.ScopeUNS, "#") {
			t.Errorf("client %q could subscribe beyond its verdicts", id)
		}
	}
}

func TestCouldReceive(t *testing.T) {
	for _, tc := range []struct {
		name    string
		rules   []string
		scope   auth.Scope
		yes, no []string
	}{
		{"nothing granted", nil, auth.ScopeUNS, []string{"_verdict/dev1/#", "_verdict/dev1", "_verdict/+/x", "_verdict/#"},
			[]string{"#", "+", "a", "_verdict", "_verdict/dev2/#", "_ingress/#", "_ingress/dev1/#", "$x", "+/dev1/#"}},
		{"F08", []string{"allow uns subscribe line1/press"}, auth.ScopeUNS,
			[]string{"line1/press", "line1/+", "+/press", "line1/press/#", "#", "+/+", "line1/#", "line1/press/#"},
			[]string{"line1/press/secret", "line1/pressX", "line1", "+", "line1/press/+", "$SYS/#", "+/+/+"}},
		{"a branch", []string{"allow uns subscribe line1/#"}, auth.ScopeUNS,
			[]string{"line1", "+", "+/press", "line1/a/b/c", "#"}, []string{"line2/#", "line10", "_verdict/dev2/#"}},
		{"publish grants do not count", []string{"allow uns publish line1/#"}, auth.ScopeUNS, nil, []string{"line1/#", "#"}},
		{"publish denies do not count", []string{"allow uns subscribe a/#", "deny uns publish #"}, auth.ScopeUNS, []string{"a", "#"}, []string{"b"}},
		{"a deny over all of it", []string{"allow uns subscribe line1/#", "deny uns subscribe line1/press/#"}, auth.ScopeUNS,
			[]string{"line1/#", "line1/+", "#", "+/+"}, []string{"line1/press", "line1/press/#", "line1/press/a", "line1/press/+/b"}},
		{"denies that cover it only together", []string{"allow uns subscribe a/#", "deny uns subscribe a", "deny uns subscribe a/+", "deny uns subscribe a/+/#"}, auth.ScopeUNS,
			nil, []string{"#", "a", "a/#", "a/+", "a/b/c"}},
		{"denies that leave one depth", []string{"allow uns subscribe a/#", "deny uns subscribe a", "deny uns subscribe a/+/+/#"}, auth.ScopeUNS,
			[]string{"a/+", "a/#", "#", "a/b"}, []string{"a", "a/+/+", "a/b/c/#"}},
		{"denies of every depth but the deeper ones", []string{"allow uns subscribe a/#", "deny uns subscribe a", "deny uns subscribe a/+"}, auth.ScopeUNS,
			[]string{"a/#", "#", "a/b/c", "+/+/+"}, []string{"a", "a/+", "a/b", "+/+"}},
		{"denies by name leave other names", []string{"allow uns subscribe a/+", "deny uns subscribe a/b", "deny uns subscribe a/c"}, auth.ScopeUNS,
			[]string{"a/+", "a/d"}, []string{"a/b", "a/c", "a/c/#"}},
		{"wildcards and $", []string{"allow mqtt subscribe #", "allow mqtt subscribe $local/a"}, auth.ScopeMQTT,
			[]string{"#", "+", "$local/a", "$local/#", "$local/+"}, []string{"$local", "$local/b", "$other/#"}},
		{"only $", []string{"allow mqtt subscribe $local/#"}, auth.ScopeMQTT, []string{"$local/#", "$local"}, []string{"#", "+/#", "+", "+/a"}},
		{"malformed", []string{"allow mqtt subscribe #"}, auth.ScopeMQTT, nil, []string{"", "a#", "a/#/b", "+a", "a/b+"}},
		{"everything", []string{"allow mqtt subscribe #"}, auth.ScopeMQTT, []string{"#", "/#", "//#", "/+", "/", "+/#"}, []string{"$x"}},
		{"empty levels", []string{"allow mqtt subscribe /a"}, auth.ScopeMQTT, []string{"/a", "+/a", "/#", "#"}, []string{"a", "//a", "/"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := policy(t, tc.rules...)
			for _, filter := range tc.yes {
				if !p.CouldReceive(tc.scope, filter) {
					t.Errorf("%q: false, want true", filter)
				}
			}
			for _, filter := range tc.no {
				if p.CouldReceive(tc.scope, filter) {
					t.Errorf("%q: true, want false", filter)
				}
			}
		})
	}
}

// naive is the rule book of the contract, written for reading.
func naive(grants []auth.Grant, scope auth.Scope, action auth.Action, topic string) bool {
	allowed := false
	for _, g := range grants {
		if g.Scope != scope || !slices.Contains(g.Actions, action) {
			continue
		}
		filter := strings.Split(g.Filter, "/")
		for i := range filter {
			if filter[i] == "${client}" {
				filter[i] = "dev1"
			}
		}
		if !matches(filter, strings.Split(topic, "/")) {
			continue
		}
		if g.Effect == auth.EffectDeny {
			return false
		}
		allowed = true
	}
	return allowed
}

// matches says whether a filter matches a topic, both as levels.
func matches(filter, topic []string) bool {
	if (filter[0] == "+" || filter[0] == "#") && strings.HasPrefix(topic[0], "$") {
		return false
	}
	for i, level := range filter {
		if level == "#" {
			return true // reached with i ≤ len(topic): the parent counts
		}
		if i >= len(topic) || level != "+" && level != topic[i] {
			return false
		}
		if i == len(filter)-1 {
			return len(topic) == len(filter)
		}
		if i == len(topic)-1 {
			return i == len(filter)-2 && filter[i+1] == "#"
		}
	}
	return false
}

// Names of levels in random grants and topics: z stands in no grant, $x only comes first.
var (
	filterLevels = []string{"a", "b", "+", "+", "${client}"}
	topicLevels  = []string{"a", "b", "z", "dev1"}
)

func drawFilter(t *rapid.T, scope auth.Scope, label string) string {
	levels := rapid.SliceOfN(rapid.SampledFrom(filterLevels), 0, 3).Draw(t, label)
	if scope == auth.ScopeMQTT && len(levels) > 0 && rapid.IntRange(0, 3).Draw(t, label+"$") == 0 {
		levels[0] = "$x"
	}
	if len(levels) == 0 || rapid.Bool().Draw(t, label+"#") {
		levels = append(levels, "#")
	}
	return strings.Join(levels, "/")
}

func drawGrants(t *rapid.T) []auth.Grant {
	n := rapid.IntRange(0, 6).Draw(t, "grants")
	grants := make([]auth.Grant, n)
	for i := range grants {
		scope := rapid.SampledFrom([]auth.Scope{auth.ScopeUNS, auth.ScopeMQTT}).Draw(t, "scope")
		grants[i] = auth.Grant{
			Effect: rapid.SampledFrom([]auth.Effect{auth.EffectAllow, auth.EffectAllow, auth.EffectDeny}).Draw(t, "effect"),
			Actions: rapid.SampledFrom([][]auth.Action{
				{auth.ActionPublish}, {auth.ActionSubscribe}, {auth.ActionPublish, auth.ActionSubscribe},
			}).Draw(t, "actions"),
			Filter: drawFilter(t, scope, "filter"), Scope: scope,
		}
	}
	return grants
}

// everyTopic lists all topics of up to five levels over the names above: deeper than any random filter, so that what holds
// for them holds for all.
func everyTopic(scope auth.Scope) []string {
	first := topicLevels
	if scope == auth.ScopeMQTT {
		first = append(slices.Clone(topicLevels), "$x", "$z")
	}
	all, last := slices.Clone(first), slices.Clone(first)
	for range 4 {
		var deeper []string
		for _, head := range last {
			for _, level := range topicLevels {
				deeper = append(deeper, head+"/"+level)
			}
		}
		all, last = append(all, deeper...), deeper
	}
	return all
}

func TestPolicyEqualsTheRuleBook(t *testing.T) {
	topics := map[auth.Scope][]string{auth.ScopeUNS: everyTopic(auth.ScopeUNS), auth.ScopeMQTT: everyTopic(auth.ScopeMQTT)}
	rapid.Check(t, func(t *rapid.T) {
		grants := drawGrants(t)
		p, fault := auth.CompileGrants("dev1", grants...)
		if fault != nil {
			t.Fatal(fault)
		}
		for scope, list := range topics {
			filter := drawFilter(t, scope, "subscription")
			levels := strings.Split(strings.ReplaceAll(filter, "${client}", "dev1"), "/")
			reachable := ""
			for _, topic := range list {
				publish, receive := naive(grants, scope, auth.ActionPublish, topic), naive(grants, scope, auth.ActionSubscribe, topic)
				if got := p.MayPublish(scope, topic); got != publish {
					t.Fatalf("MayPublish(%s, %q) = %v, want %v with %v", scope, topic, got, publish, grants)
				}
				if got := p.MayReceive(scope, topic); got != receive {
					t.Fatalf("MayReceive(%s, %q) = %v, want %v with %v", scope, topic, got, receive, grants)
				}
				if receive && reachable == "" && matches(levels, strings.Split(topic, "/")) {
					reachable = topic
				}
			}
			// The list is complete for filters this short, so the answer must be exact both ways.
			if got := p.CouldReceive(scope, strings.Join(levels, "/")); got != (reachable != "") {
				t.Fatalf("CouldReceive(%s, %q) = %v, but permitted is %q with %v", scope, filter, got, reachable, grants)
			}
		}
	})
}

func TestPolicyAllocatesNothing(t *testing.T) {
	p := manyRules(t)
	if n := testing.AllocsPerRun(100, func() {
		p.MayPublish(auth.ScopeUNS, "plant/area3/line7/press/temp")
		p.MayReceive(auth.ScopeUNS, "plant/area3/line7/oven/temp")
		p.MayReceive(auth.ScopeMQTT, "plant/area3")
		p.MayReceive(auth.ScopeUNS, "_verdict/dev1/a")
	}); n != 0 {
		t.Errorf("%v allocations per run, want 0", n)
	}
}

// manyRules is a policy of 60 grants.
func manyRules(t testing.TB) *auth.Policy {
	texts := []string{"allow uns subscribe plant/#", "deny uns subscribe plant/+/+/oven/#"}
	for i := range 58 {
		texts = append(texts, fmt.Sprintf("allow uns publish plant/area%d/+/press/#", i))
	}
	return policy(t, texts...)
}

func BenchmarkMayPublish(b *testing.B) {
	for _, bc := range []struct {
		name string
		p    *auth.Policy
	}{
		{"one rule", policy(b, "allow uns publish plant/area3/#")},
		{"sixty rules", manyRules(b)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !bc.p.MayPublish(auth.ScopeUNS, "plant/area3/line7/press/temp") {
					b.Fatal("refused")
				}
			}
		})
	}
}

func BenchmarkCouldReceive(b *testing.B) {
	p := manyRules(b)
	b.ReportAllocs()
	for b.Loop() {
		if !p.CouldReceive(auth.ScopeUNS, "plant/area3/#") {
			b.Fatal("refused")
		}
	}
}
