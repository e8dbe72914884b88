package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	r := release{}
	flag.StringVar(&r.source, "source", ".", "folder of the sources, a git clone")
	flag.StringVar(&r.out, "out", "dist", "folder for the results; what a release made there before is replaced")
	flag.StringVar(&r.version, "version", "", "version; empty: what git describe says")
	flag.StringVar(&r.only, "arch", "", "amd64 or arm64; empty: both")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "release: no arguments, only flags; see -h")
		os.Exit(2)
	}
	if err := r.make(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
