package auth

import "hash"

// CountHashes says how many hashes fn makes b compute, and over how many bytes. Nobody signs in meanwhile: the key is another.
func CountHashes(b *Book, fn func()) (hashes, size int) {
	count := &counting{Hash: newHasher(nil).idle.New().(*hashing).mac}
	before := b.hash
	b.hash = &hasher{}
	b.hash.idle.New = func() any { return &hashing{mac: count} }
	fn()
	b.hash = before
	return count.hashes, count.size
}

type counting struct {
	hash.Hash
	hashes, size int
}

func (c *counting) Write(p []byte) (int, error) { c.size += len(p); return c.Hash.Write(p) }
func (c *counting) Sum(p []byte) []byte         { c.hashes++; return c.Hash.Sum(p) }

// CompileGrants gives the policy of client id for grants as they would be stored in workspace main.
func CompileGrants(id string, grants ...Grant) (*Policy, *Fault) {
	normal, fault := NormalGrants(grants...)
	if fault != nil {
		return nil, fault
	}
	return compile(id, normal), nil
}

// NormalGrants normalises grants of a client in workspace main.
func NormalGrants(grants ...Grant) ([]Grant, *Fault) {
	return normalGrants(grants, place{namespace: "mHv1.0", workspace: "main"})
}
