package backup

// Progress is how far a copy or a check has come.
type Progress struct {
	// Phase is snapshot, copy, check or finish.
	Phase string
	// Bytes of Total are done. Total is 0 while it is not known.
	Bytes, Total int64
	// Linked of Bytes were not written but shared with the previous backup.
	Linked int64
}

// Report takes one Progress after the other, from one goroutine, quickly; nil takes none.
type Report func(Progress)

func (r Report) tell(p Progress) {
	if r != nil {
		r(p)
	}
}
