package historian

import "encoding/binary"

// The forms of a value column.
const (
	valuesNull    = iota // nothing
	valuesFixed          // decimals with one exponent: the exponent, mantissas
	valuesTrimmed        // decimals without ending zeros after the point: the largest exponent, mantissas at that exponent
	valuesDecimal        // decimals with any exponents: an octet each, mantissas
	valuesBool           // the first, then the lengths of the runs
	valuesDict           // one kind with Raw: kind, entries, indices
	valuesRaw            // one kind with Raw: kind, lengths, octets
	valuesMixed          // form and value each
)

// appendValues writes the value column. room is memory for as many integers as there are samples.
func appendValues(dst []byte, samples []Sample, room []int64) []byte {
	kind := samples[0].Value.Kind
	for i := range samples {
		if samples[i].Value.Kind != kind {
			return appendMixed(dst, samples)
		}
	}
	switch kind {
	case Bool:
		return appendBools(append(dst, valuesBool), samples)
	case Decimal:
		return appendDecimals(dst, samples, room)
	case Number, Text, Bytes, JSON:
		return appendRaws(dst, samples, room)
	}
	return append(dst, valuesNull)
}

func appendMixed(dst []byte, samples []Sample) []byte {
	dst = append(dst, valuesMixed)
	for i := range samples {
		dst = append(dst, formOf(&samples[i].Value))
	}
	for i := range samples {
		v := &samples[i].Value
		dst = appendForm(dst, formOf(v), v)
	}
	return dst
}

func appendBools(dst []byte, samples []Sample) []byte {
	on := samples[0].Value.Mant != 0
	if on {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	run := uint64(0)
	for i := range samples {
		if now := samples[i].Value.Mant != 0; now != on {
			dst = binary.AppendUvarint(dst, run)
			run, on = 0, now
		}
		run++
	}
	return binary.AppendUvarint(dst, run)
}

// appendDecimals picks the form for decimals. Most encoders of JSON drop ending zeros, so that the exponent
// of a trimmed value follows from its mantissa and costs nothing.
func appendDecimals(dst []byte, samples []Sample, mants []int64) []byte {
	exp := samples[0].Value.Exp
	top, fixed, trimmed := exp, true, true
	for i := range samples {
		v := &samples[i].Value
		mants[i] = v.Mant
		fixed = fixed && v.Exp == exp
		top = max(top, v.Exp)
		trimmed = trimmed && (v.Exp == 0 || v.Mant%10 != 0)
	}
	if fixed {
		return appendInts(append(dst, valuesFixed, exp), mants)
	}
	if trimmed && top <= maxExp {
		i := 0
		for ; i < len(samples); i++ {
			v := &samples[i].Value
			up := pow10[top-v.Exp]
			if m := v.Mant * up; m/up == v.Mant {
				mants[i] = m
				continue
			}
			break
		}
		if i == len(samples) {
			return appendInts(append(dst, valuesTrimmed, top), mants)
		}
		for i := range samples {
			mants[i] = samples[i].Value.Mant
		}
	}
	dst = append(dst, valuesDecimal)
	for i := range samples {
		dst = append(dst, samples[i].Value.Exp)
	}
	return appendInts(dst, mants)
}

// maxDict is the most entries of a dictionary, so that a packed index is one octet.
const maxDict = 255

// appendRaws writes values that have Raw, by dictionary when they repeat.
func appendRaws(dst []byte, samples []Sample, places []int64) []byte {
	kind := byte(samples[0].Value.Kind)
	var index map[string]int
	entries := make([]int, 0, 8)
	last := 0
	for i := range samples {
		raw := samples[i].Value.Raw
		if i > 0 && string(raw) == string(samples[i-1].Value.Raw) {
			places[i] = int64(last)
			continue
		}
		if index == nil {
			index = make(map[string]int, 8)
		}
		at, ok := index[string(raw)]
		if !ok {
			at = len(entries)
			// A dictionary that half of the samples would enter saves nothing.
			if at == maxDict || at > 4+len(samples)/2 {
				return appendPlain(append(dst, valuesRaw, kind), samples)
			}
			index[string(raw)] = at
			entries = append(entries, i)
		}
		last = at
		places[i] = int64(at)
	}
	dst = append(dst, valuesDict, kind, byte(len(entries)))
	for _, i := range entries {
		raw := samples[i].Value.Raw
		dst = binary.AppendUvarint(dst, uint64(len(raw)))
		dst = append(dst, raw...)
	}
	return appendInts(dst, places)
}

func appendPlain(dst []byte, samples []Sample) []byte {
	for i := range samples {
		dst = binary.AppendUvarint(dst, uint64(len(samples[i].Value.Raw)))
	}
	for i := range samples {
		dst = append(dst, samples[i].Value.Raw...)
	}
	return dst
}

// values reads the value column into the samples. room is memory for as many integers.
func (o *octets) values(samples []Sample, room []int64) {
	switch form := o.octet(); form {
	case valuesNull:
	case valuesFixed, valuesTrimmed:
		exp := o.octet()
		if form == valuesTrimmed && exp > maxExp {
			o.fail()
			return
		}
		o.ints(room)
		for i := range samples {
			v := Value{Kind: Decimal, Exp: exp, Mant: room[i]}
			if form == valuesTrimmed {
				for v.Exp > 0 && v.Mant%10 == 0 {
					v.Mant /= 10
					v.Exp--
				}
			}
			samples[i].Value = v
		}
	case valuesDecimal:
		exps := o.take(uint64(len(samples)))
		if o.bad {
			return
		}
		o.ints(room)
		for i := range samples {
			samples[i].Value = Value{Kind: Decimal, Exp: exps[i], Mant: room[i]}
		}
	case valuesBool:
		o.bools(samples)
	case valuesDict, valuesRaw:
		kind := Kind(o.octet())
		if kind < Number || kind > JSON {
			o.fail()
			return
		}
		if form == valuesDict {
			o.dict(samples, kind, room)
		} else {
			o.plain(samples, kind, room)
		}
	case valuesMixed:
		forms := o.take(uint64(len(samples)))
		var keep arena
		for i := range forms {
			v := o.form(forms[i])
			if v.Kind >= Number {
				v.Raw = keep.copy(v.Raw)
			}
			samples[i].Value = v
		}
	default:
		o.fail()
	}
}

func (o *octets) bools(samples []Sample) {
	on := o.octet()
	if on > 1 {
		o.fail()
		return
	}
	for len(samples) > 0 {
		run := o.uvarint()
		if run == 0 || run > uint64(len(samples)) {
			o.fail()
			return
		}
		for i := range samples[:run] {
			samples[i].Value = Value{Kind: Bool, Mant: int64(on)}
		}
		samples = samples[run:]
		on ^= 1
	}
}

func (o *octets) dict(samples []Sample, kind Kind, places []int64) {
	var entries [maxDict][]byte
	n := int(o.octet())
	if n == 0 || n > maxDict {
		o.fail()
		return
	}
	var keep arena
	for i := range n {
		entries[i] = keep.copy(o.take(o.uvarint()))
	}
	o.ints(places)
	for i, p := range places {
		if uint64(p) >= uint64(n) {
			o.fail()
			return
		}
		samples[i].Value = Value{Kind: kind, Raw: entries[p]}
	}
}

func (o *octets) plain(samples []Sample, kind Kind, lengths []int64) {
	total := uint64(0)
	for i := range samples {
		l := o.uvarint()
		total += l
		if l > uint64(len(o.b)) || total > uint64(len(o.b)) {
			o.fail()
			return
		}
		lengths[i] = int64(l)
	}
	all := o.take(total)
	if o.bad {
		return
	}
	own := make([]byte, len(all))
	copy(own, all)
	for i := range samples {
		l := lengths[i]
		samples[i].Value = Value{Kind: kind, Raw: own[:l:l]}
		own = own[l:]
	}
}
