package perf

import (
	"math"
	"strconv"
)

// kind is the way a tag's value moves.
type kind uint8

const (
	kindDrift   kind = iota // one decimal, seldom and slowly moving
	kindNoise               // two decimals, every sample differs
	kindCounter             // whole parts, never falling
	kindEnergy              // plus one each time
	kindState               // 0 to 5
	kindRun                 // true or false
	kindSerial              // 0, 1, 2 …: every value is unlike every other, for the crash run
)

// tagName and tagKind are the ten tags of one device: the mix of a plant. More tags than ten repeat it.
var (
	tagName = [...]string{"temp1", "temp2", "temp3", "pressure1", "pressure2", "flow", "parts", "energy", "state", "running"}
	tagKind = [...]kind{kindDrift, kindDrift, kindDrift, kindNoise, kindNoise, kindNoise, kindCounter, kindEnergy, kindState, kindRun}
)

func nameOfTag(i int) string {
	if i < len(tagName) {
		return tagName[i]
	}
	return tagName[i%len(tagName)] + "_" + strconv.Itoa(i/len(tagName)+1)
}

// signal is the value source of one tag: the same seed yields the same digits in the same order, so a
// read-back replays it instead of remembering every value.
type signal struct {
	kind  kind
	fresh bool
	rng   uint64
	x     int64 // the value times ten to the kind's decimals
}

// newSignal makes the source of tag of device. serial overrides the plant's mix.
func newSignal(seed uint64, device, tag int, serial bool) signal {
	k := tagKind[tag%len(tagKind)]
	if serial {
		k = kindSerial
	}
	return newSignalOf(seed, device, tag, k)
}

func newSignalOf(seed uint64, device, tag int, k kind) signal {
	s := signal{kind: k, fresh: true, rng: mix(seed<<48 ^ uint64(device)<<16 ^ uint64(tag) ^ 0x9e3779b97f4a7c15)}
	switch s.kind {
	case kindDrift:
		s.x = 200 + int64(s.below(600))
	case kindNoise:
		s.x = 1000 + int64(s.below(40000))
	case kindCounter, kindEnergy:
		s.x = int64(s.below(1000000))
	}
	return s
}

// mix spreads a seed over all 64 bits; never 0, which xorshift could not leave.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x | 1
}

func (s *signal) below(n uint64) uint64 {
	s.rng ^= s.rng << 13
	s.rng ^= s.rng >> 7
	s.rng ^= s.rng << 17
	return (s.rng >> 11) % n
}

// next moves on and returns the scaled value; the first call returns the starting value.
func (s *signal) next() int64 {
	if s.fresh {
		s.fresh = false
		return s.x
	}
	switch s.kind {
	case kindDrift:
		if s.below(3) == 0 {
			s.x += int64(s.below(7)) - 3
		}
	case kindNoise:
		// The sum of four uniform steps is close enough to a bell of deviation 8.
		sum := int64(s.below(14) + s.below(14) + s.below(14) + s.below(14))
		s.x += sum - 26
	case kindCounter:
		s.x += int64(s.below(4))
	case kindEnergy, kindSerial:
		s.x++
	case kindState:
		if s.below(300) == 0 {
			s.x = int64(s.below(6))
		}
	case kindRun:
		if s.below(200) == 0 {
			s.x ^= 1
		}
	}
	return s.x
}

// appendDigits writes the scaled value x as this kind's JSON.
func (k kind) appendDigits(b []byte, x int64) []byte {
	switch k {
	case kindDrift:
		return appendDecimal(b, x, 1)
	case kindNoise:
		return appendDecimal(b, x, 2)
	case kindRun:
		return strconv.AppendBool(b, x != 0)
	}
	return strconv.AppendInt(b, x, 10)
}

func appendDecimal(b []byte, x int64, decimals int) []byte {
	if x < 0 {
		b = append(b, '-')
		x = -x
	}
	scale := int64(math.Pow10(decimals))
	b = strconv.AppendInt(b, x/scale, 10)
	b = append(b, '.')
	rest := x % scale
	for scale /= 10; scale > 0; scale /= 10 {
		b = append(b, byte('0'+rest/scale%10))
	}
	return b
}

// appendEnvelope writes the payload a device sends for the scaled value x.
func (k kind) appendEnvelope(b []byte, x int64) []byte {
	b = append(b, `{"value": `...)
	b = k.appendDigits(b, x)
	return append(b, '}')
}
