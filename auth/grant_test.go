package auth_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"millrace/auth"

	"github.com/google/go-cmp/cmp"
)

func TestGrantsAreNormalised(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"as it is", `{"effect":"allow","actions":["publish"],"filter":"line1/#","scope":"uns"}`,
			`{"effect":"allow","actions":["publish"],"filter":"line1/#","scope":"uns"}`},
		{"scope by default, actions in order and once", `{"effect":"deny","actions":["subscribe","publish","subscribe"],"filter":"a"}`,
			`{"effect":"deny","actions":["publish","subscribe"],"filter":"a","scope":"uns"}`},
		{"a full topic becomes its path", `{"effect":"allow","actions":["publish"],"filter":"mHv1.0/main/line1/+/temp"}`,
			`{"effect":"allow","actions":["publish"],"filter":"line1/+/temp","scope":"uns"}`},
		{"the whole workspace", `{"effect":"allow","actions":["publish"],"filter":"mHv1.0/main/#"}`,
			`{"effect":"allow","actions":["publish"],"filter":"#","scope":"uns"}`},
		{"the placeholder stays", `{"effect":"allow","actions":["publish"],"filter":"${client}/x/${client}"}`,
			`{"effect":"allow","actions":["publish"],"filter":"${client}/x/${client}","scope":"uns"}`},
		{"ordinary topics", `{"effect":"allow","actions":["publish"],"filter":"/tele//+/Öl °C 🛢/#","scope":"mqtt"}`,
			`{"effect":"allow","actions":["publish"],"filter":"/tele//+/Öl °C 🛢/#","scope":"mqtt"}`},
		{"a namespace that only begins alike", `{"effect":"allow","actions":["publish"],"filter":"mHv1.01/main/a"}`,
			`{"effect":"allow","actions":["publish"],"filter":"mHv1.01/main/a","scope":"uns"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var in auth.Grant
			if err := json.Unmarshal([]byte(tc.in), &in); err != nil {
				t.Fatal(err)
			}
			got, fault := auth.NormalGrants(in)
			if fault != nil {
				t.Fatal(fault)
			}
			text, err := json.Marshal(got[0])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGrantsRefused(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for _, tc := range []struct{ name, rule, field, message string }{
		{"effect", "permit uns publish a", "effect", "neither allow nor deny"},
		{"effect has a case", "Allow uns publish a", "effect", "neither allow nor deny"},
		{"action", "allow uns publish,write a", "actions", "neither publish nor subscribe"},
		{"no action", "allow uns  a", "actions", "neither publish nor subscribe"},
		{"scope", "allow UNS publish a", "scope", "neither uns nor mqtt"},
		{"empty", "allow uns publish ", "filter", "is empty"},
		{"too long", "allow mqtt publish " + long, "filter", "longer than 1024 bytes"},
		{"too deep", "allow uns publish " + strings.Repeat("a/", 32) + "#", "filter", "33 levels, at most 32"},
		{"# not last", "allow uns publish a/#/b", "filter", "last level"},
		{"# in a level", "allow uns publish a#", "filter", "whole level"},
		{"+ in a level", "allow mqtt publish a/b+", "filter", "whole level"},
		{"two wildcards", "allow mqtt publish ##", "filter", "whole level"},
		{"NUL", "allow mqtt publish a\x00b", "filter", "control character at byte 1"},
		{"DEL", "allow uns publish a/b\x7f", "filter", "control character at byte 3"},
		{"C1 control", "allow uns publish \u0085", "filter", "control character"},
		{"not UTF-8", "allow uns publish a\xff", "filter", "not UTF-8"},
		{"empty level", "allow uns publish a//b", "filter", "empty level"},
		{"leading slash", "allow uns publish /a", "filter", "empty level"},
		{"trailing slash", "allow uns publish a/", "filter", "empty level"},
		{"part of a level", "allow uns publish dev-${client}/#", "filter", "whole level"},
		{"another placeholder", "allow uns publish ${workspace}/#", "filter", "only placeholder"},
		{"inbox", "allow uns publish _ingress/dev1/line1/#", "filter", "grant the path it writes"},
		{"inbox as a full topic", "allow uns publish mHv1.0/main/_ingress/${client}/#", "filter", "grant the path it writes"},
		{"verdicts", "allow uns subscribe _verdict/dev2/#", "filter", "needs no grant"},
		{"reserved", "allow uns subscribe _x/#", "filter", "reserved"},
		{"reserved $", "allow uns subscribe $x", "filter", "reserved"},
		{"another workspace", "allow uns publish mHv1.0/lab/a", "filter", `workspace "lab", the client in "main"`},
		{"every workspace", "allow uns publish mHv1.0/+/a", "filter", "names no workspace"},
		{"the namespace", "allow uns publish mHv1.0/#", "filter", "names no workspace"},
		{"the namespace alone", "allow uns publish mHv1.0", "filter", "names no workspace"},
		{"a workspace without a path", "allow uns publish mHv1.0/main", "filter", "names no path"},
		{"a workspace and a slash", "allow uns publish mHv1.0/main/", "filter", "is empty"},
		{"a stored topic in scope mqtt", "allow mqtt publish mHv1.0/main/a", "filter", "use scope uns"},
		{"a share", "allow mqtt subscribe $share/g/a", "filter", "behind $share"},
		{"$SYS", "allow mqtt subscribe $SYS/#", "filter", "role admin"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, fault := auth.NormalGrants(rule("allow uns publish ok"), rule(tc.rule))
			if fault == nil {
				t.Fatal("accepted")
			}
			if want := "grants[1]." + tc.field; fault.Field != want || !strings.Contains(fault.Message, tc.message) {
				t.Errorf("%q: %q, want field %q and %q in the message", fault.Field, fault.Message, want, tc.message)
			}
			if len(fault.Message) > 300 {
				t.Errorf("message has %d bytes", len(fault.Message))
			}
		})
	}
	t.Run("no actions at all", func(t *testing.T) {
		_, fault := auth.NormalGrants(auth.Grant{Effect: auth.EffectAllow, Filter: "a"})
		if fault == nil || fault.Field != "grants[0].actions" {
			t.Errorf("fault %v", fault)
		}
	})
	t.Run("too many", func(t *testing.T) {
		_, fault := auth.NormalGrants(slices.Repeat(rules("allow uns publish a"), 1001)...)
		if fault == nil || fault.Field != "grants" {
			t.Errorf("fault %v", fault)
		}
	})
}

// FuzzGrantFilter: whatever is taken as a filter means the same after normalising again, decides like the rule book, and
// never opens what no grant may open.
func FuzzGrantFilter(f *testing.F) {
	for _, seed := range [][2]string{
		{"line1/press", "line1/press/secret"}, {"line1/#", "line1"}, {"#", "$SYS/broker"}, {"+/press", "line1/press"},
		{"mHv1.0/main/a/+", "a/b"}, {"mHv1.0/main/mHv1.0/main/a", "mHv1.0/main/a"}, {"${client}/#", "dev1/x"}, {"dev${client}", "devdev1"},
		{"_verdict/dev2/#", "_verdict/dev2/x"}, {"/a//b/", "/a//b/"}, {"a\x00", "a"}, {"\xff", "\xff"}, {"$x/+", "$x/a"}, {"é/🛢", "é/🛢"},
	} {
		f.Add(seed[0], seed[1], true)
		f.Add(seed[0], seed[1], false)
	}
	f.Fuzz(func(t *testing.T, filter, topic string, uns bool) {
		scope := auth.ScopeMQTT
		if uns {
			scope = auth.ScopeUNS
		}
		grant := auth.Grant{
			Effect: auth.EffectAllow, Actions: []auth.Action{auth.ActionPublish, auth.ActionSubscribe}, Filter: filter, Scope: scope,
		}
		normal, fault := auth.NormalGrants(grant)
		if fault != nil {
			if fault.Field != "grants[0].filter" || fault.Message == "" || len(fault.Message) > 1200 {
				t.Fatalf("%q: fault %q: %q", filter, fault.Field, fault.Message)
			}
			return
		}
		p, fault := auth.CompileGrants("dev1", grant)
		if fault != nil {
			t.Fatalf("%q was normalised and then not compiled: %v", filter, fault)
		}
		if stored := normal[0].Filter; stored != filter && "mHv1.0/main/"+stored != filter {
			t.Fatalf("%q was stored as %q", filter, stored)
		}
		want := topic != "" && naive(normal, scope, auth.ActionPublish, topic)
		if uns && topic != "" && (topic[0] == '_' || topic[0] == '$') {
			want = false
		}
		if got := p.MayPublish(scope, topic); got != want {
			t.Fatalf("%q on %q: publish %v, want %v", normal[0].Filter, topic, got, want)
		}
		if uns && strings.HasPrefix(topic, "_verdict/dev1/") {
			want = true
		}
		receive := p.MayReceive(scope, topic)
		if topic != "_verdict/dev1" && receive != want {
			t.Fatalf("%q on %q: receive %v, want %v", normal[0].Filter, topic, receive, want)
		}
		if receive && !strings.ContainsAny(topic, "+#") && !p.CouldReceive(scope, topic) {
			t.Fatalf("%q lets %q through but not a subscription to it", normal[0].Filter, topic)
		}
	})
}
