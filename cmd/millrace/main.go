package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], console{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ()})
	stop()
	os.Exit(code)
}

// console is what a command may touch of the world around it.
type console struct {
	in       io.Reader
	out, err io.Writer
	env      []string
}

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1 // refused or failed; the reason is on stderr
	exitUsage  = 2
)

// errTold is returned by a command that has already written why it failed.
var errTold = errors.New("told")

// run is the whole program but for the process around it. It returns the exit code.
func run(ctx context.Context, args []string, con console) (code int) {
	var c cli
	exited := false
	parser, err := kong.New(&c, kong.Name("millrace"), kong.Writers(con.out, con.err),
		kong.Exit(func(n int) { exited, code = true, n }), kong.Help(help), kong.WithHyphenPrefixedParameters(true),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(con, &c.globals))
	if err != nil {
		fmt.Fprintln(con.err, "millrace:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if exited {
		return code
	}
	if err != nil {
		fmt.Fprintf(con.err, "millrace: %v; see `millrace --help`\n", err)
		return exitUsage
	}
	if err := k.Run(); err != nil {
		var usage usageError
		var faults configFaults
		switch {
		case errors.As(err, &faults):
			for _, f := range faults {
				fmt.Fprintln(con.err, "millrace:", f)
			}
		case errors.As(err, &usage):
			fmt.Fprintf(con.err, "millrace: %v; see `millrace %s --help`\n", err, k.Command())
			return exitUsage
		case !errors.Is(err, errTold):
			fmt.Fprintln(con.err, "millrace:", err)
		}
		return exitFailed
	}
	return exitOK
}

// usageError is a fault in the words of the call, found after parsing.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }
