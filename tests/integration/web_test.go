package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// webServer is a private Apache on a free port of the loopback. /store/ and /plain/ run the programs of docs/examples, on a
// folder in the mount and on one of the file system, as www-data.
type webServer struct {
	w     *world
	url   string
	store string // the folder in the mount
	other string // the same one in another mount
	plain string
	dir   string // its configuration and logs
}

const webConfig = `ServerRoot "%[1]s"
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
User www-data
Group www-data
ScriptSock "%[1]s/cgid.sock"
ScriptAlias /store/ "%[1]s/cgi-bin/"
ScriptAlias /plain/ "%[1]s/cgi-bin/"
<Location /store/>
	SetEnv KV "%[3]s"
</Location>
<Location /plain/>
	SetEnv KV "%[4]s"
</Location>
`

func newWebServer(t *testing.T) *webServer {
	t.Helper()
	needTools(t, "apache2 ab perl runuser")
	w := newWorld(t)
	must(t, os.Chmod(filepath.Dir(w.dir), 0o755)) // www-data gets into it
	m, n := w.mount("allow_other", "locktimeout=2m"), w.mount("allow_other", "strict", "locktimeout=2m")
	s := &webServer{w: w, store: m + "/web", other: n + "/web", plain: w.dir + "/plain", dir: w.dir + "/apache"}
	w.sh(`set -e; mkdir $M/web $W/plain $W/apache; chown www-data: $M/web $W/plain`)
	must(t, os.CopyFS(s.dir+"/cgi-bin", os.DirFS("../../docs/examples")))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	s.url = fmt.Sprintf("http://127.0.0.1:%d", port)
	write(t, s.dir+"/conf", fmt.Sprintf(webConfig, s.dir, port, s.store, s.plain))
	s.start(t)
	return s
}

// start returns when the server answers.
func (s *webServer) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command("timeout", "-k", "5", "300", "apache2", "-f", s.dir+"/conf", "-DFOREGROUND") // outlives no test that crashed
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		log := read(t, s.dir+"/error.log")
		if bad := regexp.MustCompile(`(?m)^.*(:error|:crit|:alert|:emerg)\].*$`).FindAllString(log, 20); bad != nil {
			t.Errorf("Apache's log:\n%s", strings.Join(bad, "\n"))
		}
	})
	until(t, "Apache answers", func() bool {
		r, err := http.Get(s.url + "/nothing")
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
}

// load sends n requests, 20 at a time, and returns requests per second. Each must have succeeded.
func (s *webServer) load(t *testing.T, n int, path string, opts ...string) float64 {
	t.Helper()
	args := append([]string{"-q", "-l", "-s", "150", "-c", itoa(min(n, 20)), "-n", itoa(n)}, opts...)
	r := s.w.run("ab", append(args, s.url+path)...)
	value := func(name string) float64 {
		m := regexp.MustCompile(`(?m)^` + name + `:\s+([0-9.]+)`).FindStringSubmatch(r.out)
		if m == nil {
			return 0
		}
		v, _ := strconv.ParseFloat(m[1], 64)
		return v
	}
	if r.status != 0 || value("Complete requests") != float64(n) || value("Failed requests") != 0 || value("Non-2xx responses") != 0 || value("Write errors") != 0 {
		page, err := s.get(path)
		t.Errorf("ab %s: status %d\n%.900s%s\none more: %v: %s", path, r.status, r.out, r.err, err, page)
	}
	return value("Requests per second")
}

func (s *webServer) get(path string) (string, error) {
	c := http.Client{Timeout: limit / 2}
	r, err := c.Get(s.url + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", r.StatusCode, b)
	}
	return string(b), err
}

var entriesOf = regexp.MustCompile(`^<html><title>Guest book</title><!-- (\d+) entries --><ol>\n`)

// torn says what is wrong with a page of a guest book, of which at most most entries are shown; and how many there are.
func torn(page string, most int) (n int, err error) {
	m := entriesOf.FindStringSubmatch(page)
	if m == nil || !strings.HasSuffix(page, "</ol></html>\n") {
		return 0, fmt.Errorf("torn: %s", short(page))
	}
	n, _ = strconv.Atoi(m[1])
	if shown := strings.Count(page, "\n<li>"); shown != min(n, most) {
		return n, fmt.Errorf("torn: %d entries of %d: %s", shown, n, short(page))
	}
	return n, nil
}

// poll gets pages in all ways, until the function that it returns is called. Each is whole, and has no fewer entries than the one
// before. Apache's own way with files is not among them: it takes the length from a stat before it opens the file, so a page that
// is replaced between the two is cut, on any file system.
func (s *webServer) poll(t *testing.T, script, file string) (stop func()) {
	file1, file2 := s.store+"/"+file, s.other+"/"+file
	ways := []func() (string, error){
		func() (string, error) { b, err := os.ReadFile(file1); return string(b), err },
		func() (string, error) { b, err := os.ReadFile(file2); return string(b), err },
		func() (string, error) { return s.get("/store/" + script) },
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i, way := range ways {
		wg.Go(func() {
			seen, last := 0, 0
			for {
				page, err := way()
				if err == nil {
					var n int
					n, err = torn(page, 1<<30)
					if n < last {
						t.Errorf("way %d: %d entries after %d", i, n, last)
					}
					last = n
				}
				if err != nil {
					t.Errorf("way %d, after %d pages: %v", i, seen, err)
					return
				}
				seen++
				select {
				case <-done:
					t.Logf("%s, way %d: %d pages, all whole", file, i, seen)
					return
				case <-time.After(2 * time.Millisecond): // leave the processors to what is watched
				}
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// CGI programs in three languages, run by a web server as a user who is not the one who mounted, lose nothing and show no torn
// page: neither by each other, nor by the same programs on another mount.
func TestWebServer(t *testing.T) {
	s := newWebServer(t)
	n, others := 100, 10
	if long {
		n, others = 500, 20
	}
	if testing.Short() {
		n, others = 20, 2
	}
	const id = "0123456789abcdef0123456789abcdef"
	s.w.env = append(s.w.env, "OTHER="+s.other, "STORE="+s.store, "PLAIN="+s.plain, "TIMES="+itoa(others), "CGI="+s.dir+"/cgi-bin", "HTTP_COOKIE=session="+id, "REQUEST_METHOD=POST")
	s.w.sh(`runuser -u www-data -- sh -c 'for d in $STORE $PLAIN; do mkdir $d/sessions $d/sessions.pl $d/sessions.py; done'`)
	entry := s.dir + "/entry"
	write(t, entry, "entry=Good <day> & "+strings.Repeat("hello ", 20)+"\r\n")
	post, cookie := []string{"-p", entry, "-T", "text/plain"}, []string{"-C", "session=" + id}
	lines := func(t *testing.T, path string) int { return strings.Count(read(t, path), "\n") }
	number := func(t *testing.T, pattern, path string) int {
		m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
		if m == nil {
			t.Fatalf("%s: %s", path, short(read(t, path)))
		}
		v, _ := strconv.Atoi(m[1])
		return v
	}
	for _, c := range []struct {
		script string
		opts   []string
		page   string // rewritten with each request
		count  func(t *testing.T) int
	}{
		{"counter.cgi", nil, "", func(t *testing.T) int { return lines(t, s.store+"/hits") }},
		{"counter.pl", nil, "", func(t *testing.T) int { return number(t, `^(\d+)\n$`, s.store+"/count") }},
		{"counter.py", nil, "", func(t *testing.T) int { return number(t, `^(\d+)\n$`, s.store+"/count.py") }},
		{"guestbook.cgi", post, "page", func(t *testing.T) int { return number(t, `<!-- (\d+) entries`, s.store+"/page") }},
		{"guestbook.pl", post, "book.html", func(t *testing.T) int { return number(t, `<!-- (\d+) entries`, s.store+"/book.html") }},
		{"guestbook.py", post, "", func(t *testing.T) int { d, _ := os.ReadDir(s.store + "/entries.py"); return len(d) }},
		{"session.cgi", cookie, "", func(t *testing.T) int { return number(t, `^visits=(\d+)\nlast=`, s.store+"/sessions/"+id) }},
		{"session.pl", cookie, "", func(t *testing.T) int {
			return number(t, `^(\d+)\n$`, s.retrieved(t, id))
		}},
		{"session.py", cookie, "", func(t *testing.T) int { return number(t, `^{"visits": (\d+), "last": `, s.store+"/sessions.py/"+id) }},
	} {
		t.Run(c.script, func(t *testing.T) {
			stop := func() {}
			if c.page != "" {
				s.load(t, 1, "/store/"+c.script, c.opts...)
				stop = s.poll(t, c.script, c.page)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				r := s.w.in(t).try(`runuser -u www-data -- sh -c 'for i in $(seq $TIMES); do echo other | KV=$OTHER $CGI/` + c.script + ` || exit; done' | grep -c 'Content-Type'`)
				if want := itoa(others) + "\n"; r.out != want || r.err != "" {
					t.Errorf("through the other mount: status %d: %s%s", r.status, r.out, r.err)
				}
			})
			s.load(t, n, "/store/"+c.script, c.opts...)
			wg.Wait()
			stop()
			all := n + others
			if c.page != "" {
				all++
			}
			if got := c.count(t); got != all {
				t.Errorf("%d of %d requests have left their trace", got, all)
			}
		})
	}
	t.Run("new sessions", func(t *testing.T) {
		for script, dir := range map[string]string{"session.cgi": "sessions", "session.pl": "sessions.pl", "session.py": "sessions.py"} {
			s.load(t, n/5, "/store/"+script)
			d, err := os.ReadDir(s.store + "/" + dir)
			must(t, err)
			if len(d) != n/5+1 {
				t.Errorf("%s: %d sessions of %d", script, len(d), n/5+1)
			}
		}
	})
	t.Run("pages while they change", func(t *testing.T) {
		page, err := s.get("/store/guestbook.py")
		must(t, err)
		if _, err := torn(page, 50); err != nil || !strings.Contains(page, "Good &lt;day&gt; &amp; hello") {
			t.Errorf("guestbook.py: %v: %s", err, short(page))
		}
	})
	if text := read(t, filepath.Dir(s.store)+"/.storefs/errors"); text != "" {
		t.Errorf("publications that failed or were abandoned:\n%s", text)
	}
	if testing.Short() {
		return
	}
	t.Run("compared", func(t *testing.T) { s.compare(t, n/5, post, cookie) })
}

// retrieved writes the visits of a session of session.pl to a file and returns its name.
func (s *webServer) retrieved(t *testing.T, id string) string {
	out := s.w.in(t).sh(`perl -MStorable -e 'print retrieve(shift)->{visits}, "\n"' ` + s.store + "/sessions.pl/" + id)
	write(t, s.dir+"/visits", out+"\n")
	return s.dir + "/visits"
}

// compare runs each program on the store and on a plain folder in turns, and shows the ratio of requests per second. It
// asserts no time; docs/cgi.md tells how to measure it, with more rounds (STOREFS_LONG).
func (s *webServer) compare(t *testing.T, n int, post, cookie []string) {
	rounds := 1
	if long {
		rounds, n = 5, 40
	}
	var all []float64
	for _, c := range []struct {
		script string
		opts   []string
	}{{"counter.cgi", nil}, {"counter.pl", nil}, {"counter.py", nil}, {"guestbook.cgi", post}, {"guestbook.pl", post}, {"guestbook.py", post}, {"session.cgi", cookie}, {"session.pl", cookie}, {"session.py", cookie}} {
		var ratios, rates []float64
		for range rounds {
			must(t, s.clear())
			a := s.load(t, n, "/store/"+c.script, c.opts...)
			b := s.load(t, n, "/plain/"+c.script, c.opts...)
			rates, ratios = append(rates, a), append(ratios, a/b)
		}
		slices.Sort(rates)
		slices.Sort(ratios)
		all = append(all, ratios...)
		t.Logf("%-13s %6.0f requests/s on the store, %.2f of a plain folder", c.script, rates[len(rates)/2], ratios[len(ratios)/2])
	}
	slices.Sort(all)
	t.Logf("median of all: %.2f of a plain folder", all[len(all)/2])
}

// clear empties the guest books, so that both have as much to do in each round.
func (s *webServer) clear() error {
	for _, dir := range []string{s.store, s.plain} {
		for _, name := range []string{"hits", "entries", "page", "book.html", "entries.py"} {
			if err := os.RemoveAll(dir + "/" + name); err != nil {
				return err
			}
		}
	}
	return nil
}
