package historian

import (
	"encoding/binary"
	"slices"
)

// Columns of residuals are packed by a canonical prefix code of their own. The block compression of the
// store leaves literals alone when it finds few repetitions, which is just how measured values look.

// packBits is the longest code, so that one look-up decodes one octet.
const packBits = 10

// packed replaces what stands in dst from at on by its packed form if that is shorter.
func packed(dst []byte, at int) ([]byte, bool) {
	plain := dst[at:]
	if len(plain) < 16 {
		return dst, false
	}
	var freq [256]uint32
	for _, c := range plain {
		freq[c]++
	}
	var lengths [256]uint8
	last := packLengths(&freq, &lengths)
	bits := 0
	for c := 0; c <= last; c++ {
		bits += int(freq[c]) * int(lengths[c])
	}
	if bits/8+8 >= len(plain) {
		return dst, false
	}
	mid := len(dst)
	dst = binary.AppendUvarint(dst, uint64(mid-at))
	dst = appendLengths(append(dst, byte(last)), lengths[:last+1])
	dst = binary.AppendUvarint(dst, uint64((bits+7)/8))
	var codes [256]uint16
	packCodes(lengths[:last+1], func(c int, code uint16) { codes[c] = code })
	var word uint64
	held := 0
	for _, c := range dst[at:mid] {
		n := int(lengths[c])
		word = word<<n | uint64(codes[c])
		held += n
		if held >= 32 {
			held -= 32
			dst = binary.BigEndian.AppendUint32(dst, uint32(word>>held))
		}
	}
	word <<= 32 - held
	for ; held > 0; held -= 8 {
		dst = append(dst, byte(word>>24))
		word <<= 8
	}
	if len(dst)-mid >= mid-at {
		return dst[:mid], false
	}
	n := copy(dst[at:], dst[mid:])
	return dst[:at+n], true
}

// packLengths finds the code length of every octet that occurs and answers the greatest of those octets.
// The lengths are optimal (Moffat and Katajainen, in place) and then cut to packBits.
func packLengths(freq *[256]uint32, lengths *[256]uint8) (last int) {
	var order [256]uint64
	n := 0
	for c, f := range freq {
		if f != 0 {
			order[n] = uint64(f)<<8 | uint64(c)
			n++
			last = c
		}
	}
	if n == 1 {
		lengths[last] = 1
		return last
	}
	slices.Sort(order[:n])
	var w [256]int
	for i, o := range order[:n] {
		w[i] = int(o >> 8)
	}
	codeLengths(w[:n])
	room := 0
	for i, l := range w[:n] {
		w[i] = min(l, packBits)
		room += 1 << (packBits - w[i])
	}
	// The rarest come first: they are made longer until all codes fit.
	for i := 0; room > 1<<packBits; i++ {
		for w[i] < packBits && room > 1<<packBits {
			w[i]++
			room -= 1 << (packBits - w[i])
		}
	}
	for i, o := range order[:n] {
		lengths[byte(o)] = uint8(w[i])
	}
	return last
}

// codeLengths turns at least two weights in ascending order into the lengths of an optimal prefix code.
func codeLengths(w []int) {
	n := len(w)
	w[0] += w[1]
	root, leaf := 0, 2
	for next := 1; next < n-1; next++ {
		for half := range 2 {
			from := &leaf
			if leaf >= n || (root < next && w[root] < w[leaf]) {
				from = &root
			}
			x := w[*from]
			if from == &root {
				w[root] = next
			}
			*from++
			if half == 0 {
				w[next] = x
			} else {
				w[next] += x
			}
		}
	}
	w[n-2] = 0
	for next := n - 3; next >= 0; next-- {
		w[next] = w[w[next]] + 1
	}
	free, used, depth := 1, 0, 0
	root = n - 2
	for next := n - 1; free > 0; depth++ {
		for root >= 0 && w[root] == depth {
			used++
			root--
		}
		for ; free > used; free-- {
			w[next] = depth
			next--
		}
		free, used = 2*used, 0
	}
}

// packCodes gives every octet with a length its code: shorter codes first, then by octet.
func packCodes(lengths []uint8, fn func(c int, code uint16)) (complete bool) {
	code := 0
	for n := uint8(1); n <= packBits; n++ {
		code <<= 1
		for c, l := range lengths {
			if l == n {
				if code >= 1<<n {
					return false
				}
				fn(c, uint16(code))
				code++
			}
		}
	}
	return true
}

// appendLengths writes the lengths as half octets; a 0 is followed by how many more zeros come.
func appendLengths(dst []byte, lengths []uint8) []byte {
	high := true
	put := func(half uint8) {
		if high {
			dst = append(dst, half<<4)
		} else {
			dst[len(dst)-1] |= half
		}
		high = !high
	}
	for i := 0; i < len(lengths); i++ {
		put(lengths[i])
		if lengths[i] == 0 {
			more := 0
			for more < 15 && lengths[i+1] == 0 {
				i++
				more++
			}
			put(uint8(more))
		}
	}
	return dst
}

// lengths reads what appendLengths wrote for last+1 octets.
func (o *octets) lengths(lengths []uint8) {
	var held byte
	high := true
	take := func() uint8 {
		if high {
			held = o.octet()
			high = false
			return held >> 4
		}
		high = true
		return held & 15
	}
	for i := 0; i < len(lengths); i++ {
		lengths[i] = take()
		if lengths[i] > packBits {
			o.fail()
		}
		if lengths[i] == 0 {
			i += int(take())
			if i >= len(lengths)-1 {
				o.fail()
			}
		}
		if o.bad {
			return
		}
	}
}

// unpack reads packed octets, into room if they fit.
func (o *octets) unpack(room []byte) []byte {
	n := o.uvarint()
	var lengths [256]uint8
	used := lengths[:int(o.octet())+1]
	o.lengths(used)
	bits := o.take(o.uvarint())
	// Every octet takes a bit at least.
	if o.bad || n > 8*uint64(len(bits)) {
		o.fail()
		return nil
	}
	// An entry is length and octet of the code that its index starts with; 0 is no code.
	var table [1 << packBits]uint16
	if !packCodes(used, func(c int, code uint16) {
		l := uint16(used[c])
		from := int(code) << (packBits - l)
		for i := range table[from : from+1<<(packBits-l)] {
			table[from+i] = l<<8 | uint16(c)
		}
	}) {
		o.fail()
		return nil
	}
	out := room
	if n > uint64(len(out)) {
		out = make([]byte, n)
	}
	out = out[:n]
	var word uint64
	held := 0
	for i := range out {
		for held < packBits {
			word <<= 8
			if len(bits) > 0 {
				word |= uint64(bits[0])
				bits = bits[1:]
			}
			held += 8
		}
		e := table[word>>(held-packBits)&(1<<packBits-1)]
		if e == 0 {
			o.fail()
			return nil
		}
		out[i] = byte(e)
		held -= int(e >> 8)
	}
	return out
}
