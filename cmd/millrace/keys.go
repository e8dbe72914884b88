package main

// keyWhy is the one line that config.yaml carries for each key. A test holds config.yaml to this table and
// to the defaults of the parts, and this table to the keys that exist.
var keyWhy = []struct{ path, why string }{
	{"data", "everything the box writes lies below this folder"},
	{"log.level", "debug, info, warn or error; logs go to stderr"},
	{"log.format", "text for people, json for collectors"},
	{"broker.address", "plain MQTT over TCP; host:port, an empty host is every interface; empty: no such listener"},
	{"broker.tls.address", "MQTT over TLS 1.2 and 1.3; host:port such as :8883, empty = no such listener"},
	{"broker.tls.certFile", "PEM file with its certificate and those in between; read anew when it changes"},
	{"broker.tls.keyFile", "PEM file with the key of that certificate"},
	{"broker.tls.clientCAFile", "PEM file of authorities; set: every client needs a certificate of theirs, whose common name is its id"},
	{"broker.websocket", "MQTT over WebSocket at /mqtt on web.address"},
	{"broker.profile", "conformance: everybody is let in and may use every ordinary topic; for public test suites, on loopback only"},
	{"broker.limits.maxClients", "connections at once; one more is closed before its CONNECT is read"},
	{"broker.limits.receiveMaximum", "unacknowledged publishes a client may have open, announced to MQTT 5 clients"},
	{"broker.limits.maxPacketSize", "a larger packet ends its session (0x95); 64KiB before sign-in"},
	{"broker.limits.connectTimeout", "a socket that has not sent a whole CONNECT by then is closed"},
	{"broker.limits.maxSubscriberQueue", "messages waiting for one subscriber; full: the oldest is dropped and counted"},
	{"broker.limits.maxSubscriberQueueBytes", "the same bound in bytes of payload"},
	{"broker.limits.maxSessionExpiry", "how long a session outlives its connection at most; announced when a client asks for more"},
	{"broker.limits.connectRatePerSec", "connections a second each listener takes, burst of one second; above: 0x9F, or closed; 0 = any"},
	{"broker.limits.flappingLimit", "take-overs and protocol errors of one client identifier that ban it for a minute (0x8A); 0/min = never"},
	{"broker.limits.signInFailures", "failed sign-ins from one address as one client that ban the pair for a minute (0x8A); 0/min = never"},
	{"historian.pebble.syncWrites", "true: an acknowledgement means fsynced; false: a power cut may lose the last 100 ms; a kill -9 nothing, see historian.ring"},
	{"historian.pebble.commitWindow", "how long a group may fill before it is written; auto: up to 4ms with fsync, 1ms without"},
	{"historian.maxLogBytes", "how far the trigger follower may fall behind before its oldest entries are shed; no follower yet, nothing is shed"},
	{"historian.defaultRetention", "history kept for new topics: 1d 7d 14d 32d 90d 366d 1830d forever; what is older is hidden at once and deleted"},
	{"historian.minFreeSpace", "below it devices are not read and nothing is acknowledged until space is back"},
	{"historian.ring", "where commits without fsync outlive a kill: auto (/dev/shm where that is tmpfs), off, or a folder on tmpfs; not used with syncWrites"},
	{"uns.namespace", "first level of every stored topic"},
	{"uns.workspaces", "second level; the first listed is the default workspace"},
	{"uns.ingress.perClientRatePerSec", "values a second of one client, burst of one second; above: rate_limited; 0 = off"},
	{"uns.ingress.perWorkspaceRatePerSec", "the same for a whole workspace; 0 = off, since connections carry their own back-pressure"},
	{"uns.ingress.maxTopics", "topics of one workspace; above: topic_limit"},
	{"uns.ingress.maxValueSize", "largest payload of one value; above: payload_too_large"},
	{"uns.maxFuture", "device timestamps further ahead are refused: timestamp_future"},
	{"uns.lateWindow", "how late a device timestamp may be: retention (of its topic) or a duration"},
	{"uns.liveMirror.qos", "QoS at which stored values are published again, 0 or 1"},
	{"auth.token.ttl", "how long an access token of POST /oauth/token lives, at most 1d; its session ends with it"},
	{"auth.session.idle", "a person's session that makes no call for so long ends"},
	{"auth.session.maxAge", "a person's session ends after that in any case"},
	{"auth.audit.maxBytes", "size of the audit log; above, its oldest entries go"},
	{"auth.keyFile", "file of the master key that seals secrets at rest; empty: secrets/key in the data folder, which a backup holds, too"},
	{"web.address", "REST, status page and /metrics; host:port"},
	{"web.ui", "serve the pages at /"},
	{"web.metrics", "serve /metrics: open on loopback, elsewhere with a token"},
	{"web.tls.certFile", "PEM file; set: web.address speaks HTTPS and wss; read anew when it changes"},
	{"web.tls.keyFile", "PEM file with the key of that certificate"},
	{"backup.root", "absolute path of the folder in which callers over the network may make backups; empty: they may make none"},
}

// keyLater are keys of the reference configuration whose parts this version does not have. They are refused
// by name, so that nobody believes a setting that does nothing.
var keyLater = []struct{ prefix, with string }{
	{"pipeline.", "pipelines"},
}

func laterWith(path string) (string, bool) {
	for _, k := range keyLater {
		if path == k.prefix || (k.prefix[len(k.prefix)-1] == '.' && len(path) > len(k.prefix) && path[:len(k.prefix)] == k.prefix) {
			return k.with, true
		}
	}
	return "", false
}
