// Command release makes what is given to users: static binaries for amd64 and arm64 in an archive and in a Debian package
// each, their bills of materials (CycloneDX) and SHA256SUMS. Two runs on one commit with one Go give the same octets.
//
// Owns: what lies where in archive and package, version numbers of packages. Must not know: what the program does; it imports
// nothing of ours. Called by: `make release`. Calls: the go command and git.
package main
