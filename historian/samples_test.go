package historian_test

import (
	"math"
	"math/rand/v2"

	"millrace/historian"
)

// epoch is a plain day in the middle of the range, in ns.
const epoch = int64(1_790_000_000_000) * 1_000_000

var pow10 = [...]int64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// hostile makes n samples whose shape is drawn too: mostly one kind and mostly even, or everything at once;
// with series 0 each has a series of its own.
func hostile(r *rand.Rand, n int, series historian.Series) []historian.Sample {
	out := make([]historian.Sample, n)
	kind := historian.Kind(r.IntN(8))
	wildTime, wildReceipt, stampedAll := r.IntN(8) == 0, r.IntN(4) == 0, r.IntN(4) == 0
	trimmed := r.IntN(2) == 0
	exp := uint8(r.IntN(5))
	vocabulary := 1 + r.IntN(300)
	mantBits := r.IntN(64)
	step := int64(r.IntN(3000))
	jitter := 1 + r.Int64N(20)
	at := epoch
	mant := int64(0)
	for i := range out {
		s := &out[i]
		if s.Series = series; series == 0 {
			s.Series = historian.Series(1 + r.Uint32N(math.MaxUint32))
		}
		s.Scale = 6
		at += step * 1e6
		s.Time = at + r.Int64N(jitter)*1e6
		if wildTime || r.IntN(200) == 0 {
			s.Scale = uint8(r.IntN(10))
			s.Time = int64(r.Uint64()) / pow10[s.Scale] * pow10[s.Scale]
		}
		s.Received = s.Time
		if s.Stamped = stampedAll || r.IntN(200) == 0; s.Stamped {
			s.Received += r.Int64N(1000) * 1e6
			if wildReceipt {
				s.Received = int64(r.Uint64())
			}
		}
		if r.IntN(40) == 0 {
			s.Quality = historian.Quality(r.IntN(3))
		}
		k := kind
		if k > historian.JSON || r.IntN(300) == 0 {
			k = historian.Kind(r.IntN(7))
		}
		v := &s.Value
		v.Kind = k
		switch k {
		case historian.Bool:
			v.Mant = int64(r.IntN(2))
		case historian.Decimal:
			if r.IntN(3) != 0 {
				mant += int64(r.Uint64()) >> (63 - mantBits)
			}
			v.Mant, v.Exp = mant, exp
			if r.IntN(300) == 0 {
				v.Exp = uint8(r.IntN(256))
			}
			for trimmed && v.Exp > 0 && v.Mant%10 == 0 {
				v.Mant /= 10
				v.Exp--
			}
		case historian.Number, historian.Text, historian.Bytes, historian.JSON:
			word := uint64(r.IntN(vocabulary))
			v.Raw = make([]byte, word%7)
			for j := range v.Raw {
				v.Raw[j] = byte(word >> j)
			}
			if r.IntN(100) == 0 {
				v.Raw = make([]byte, r.IntN(5000))
			}
		}
	}
	return out
}

// plantTags is how many tags a device of a plant has.
const plantTags = 10

// plant makes the values of devices with ten tags each: three that drift slowly with one decimal, three
// noisy ones with two, two counters, a state and a boolean. All are stamped on receipt.
type plant struct {
	r      *rand.Rand
	period int64 // ms
	jitter int64 // ms, 0 to jitter inclusive
	noise  bool  // tags 3 to 5 scatter around a mean instead of wandering
	round  int64
	phase  []int64
	mant   []int64
	mean   []int64
}

func newPlant(devices int, period, jitter int64) *plant {
	p := &plant{r: rand.New(rand.NewPCG(3, 4)), period: period, jitter: jitter}
	for range devices {
		p.phase = append(p.phase, p.r.Int64N(period))
		for tag := range plantTags {
			m := p.r.Int64N(1_000_000)
			switch {
			case tag < 3:
				m = 200 + p.r.Int64N(600)
			case tag < 6:
				m = 1000 + p.r.Int64N(40_000)
			case tag >= 8:
				m = 0
			}
			p.mant, p.mean = append(p.mant, m), append(p.mean, m)
		}
	}
	return p
}

// next makes the next sample of every tag of every device; the series are 1 to devices × plantTags.
func (p *plant) next(each func(s *historian.Sample)) {
	var s historian.Sample
	for d, phase := range p.phase {
		for tag := range plantTags {
			i := d*plantTags + tag
			m := &p.mant[i]
			s.Value = historian.Value{Kind: historian.Decimal}
			switch tag {
			case 0, 1, 2:
				if p.r.IntN(3) == 0 {
					*m += p.r.Int64N(7) - 3
				}
				s.Value.Exp = 1
			case 3, 4, 5:
				n := int64(math.Round(p.r.NormFloat64() * 8))
				if p.noise {
					*m = p.mean[i] + n
				} else {
					*m += n
				}
				s.Value.Exp = 2
			case 6:
				*m += p.r.Int64N(4)
			case 7:
				*m++
			case 8:
				if p.r.IntN(300) == 0 {
					*m = p.r.Int64N(6)
				}
			case 9:
				if p.r.IntN(200) == 0 {
					*m ^= 1
				}
				s.Value.Kind = historian.Bool
			}
			s.Value.Mant = *m
			s.Series = historian.Series(i + 1)
			s.Scale = 6
			s.Time = epoch + (phase+p.round*p.period+p.r.Int64N(p.jitter+1))*1e6
			s.Received = s.Time
			each(&s)
		}
	}
	p.round++
}

// trimmed drops ending zeros after the point, as most encoders of JSON do.
func trimmed(v historian.Value) historian.Value {
	for v.Exp > 0 && v.Mant%10 == 0 {
		v.Mant /= 10
		v.Exp--
	}
	return v
}
