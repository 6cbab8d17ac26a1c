package streamable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
	"mcpwire/streamable"
)

// A taskServer is a server whose only tool becomes a task, with a delayed response.
type taskServer struct {
	*endpoint
	store server.TaskStore
	hold  chan struct{}
}

// request returns a call of the tool.
func (s *taskServer) request(ctx context.Context) *http.Request {
	body, headers := callPost(1, "waits", "{}")
	body = strings.Replace(body, `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)
	r := httptest.NewRequestWithContext(ctx, "POST", s.url, strings.NewReader(body))
	r.RequestURI = ""
	headers["Content-Type"], headers["Accept"] = "application/json", "application/json, text/event-stream"
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	return r
}

// call sends the request and returns the response.
func (s *taskServer) call(ctx context.Context) (status int, body string) {
	resp, err := s.client.Do(s.request(ctx))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// A brokenWriter is a ResponseWriter whose client is gone.
type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

// TestTaskUnsent shows that a task is canceled if its client cannot learn of it, because the client
// disconnected before the response was written. A task whose response was written remains.
func TestTaskUnsent(t *testing.T) {
	for _, tt := range []struct {
		name string
		test func(s *taskServer, ctx context.Context, cancel func())
		want mcp.TaskStatus
	}{
		{"closed", func(s *taskServer, ctx context.Context, cancel func()) {
			go s.call(ctx)
			synctest.Wait()
			cancel()
			synctest.Wait()
			close(s.hold)
		}, mcp.TaskStatusCancelled},
		{"answered", func(s *taskServer, ctx context.Context, cancel func()) {
			close(s.hold)
			if status, body := s.call(ctx); status != 200 || !strings.Contains(body, `"resultType":"task"`) {
				s.t.Errorf("got %d, %s", status, body)
			}
			cancel()
			s.client.CloseIdleConnections()
		}, mcp.TaskStatusWorking},
		{"canceled by shutdown", func(s *taskServer, ctx context.Context, _ func()) {
			answered := make(chan string, 1)
			go func() {
				status, body := s.call(ctx)
				answered <- fmt.Sprint(status, body)
			}()
			synctest.Wait()
			soon, end := context.WithTimeout(context.Background(), time.Second)
			defer end()
			if err := s.h.Shutdown(soon); err == nil {
				s.t.Error("Shutdown has waited")
			}
			close(s.hold)
			if got := <-answered; !strings.Contains(got, "shutting down") {
				s.t.Errorf("got %s", got)
			}
		}, mcp.TaskStatusCancelled},
		{"write error", func(s *taskServer, ctx context.Context, _ func()) {
			close(s.hold)
			s.h.ServeHTTP(brokenWriter{httptest.NewRecorder()}, s.request(ctx))
		}, mcp.TaskStatusCancelled},
	} {
		for _, h2 := range []bool{false, true} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP/2 %t, stream %t", tt.name, h2, stream), func(t *testing.T) {
					s := &taskServer{store: server.NewTaskStore()}
					inBubbleOf(t, h2, nil, func(e *endpoint) http.Handler {
						s.endpoint, s.hold = e, make(chan struct{})
						e.srv = server.MustNew("test", "1", &server.Options{Tasks: &server.TaskOptions{Store: s.store}})
						def := mcp.Tool{Name: "waits", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}
						if err := server.AddToolWith(e.srv, def, func(ctx context.Context, _ struct{}) (string, error) { <-ctx.Done(); return "", ctx.Err() }); err != nil {
							t.Fatal(err)
						}
						e.srv.Use(func(next middleware.Handler) middleware.Handler {
							return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
								result, err := next(ctx, m)
								<-s.hold
								return result, err
							}
						})
						e.h = streamable.MustHandler(e.srv, &streamable.Options{StreamAlways: stream})
						return e.h
					}, func(*endpoint) {
						ctx, cancel := context.WithCancel(s.t.Context())
						defer cancel()
						tt.test(s, ctx, cancel)
						synctest.Wait()
						tasks, err := s.store.Tasks(s.t.Context(), "", "", 10)
						if err != nil || len(tasks) != 1 || tasks[0].Status != tt.want {
							t.Errorf("got %d tasks, %v: %+v", len(tasks), err, tasks)
						}
						if err := s.srv.Close(s.t.Context()); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}
