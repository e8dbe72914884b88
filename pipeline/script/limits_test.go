package script_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/pipeline/script"
)

// either is time or memory, whichever is noticed first.
const either = "either"

// What would take the box down ends with a name and a reason, in bounded time and memory, and the engine goes on. Field case F27.
func TestRunawayCode(t *testing.T) {
	e := script.NewEngine(script.Options{Timeout: 300 * time.Millisecond, Memory: 64 << 20})
	defer e.Close()
	for code, want := range map[string]script.Error{
		"while (true) {}":                                                            {Kind: script.Timeout},
		"for (;;) { try { null.x } catch (e) {} }":                                   {Kind: either},
		"const f = () => f(); f()":                                                   {Kind: script.Depth},
		"function f(n) { try { f(n + 1) } finally { } } f(0)":                        {Kind: script.Depth},
		"return 'x'.repeat(1e12)":                                                    {Kind: script.Runtime, Message: "a text of"},
		"return 'x'.padEnd(1e12)":                                                    {Kind: script.Runtime, Message: "a text of"},
		"return Array(1e9).fill(0)":                                                  {Kind: script.Runtime, Message: "a list of"},
		"return Array(4e9).join('x')":                                                {Kind: script.Runtime, Message: "a list of"},
		"return Array.from({length: 1e9})":                                           {Kind: script.Runtime, Message: "a list of"},
		"return new Uint8Array(1e10)":                                                {Kind: script.Runtime, Message: "octets"},
		"return new Float64Array(1e8)":                                               {Kind: script.Runtime, Message: "octets"},
		"return new ArrayBuffer(1e10)":                                               {Kind: script.Runtime, Message: "octets"},
		"return [].concat(Array(3e9))":                                               {Kind: script.Runtime, Message: "a list of"},
		"const a = []; a.length = 4e9; return a":                                     {Kind: script.Memory, Message: "items"},
		"const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)":                  {Kind: either},
		"let s = 'x'; for (;;) s += s":                                               {Kind: either},
		"return new RegExp('(a+)+\\\\1$').test('a'.repeat(30))":                      {Kind: script.Runtime, Message: "not allowed"},
		"return 'aaaa'.match('(?=a)')":                                               {Kind: script.Runtime, Message: "not allowed"},
		"return RegExp('(?<!a)b').source":                                            {Kind: script.Runtime, Message: "not allowed"},
		"class R extends RegExp {}; return new R('(?=a)')":                           {Kind: script.Runtime, Message: "not allowed"},
		"return /a/.constructor('(?=a)')":                                            {Kind: script.Runtime, Message: "not allowed"},
		"return (1n << 100000000000n) > 1n":                                          {Kind: script.Runtime, Message: "BigInt"},
		"let a = 2n; a **= 10000000000n":                                             {Kind: script.Runtime, Message: "BigInt"},
		"let a=[1]; for (let i=0;i<60;i++) a=[a,a]; return JSON.stringify(a)":        {Kind: script.Runtime, Message: "parts"},
		"let a=[1]; for (let i=0;i<60;i++) a=[a,a]; return a.flat(Infinity)":         {Kind: script.Timeout},
		"let a=[1]; for (let i=0;i<60;i++) a=[a,a]; return a":                        {Kind: script.Memory},
		"return Array(1000).fill('x'.repeat(1e5)).join('')":                          {Kind: script.Runtime, Message: "characters"},
		"return ('x'.repeat(1e4)).replaceAll('x', 'y'.repeat(1e5))":                  {Kind: script.Runtime, Message: "replacement"},
		"const o={}; o[Symbol.iterator]=function*(){for(;;) yield 1}; return [...o]": {Kind: script.Timeout},
		"const a=[]; a.length=4e9; return Promise.all(a)":                            {Kind: script.Runtime, Message: "a list of"},
		"return eval('1')":                                                           {Kind: script.Runtime},
		"return (() => {}).constructor('return 1')()":                                {Kind: script.Runtime},
		"globalThis.leak = 1":                                                        {Kind: script.Runtime},
		"Math.max = 1":                                                               {Kind: script.Runtime},
		"console.log = 1":                                                            {Kind: script.Runtime},
		"[].__proto__.leak = 1":                                                      {Kind: script.Runtime},
		"return new Promise(() => {})":                                               {Kind: script.Runtime, Message: "promise"},
		"return (async () => { throw new Error('later') })()":                        {Kind: script.Runtime, Message: "later"},
		"return (function* () { yield 1 })().constructor.constructor('return 1')":    {Kind: script.Runtime},
	} {
		f, err := e.Function(code)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, err = f.Call(context.Background(), scope(t))
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		var got *script.Error
		if !errors.As(err, &got) || got.Kind != want.Kind && !(want.Kind == either && (got.Kind == script.Timeout || got.Kind == script.Memory)) || !strings.Contains(got.Message, want.Message) {
			t.Errorf("%s: %#v, want %v %q", code, err, want.Kind, want.Message)
		}
		if took > 20*time.Second || after.Sys-before.Sys > 2<<30 {
			t.Errorf("%s: %v, %d MB", code, took, (after.Sys-before.Sys)>>20)
		}
	}
	x, err := e.Expression("1 + 1")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := x.Eval(context.Background(), scope(t)); err != nil || text(v) != "2" {
		t.Errorf("afterwards: %s %v", text(v), err)
	}
}

// A regular expression that could run for ever is refused before anything runs, with its place.
func TestSlowRegularExpressions(t *testing.T) {
	e := script.NewEngine(script.Options{})
	defer e.Close()
	for code, line := range map[string]int{"const a = 1\nreturn /(a+)+\\1$/.test('a')": 2, "return 'x'.replace(/(?!y)x/, '')": 1, "const f = { g: [() => /(?<=a)b/u] }\nreturn f": 1} {
		_, err := e.Function(code)
		var fault *script.Fault
		if !errors.As(err, &fault) || fault.Line != line || !strings.Contains(fault.Message, "not allowed") {
			t.Errorf("%s: %v", code, err)
		}
	}
	f, err := e.Function(`return ["a1b22".match(/\d+/g), "x-y_z".split(/[-_]/), "aXb".replace(/x/i, "-"), "k=v".match("(?<k>\\w)=").groups.k, [..."a1b2".matchAll(/[a-z](\d)/g)].map(m => m[1]), /(a+)+$/.test("a".repeat(50) + "!"), new RegExp("b", "g").flags]`)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := f.Call(context.Background(), scope(t)); err != nil || text(v) != `[["1","22"],["x","y","z"],"a-b","k",["1","2"],false,"g"]` {
		t.Errorf("%s %v", text(v), err)
	}
}

// What natives do within the bounds, they do as ever.
func TestBoundedNativesWork(t *testing.T) {
	e := script.NewEngine(script.Options{})
	defer e.Close()
	for code, want := range map[string]string{
		"return ['ab'.repeat(2), 'a'.padStart(3, '-'), [3,1,2].sort(), Array(3).fill(0), Array.from('abc'), Array.from({length: 2}, (_, i) => i), [1,[2]].flat(), [1,2,3].join('-')]": `["abab","--a",[1,2,3],[0,0,0],["a","b","c"],[0,1],[1,2],"1-2-3"]`,
		"return [...new Uint8Array([1,2]), new Uint8Array(2).length, Array.prototype.slice.call({length: 1, 0: 'a'})]":                                                                `[1,2,2,["a"]]`,
		"class P extends Array {}; const p = new P(); p.push(1); return [p.length, p instanceof Array, Array.isArray(p)]":                                                             `[1,true,true]`,
		"return JSON.parse('{\"a\":[1]}')":                       `{"a":[1]}`,
		"return (async () => { await null; return 5 })()":        "5",
		"const m = new Map([['a', 1]]); return [...m.entries()]": `[["a",1]]`,
	} {
		f, err := e.Function(code)
		if err != nil {
			t.Errorf("%s: %v", code, err)
			continue
		}
		if v, err := f.Call(context.Background(), scope(t)); err != nil || text(v) != want {
			t.Errorf("%s: %s, %v", code, text(v), err)
		}
	}
}

func TestConsoleIsBounded(t *testing.T) {
	e := script.NewEngine(script.Options{})
	defer e.Close()
	s := scope(t)
	n, size := 0, 0
	s.Console = func(_, text string) { n, size = n+1, size+len(text) }
	f, err := e.Function("for (let i = 0; i < 1000; i++) console.log('x'.repeat(10000))")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Call(context.Background(), s); err != nil || n != 100 || size > 500_000 {
		t.Errorf("%d lines, %d octets, %v", n, size, err)
	}
}
