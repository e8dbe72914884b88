package historian

import "math/big"

// Tally is a tally.
type Tally struct{ t tally }

func (t *Tally) Add(samples ...Sample) {
	for i := range samples {
		t.t.add(&samples[i])
	}
}
func (t *Tally) Merge(later *Tally)       { t.t.merge(&later.t) }
func (t *Tally) Before(later *Tally) bool { return t.t.before(&later.t) }
func (t *Tally) Append(dst []byte) []byte { return t.t.appendTo(dst) }
func (t *Tally) Reset()                   { t.t.reset() }

func ReadTally(b []byte) (Tally, error) {
	t, err := readTally(b)
	return Tally{t}, err
}

// Told is all that a tally says, comparable. Sum and area are exact fractions, Shown is the sum as it is answered.
type Told struct {
	Count, Good, Numeric              uint64
	Worst                             Quality
	Valued, Elided                    bool
	First, Last                       int64
	FirstValue, LastValue             Value
	FirstNum, LastNum                 int64
	FirstNumValue, LastNumValue       Value
	Min, Max, Shown                   Value
	Sum, Area                         *big.Rat
	Mean                              float64
	FirstIsWhole, LastIsWhole, Finite bool
}

func (t *Tally) Told() Told {
	u := &t.t
	w := Told{
		Count: u.count, Good: u.good, Numeric: u.numeric, Worst: u.worst, Valued: u.valued, Elided: u.elided,
		First: u.first.time, Last: u.last.time, FirstValue: u.first.value, LastValue: u.last.value,
		FirstNum: u.firstNum.time, LastNum: u.lastNum.time, FirstNumValue: u.firstNum.value, LastNumValue: u.lastNum.value,
		Min: u.min, Max: u.max, Sum: u.sum.rat(), Area: u.area.rat(),
	}
	w.Shown, w.Finite = u.sum.value()
	if u.numeric > 0 {
		w.Mean = u.sum.over(u.numeric)
	}
	return w
}

// CompareNumbers orders two numbers.
func CompareNumbers(a, b Value) int { return compareNumbers(a, b) }

// RatOf is a number as a fraction, by its digits.
func RatOf(v Value) *big.Rat { return exactRat(v) }

// NumberOf is a value as a number.
func NumberOf(v Value) (Value, bool) { return v.number() }

// Drop deletes a whole keyspace.
func (s *Store) Drop(space byte) {
	if err := s.db.DeleteRange([]byte{space}, []byte{space + 1}, nil); err != nil {
		panic(err)
	}
}
