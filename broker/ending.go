package broker

import "sync/atomic"

// endsLogged is how many ends of sessions a second are logged by name.
const endsLogged = 10

// endLog bounds what is logged of sessions that the box ends, whatever its peers do.
type endLog struct{ second, lines atomic.Int64 }

// allows says whether one more line may be written, and whether it is the last of its second.
func (l *endLog) allows(second int64) (ok, last bool) {
	if l.second.Swap(second) != second {
		l.lines.Store(0)
	}
	n := l.lines.Add(1)
	return n <= endsLogged, n == endsLogged
}

// noteEnd counts a session that the box ends and says in the log whose it is and why, as MQTT 3.1.1 clients cannot be told. A stop
// of the box ends all of them and is not news.
func (c *conn) noteEnd(code byte) {
	c.b.metrics.end(code)
	if code == codeShuttingDown || !c.live.Load() {
		return
	}
	ok, last := c.b.ends.allows(c.b.now().Unix())
	if !ok {
		return
	}
	c.b.log.Info("the box ends a session", "reason", endName(code), "client", c.principal.ID(), "mqtt_id", c.session.id,
		"remote", c.raw.RemoteAddr().String())
	if last {
		c.b.log.Info("more sessions may end within this second than are named; the metric sessions_ended_total has them all")
	}
}
