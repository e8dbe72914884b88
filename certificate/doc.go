// Package certificate keeps the certificate of a TLS listener as the files on disk have it.
//
// It owns: reading a certificate with its key, and a list of authorities for client certificates; noticing that the
// files have changed; the TLS versions that are spoken. It must not know what is said over the connections.
//
// Called by: broker and web, which own a listener each, look in on Check from a goroutine they already have, and show
// Expires as a metric of their own. It starts no goroutine.
package certificate
