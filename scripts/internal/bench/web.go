package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// apache is the configuration of a server that runs a CGI program.
const apache = `ServerRoot "%[1]s"
ServerName 127.0.0.1
Listen 127.0.0.1:%[2]d
PidFile "%[1]s/pid"
DefaultRuntimeDir "%[1]s"
ErrorLog "%[1]s/error.log"
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule alias_module /usr/lib/apache2/modules/mod_alias.so
LoadModule env_module /usr/lib/apache2/modules/mod_env.so
LoadModule cgid_module /usr/lib/apache2/modules/mod_cgid.so
ScriptSock "%[1]s/cgid.sock"
ScriptAlias /page "%[3]s"
SetEnv SYSTEM "%[4]s"
SetEnv KV "%[5]s"
`

// web sends requests to a CGI program that shows a page and counts the visit.
func (w *world) web() []contest {
	return []contest{{"pages=1000", []entry{
		w.site(plainFile+", flock", "files", "plain"), w.site("GDBM_File", "gdbm", "plain"), w.site("SQLite", "sqlite", "plain"),
		w.site(throughRW, "storefs", "rw"),
	}}}
}

func (w *world) site(system, as, place string) entry {
	return entry{system, func(ctx context.Context) (map[string]float64, error) {
		kv, dir := w.in(place+"/site"), w.in("tmp/apache")
		for _, d := range []string{kv, dir} {
			remove, err := w.fresh(d)
			if err != nil {
				return nil, err
			}
			defer remove()
		}
		// Apache as root runs CGI programs as its default user, for whom the folders of a mount are closed: the world runs as one user.
		program := filepath.Join(w.root, "scripts/internal/peers/web.pl")
		env := append(os.Environ(), "SYSTEM="+as, "KV="+kv)
		if out, err := command(ctx, env, program, "make").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		n := 1000
		if w.quick {
			n = 300
		}
		rate, err := w.serve(ctx, dir, program, as, kv, n)
		if err != nil {
			return nil, err
		}
		out, err := command(ctx, env, program, "count").Output()
		if err != nil {
			return nil, err
		}
		if got := strings.TrimSpace(string(out)); got != fmt.Sprint(n) {
			return nil, fmt.Errorf("%s: %d visits, %s counted", system, n, got)
		}
		return map[string]float64{"per_s": rate}, nil
	}}
}

func command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	return cmd
}

// serve returns the requests per second of n, four at a time.
func (w *world) serve(ctx context.Context, dir, program, as, kv string, n int) (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	conf := filepath.Join(dir, "conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, apache, dir, port, program, as, kv), 0o644); err != nil {
		return 0, err
	}
	server := exec.CommandContext(ctx, "apache2", "-f", conf, "-DFOREGROUND")
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		return 0, err
	}
	defer func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
	}()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	for range 100 {
		if r, err := http.Get(url + "/nothing"); err == nil {
			r.Body.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	out, err := exec.CommandContext(ctx, "ab", "-q", "-l", "-c", "4", "-n", fmt.Sprint(n), url+"/page").CombinedOutput()
	value := func(name string) float64 {
		if m := regexp.MustCompile(`(?m)^` + name + `:\s+([0-9.]+)`).FindSubmatch(out); m != nil {
			v, _ := strconv.ParseFloat(string(m[1]), 64)
			return v
		}
		return 0
	}
	if err != nil || value("Complete requests") != float64(n) || value("Non-2xx responses") != 0 || value("Failed requests") != 0 {
		log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
		return 0, fmt.Errorf("ab: %v\n%s\n%s", err, out, log)
	}
	return value("Requests per second"), nil
}
