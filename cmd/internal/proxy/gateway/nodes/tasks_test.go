package nodes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/nodes"
)

// TestTaskOwners checks that all nodes know who has started a task, as long as it lives.
func TestTaskOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := clustertest.NewMemory()
		var owners [2]gateway.TaskOwners
		for i := range owners {
			node, err := cluster.Join(t.Context(), backend, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			if owners[i], err = nodes.NewTaskOwners(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
		task := gateway.OwnedTask{Principal: "i ann", Upstream: "up", ID: "1"}
		for range 2 { // the second time changes nothing
			if err := owners[0].Add(t.Context(), task, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		has := func(when string, task gateway.OwnedTask, want bool) {
			t.Helper()
			for i := range owners {
				if got, err := owners[i].Has(t.Context(), task); got != want || err != nil {
					t.Errorf("%s: node %d says %v, %v for %v", when, i, got, err, task)
				}
			}
		}
		has("at first", task, true)
		has("at first", gateway.OwnedTask{Principal: "i bob", Upstream: "up", ID: "1"}, false)
		has("at first", gateway.OwnedTask{Principal: "i ann", Upstream: "other", ID: "1"}, false)
		time.Sleep(time.Hour + time.Second)
		has("later", task, false)
	})
}
