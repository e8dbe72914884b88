package perf

// outcome says how a topic's history differs from what was sent on it.
type outcome struct {
	Acked     int // values acknowledged as stored
	Stored    int // values found in history
	Lost      int // acknowledged and not found
	Doubled   int // found more often than they were transmitted
	Different int // other digits, another order, or stored although refused
	Unasked   int // stored without an acknowledgement having reached the device, among them values it sent again

	missing []uint32 // numbers of the lost values, where the exact comparison could name them
}

func (o *outcome) add(p outcome) {
	o.Acked += p.Acked
	o.Stored += p.Stored
	o.Lost += p.Lost
	o.Doubled += p.Doubled
	o.Different += p.Different
	o.Unasked += p.Unasked
	o.missing = append(o.missing, p.missing...)
}

// maxCells bounds the table of the exact comparison; larger differences are counted by content alone.
const maxCells = 4 << 20

// match holds the stored values of one topic, oldest first, against what was sent. digits gives the text of
// the i-th transmission.
//
// History is right when it is the list of transmissions with every acknowledged one present, any unacknowledged
// one present or absent, and nothing else: same digits, same order.
func match(sent []transmission, digits []string, stored []string) outcome {
	o := outcome{Stored: len(stored)}
	kept := make([]item, 0, len(sent))
	for i, t := range sent {
		switch t.state {
		case fateAcked:
			o.Acked++
			kept = append(kept, item{digits[i], true, t.value})
		case fateOpen:
			kept = append(kept, item{digits[i], false, t.value})
		}
	}
	lo, hi, end := 0, len(kept), len(stored)
	for lo < hi && lo < end && kept[lo].must && kept[lo].text == stored[lo] {
		lo++
	}
	front := lo
	for hi > lo && end > front && kept[hi-1].must && kept[hi-1].text == stored[end-1] {
		hi--
		end--
	}
	all := kept
	kept, stored = kept[lo:hi], stored[front:end]
	if explains(kept, stored) {
		o.Unasked = o.Stored - o.Acked
		return o
	}
	if (len(kept)+1)*(len(stored)+1) > maxCells {
		count(kept, stored, known(all), &o)
	} else {
		align(kept, stored, known(all), &o)
	}
	return o
}

type item struct {
	text  string
	must  bool
	value uint32
}

func known(sent []item) map[string]bool {
	texts := map[string]bool{}
	for _, it := range sent {
		texts[it.text] = true
	}
	return texts
}

// explains reports whether stored is sent with some of the optional items left out. It follows every position
// that could explain the values so far; there are only as many as optional items in a row.
func explains(sent []item, stored []string) bool {
	at := reach(nil, sent, 0)
	var next []int
	for _, text := range stored {
		next = next[:0]
		for _, p := range at {
			if p < len(sent) && sent[p].text == text {
				next = reach(next, sent, p+1)
			}
		}
		if len(next) == 0 {
			return false
		}
		at, next = next, at
	}
	return at[len(at)-1] == len(sent)
}

// reach adds position p, and those behind it over optional items, to the ascending list at.
func reach(at []int, sent []item, p int) []int {
	for {
		if len(at) == 0 || at[len(at)-1] < p {
			at = append(at, p)
		}
		if p == len(sent) || sent[p].must {
			return at
		}
		p++
	}
}

// align finds the cheapest explanation by the usual table of edit steps. A wrong value costs less than a loss
// and an extra one together, so one altered digit counts as one difference.
func align(sent []item, stored []string, known map[string]bool, o *outcome) {
	const lost, extra, altered = 4, 4, 7
	width := len(stored) + 1
	cost := make([]int32, (len(sent)+1)*width)
	for i := len(sent); i >= 0; i-- {
		for j := len(stored); j >= 0; j-- {
			if i == len(sent) {
				cost[i*width+j] = int32(extra * (len(stored) - j))
				continue
			}
			skip := int32(0)
			if sent[i].must {
				skip = lost
			}
			best := cost[(i+1)*width+j] + skip
			if j < len(stored) {
				best = min(best, cost[i*width+j+1]+extra)
				step := int32(altered)
				if sent[i].text == stored[j] {
					step = 0
				}
				best = min(best, cost[(i+1)*width+j+1]+step)
			}
			cost[i*width+j] = best
		}
	}
	i, j := 0, 0
	for i < len(sent) || j < len(stored) {
		c := cost[i*width+j]
		if i < len(sent) && j < len(stored) {
			same := sent[i].text == stored[j]
			if same && cost[(i+1)*width+j+1] == c || !same && cost[(i+1)*width+j+1]+altered == c {
				switch {
				case !same:
					o.Different++
				case !sent[i].must:
					o.Unasked++
				}
				i, j = i+1, j+1
				continue
			}
		}
		if i < len(sent) {
			skip := int32(0)
			if sent[i].must {
				skip = lost
			}
			if cost[(i+1)*width+j]+skip == c {
				if sent[i].must {
					o.Lost++
					o.missing = append(o.missing, sent[i].value)
				}
				i++
				continue
			}
		}
		// A value too many is a double if it was sent at all; one nobody sent is a difference.
		if known[stored[j]] {
			o.Doubled++
		} else {
			o.Different++
		}
		j++
	}
}

// count compares contents without order, for differences too large for the table.
func count(sent []item, stored []string, known map[string]bool, o *outcome) {
	have := map[string]int{}
	for _, s := range stored {
		have[s]++
	}
	for _, it := range sent {
		if it.must {
			if have[it.text]--; have[it.text] < 0 {
				have[it.text] = 0
				o.Lost++
			}
		}
	}
	for _, it := range sent {
		if !it.must && have[it.text] > 0 {
			have[it.text]--
			o.Unasked++
		}
	}
	found := false
	for text, n := range have {
		found = found || n > 0
		if known[text] {
			o.Doubled += n
		} else {
			o.Different += n
		}
	}
	if o.Lost == 0 && !found {
		o.Different++ // the same values in another order
	}
}
