package trigger

import "strings"

// branch is one level of the filters of a workspace. It is not changed once its table is in force.
type branch struct {
	levels map[string]*branch
	plus   *branch
	here   []uint32 // triggers whose filter ends here
	below  []uint32 // triggers whose filter ends in # here: this level and all under it
}

// add puts a filter of a trigger in.
func (b *branch) add(filter string, trigger uint32) {
	for more := true; more; {
		var level string
		level, filter, more = strings.Cut(filter, "/")
		switch level {
		case "#":
			b.below = append(b.below, trigger)
			return
		case "+":
			if b.plus == nil {
				b.plus = &branch{}
			}
			b = b.plus
		default:
			next := b.levels[level]
			if next == nil {
				if b.levels == nil {
					b.levels = map[string]*branch{}
				}
				next = &branch{}
				b.levels[level] = next
			}
			b = next
		}
	}
	b.here = append(b.here, trigger)
}

// collect appends the triggers whose filters match a path, some of them maybe twice. Filters that begin with a wildcard do not
// match a path that begins with $ [MQTT-4.7.2-1].
func (b *branch) collect(found []uint32, path string, dollar bool) []uint32 {
	for {
		if !dollar {
			found = append(found, b.below...)
		}
		level, rest, more := strings.Cut(path, "/")
		if b.plus != nil && !dollar {
			if more {
				found = b.plus.collect(found, rest, false)
			} else {
				found = b.plus.end(found)
			}
		}
		b = b.levels[level]
		if b == nil {
			return found
		}
		if !more {
			return b.end(found)
		}
		path, dollar = rest, false
	}
}

// end takes what matches when the path ends here; # matches its parent as well.
func (b *branch) end(found []uint32) []uint32 {
	return append(append(found, b.here...), b.below...)
}
