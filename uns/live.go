package uns

// Live takes a stored value to whoever is subscribed. Called after the commit, in the publisher's goroutine; never blocks.
type Live interface {
	// Publish gets a sample that is durable. s and s.Value.Raw are only valid during the call.
	Publish(t *Topic, s *Sample)
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
