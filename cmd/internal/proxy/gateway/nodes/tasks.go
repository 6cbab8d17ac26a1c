package nodes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"mcpwire/cluster"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/mcp"
	"mcpwire/server"
)

// taskOwners are gateway.TaskOwners that all nodes share. For each task, there is an ended task of
// the principal in the task store of the cluster, which removes it in time.
type taskOwners struct{ store server.TaskStore }

// NewTaskOwners returns the owners of tasks that the gateways of all nodes share.
func NewTaskOwners(ctx context.Context, node *cluster.Node) (gateway.TaskOwners, error) {
	store, err := node.TaskStore(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("owners of tasks: %w", err)
	}
	return &taskOwners{store}, nil
}

// idOf returns the id of the task in the store.
func idOf(t gateway.OwnedTask) string {
	sum := sha256.Sum256([]byte(nameOf(t.Principal, t.Upstream, t.ID)))
	return hex.EncodeToString(sum[:16])
}

// Add implements gateway.TaskOwners.
func (o *taskOwners) Add(ctx context.Context, t gateway.OwnedTask, life time.Duration) error {
	now := time.Now()
	err := o.store.Create(ctx, &server.Task{
		ID: idOf(t), Owner: t.Principal, Core: true, Method: mcp.MethodToolsCall, Name: t.Upstream,
		Status: mcp.TaskStatusCompleted, Created: now, Updated: now, TTL: life,
	})
	if errors.Is(err, cluster.ErrConflict) {
		return nil // it was added before
	}
	return err
}

// Has implements gateway.TaskOwners.
func (o *taskOwners) Has(ctx context.Context, t gateway.OwnedTask) (bool, error) {
	_, err := o.store.Task(ctx, idOf(t))
	if errors.Is(err, server.ErrTaskNotFound) {
		return false, nil
	}
	return err == nil, err
}
