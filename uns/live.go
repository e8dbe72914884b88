package uns

// Live takes a stored value to whoever is subscribed. Called in the publisher's goroutine; never blocks.
type Live interface {
	// Prepare is called before the samples of b are stored, when every message has its verdict and those to be stored
	// their sample. It may add rows to b.Rows, which are committed with the samples, and keep what it needs for Publish
	// in b.Owed. When the commit fails, Publish is not called.
	Prepare(b *Batch)
	// Publish gets message i of b, whose sample is durable. The sample is only valid during the call.
	Publish(b *Batch, i int)
}

// AppendLive appends the live payload of contract 3: {"value":…,"timestamp":"…","quality":"good"}, the value's digits
// as the device sent them.
func AppendLive(dst []byte, s *Sample) []byte {
	dst = append(dst, `{"value":`...)
	dst = s.Value.AppendJSON(dst)
	dst = append(dst, `,"timestamp":"`...)
	dst = AppendTime(dst, s.Time, s.Scale)
	dst = append(dst, `","quality":"`...)
	dst = append(dst, s.Quality.String()...)
	return append(dst, `"}`...)
}
