package perf

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// mosquittoConfig is the baseline of the fan-out run: nobody is checked, nothing is kept, and no bound of its own makes
// it drop what the box under test would deliver.
const mosquittoConfig = `listener %d 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 100000
max_inflight_messages 100
set_tcp_nodelay true
sys_interval 0
log_dest stderr
log_type error
`

// findMosquitto finds the program; named "" it is looked for in PATH and where Debian puts it.
func findMosquitto(named string) (string, error) {
	places := []string{"mosquitto", "/usr/sbin/mosquitto"}
	if named != "" {
		places = []string{named}
	}
	for _, place := range places {
		if found, err := exec.LookPath(place); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("perf: %s, the baseline, is not found: install it (on Debian: apt-get install mosquitto) or name it with --mosquitto", places[0])
}

// startMosquitto starts the baseline.
func startMosquitto(ctx context.Context, binary, name, scrap string) (*box, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(scrap, name+".conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, mosquittoConfig, ports[0]), 0o644); err != nil {
		return nil, fmt.Errorf("perf: configuration of mosquitto: %w", err)
	}
	log := filepath.Join(scrap, name+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("perf: server log: %w", err)
	}
	p := &process{cmd: exec.Command(binary, "-c", config), log: log, gone: make(chan struct{}), started: time.Now()}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("perf: start %s: %w", binary, err)
	}
	p.pid = p.cmd.Process.Pid
	go func() {
		defer close(p.gone)
		defer out.Close()
		p.fault = p.cmd.Wait()
	}()
	p.mqtt = fmt.Sprintf("127.0.0.1:%d", ports[0])
	up := await(ctx, 10*time.Second, func() bool {
		c, err := net.Dial("tcp", p.mqtt)
		if err == nil {
			_ = c.Close()
		}
		select {
		case <-p.gone:
			return true
		default:
			return err == nil
		}
	})
	select {
	case <-p.gone:
		return nil, fmt.Errorf("perf: mosquitto ended before it was ready (%w); its log: %s", p.how(), tail(log))
	default:
	}
	if !up {
		p.kill()
		return nil, fmt.Errorf("perf: mosquitto does not listen on %s; its log: %s", p.mqtt, tail(log))
	}
	return &box{name: "mosquitto", mqtt: p.mqtt, process: p, log: log, meter: procMeter{pid: p.pid}}, nil
}
