package trigger

// Put is the last sequence that was dealt with but for what is pending.
func Put(f *Follower) uint64 { return f.put.Load() }

// Marks is how many topics the gates are thought to remember.
func Marks(f *Follower) int64 { return f.marks.Load() }
