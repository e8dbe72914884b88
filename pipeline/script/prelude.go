package script

// The most that one call of a native function may make: natives are not interrupted, so what they would fill the memory with is
// refused before.
const (
	maxText = 8 << 20 // characters
	maxList = 1 << 20 // items
	maxRaw  = 16 << 20
)

// prelude bounds the natives and then makes what all programs share unchangeable: code of one pipeline must not reach that of another.
const prelude = `"use strict";
(function (checkRegexp, checkSize, maxText, maxList, maxRaw) {
	const apply = Reflect.apply, construct = Reflect.construct, define = Object.defineProperty, names = Object.getOwnPropertyNames;
	const fail = (what) => { throw new RangeError(what) };
	const wrap = (on, name, before) => {
		const was = on[name];
		if (typeof was !== "function") return;
		define(on, name, {configurable: true, writable: true, enumerable: false, value: {[name](...args) { before(this, args); return apply(was, this, args) }}[name]});
	};
	const text = (n) => { if (n > maxText) fail("a text of " + n + " characters: at most " + maxText + " are allowed") };
	wrap(String.prototype, "repeat", (s, [n]) => text(String(s).length * Number(n)));
	for (const name of ["padStart", "padEnd"]) wrap(String.prototype, name, (s, [n]) => text(Number(n)));
	for (const name of ["concat", "replaceAll", "split"]) wrap(String.prototype, name, (s) => text(String(s).length));
	const list = (n) => { if (n > maxList) fail("a list of " + n + " items: at most " + maxList + " are allowed") };
	for (const name of names(Array.prototype)) {
		if (name !== "constructor" && name !== "push" && name !== "pop" && name !== "at") wrap(Array.prototype, name, (a) => list(a == null ? 0 : Number(a.length)));
	}
	wrap(Array.prototype, "concat", (a, args) => { list(Number(a.length)); for (const x of args) if (Array.isArray(x)) list(x.length) });
	wrap(Array.prototype, "join", (a, [sep]) => { list(Number(a.length)); text(Number(a.length) * (sep === undefined ? 1 : String(sep).length)); checkSize(a) });
	wrap(Array.prototype, "toString", (a) => checkSize(a));
	const values = Array.prototype[Symbol.iterator];
	define(Array.prototype, Symbol.iterator, {configurable: true, writable: true, enumerable: false, value: function values_() { list(this == null ? 0 : Number(this.length)); return apply(values, this, []) }});
	// Lists that share lists grow without end when they are laid flat; in JavaScript that is interrupted.
	const lay = (out, a, depth) => { for (let i = 0; i < a.length; i++) if (i in a) { if (depth > 0 && Array.isArray(a[i])) lay(out, a[i], depth - 1); else out.push(a[i]) } return out };
	define(Array.prototype, "flat", {configurable: true, writable: true, enumerable: false, value: {flat(depth) { list(this.length); return lay([], this, depth === undefined ? 1 : Number(depth)) }}.flat});
	define(Array.prototype, "flatMap", {configurable: true, writable: true, enumerable: false, value: {flatMap(f, self) { return lay([], this.map(f, self), 1) }}.flatMap});
	for (const name of ["replace", "replaceAll"]) wrap(String.prototype, name, (s, args) => { if (typeof args[1] === "string" && String(s).length * args[1].length > 8 * maxText) fail("a replacement that could make a text of more than " + 8 * maxText + " characters") });
	wrap(String.prototype, "concat", (s, args) => { let n = String(s).length; for (const x of args) n += String(x).length; text(n) });
	wrap(String, "raw", (_, [o]) => { if (o && o.raw) list(Number(o.raw.length)) });
	wrap(Function.prototype, "apply", (_, args) => { if (args[1] != null) list(Number(args[1].length) || 0) });
	wrap(Reflect, "apply", (_, args) => { if (args[2] != null) list(Number(args[2].length) || 0) });
	wrap(Reflect, "construct", (_, args) => { if (args[1] != null) list(Number(args[1].length) || 0) });
	wrap(JSON, "stringify", (_, [v]) => checkSize(v));
	wrap(Array, "from", (_, [a]) => { if (a != null && typeof a === "object" && typeof a.length === "number") list(a.length) });
	wrap(JSON, "parse", (_, [s]) => text(String(s).length));
	const guard = (name, before) => {
		const was = globalThis[name];
		if (typeof was !== "function") return;
		const plain = Function.prototype[Symbol.hasInstance];
		define(was, Symbol.hasInstance, {value: (v) => apply(plain, was, [v])}); // of a proxy the engine does not know it
		const now = new Proxy(was, {
			construct(target, args, as) { before(args); return construct(target, args, as === now ? target : as) },
			apply(target, self, args) { before(args); return apply(target, self, args) },
		});
		define(globalThis, name, {configurable: true, writable: true, enumerable: false, value: now});
		define(was.prototype, "constructor", {configurable: true, writable: true, enumerable: false, value: now});
	};
	const raw = (size) => ([n]) => { if (typeof n === "number" && n * size > maxRaw) fail(n * size + " octets: at most " + maxRaw + " are allowed"); if (n != null && typeof n === "object" && typeof n.length === "number") list(n.length) };
	guard("Array", ([n]) => { if (typeof n === "number") list(n) });
	guard("ArrayBuffer", raw(1));
	for (const name of ["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array"]) {
		const was = globalThis[name];
		if (was) guard(name, raw(was.BYTES_PER_ELEMENT));
	}
	const Native = RegExp, isRegExp = (v) => v instanceof Native;
	const pattern = (args) => { if (!isRegExp(args[0]) || args[1] !== undefined) checkRegexp(isRegExp(args[0]) ? args[0].source : args[0] === undefined ? "" : args[0], args[1] === undefined ? "" : args[1]) };
	guard("RegExp", pattern);
	for (const name of ["match", "matchAll", "search"]) wrap(String.prototype, name, (s, args) => { if (args.length > 0 && !isRegExp(args[0])) checkRegexp(args[0], name === "matchAll" ? "g" : "") });
	if (RegExp.prototype.compile) delete RegExp.prototype.compile;
	define(globalThis, "$bits", {value: (n) => { if (typeof n === "bigint" && (n > 100000n || n < -100000n)) fail("a BigInt shifted or raised by " + n); return n }});
	// Code that nobody checked at deploy is not made of texts.
	for (const f of [() => {}, function*(){}, async () => {}]) define(Object.getPrototypeOf(f), "constructor", {value: undefined});
	delete globalThis.eval;
	delete globalThis.Function;
	for (const name of names(globalThis)) {
		const v = globalThis[name];
		if (typeof v === "function" && v.prototype) Object.freeze(v.prototype);
		if (typeof v === "function" || typeof v === "object" && v !== null && v !== globalThis) Object.freeze(v);
	}
	for (const x of [function*(){}, (async function(){}), () => {}, [][Symbol.iterator](), ""[Symbol.iterator](), new Map()[Symbol.iterator](), new Set()[Symbol.iterator](), new Uint8Array(0)]) {
		for (let p = Object.getPrototypeOf(x); p; p = Object.getPrototypeOf(p)) { Object.freeze(p); if (typeof p.constructor === "function") Object.freeze(p.constructor) }
	}
	Object.freeze(globalThis);
})`
