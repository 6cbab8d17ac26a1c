package skills

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"slices"
	"strings"

	"mcpwire/client"
	"mcpwire/mcp"
)

const (
	// maxPages limits the pages of one list.
	maxPages = 10_000
	// maxChildren limits what is directly in a folder. A folder of skills may have more than a
	// skill has files.
	maxChildren = 10_000
)

// settings returns the server's settings of the extension, or an error if it has not declared it.
func settings(c *client.Client) (json.RawMessage, error) {
	text, ok := c.Profile().Capabilities.Extensions[extension]
	if !ok {
		return nil, fmt.Errorf("the server does not declare the extension %s", extension)
	}
	return text, nil
}

// pages calls a list method for each page.
func pages[T any](ctx context.Context, c *client.Client, method, uri string, fn func(page T) (next string, more bool, err error)) error {
	args := map[string]any{}
	if uri != "" {
		args["uri"] = uri
	}
	seen := map[string]bool{}
	for range maxPages {
		var page T
		if err := c.Call(ctx, method, args, &page, client.WithRetry(true)); err != nil {
			return err
		}
		next, more, err := fn(page)
		if err != nil || !more || next == "" {
			return err
		}
		if seen[next] {
			return fmt.Errorf("call %s: %w", method, client.ErrEndlessList)
		}
		seen[next] = true
		args["cursor"] = next
	}
	return fmt.Errorf("call %s: %w", method, client.ErrEndlessList)
}

// List lists the skills of a server, which may have more than it lists. It reads none of their
// files. An entry that the specification does not allow is an error, after which the list goes on;
// any other error ends it.
func List(ctx context.Context, c *client.Client) iter.Seq2[*Skill, error] {
	return func(yield func(*Skill, error) bool) {
		if _, err := settings(c); err != nil {
			yield(nil, err)
			return
		}
		type page struct {
			Skills     []entry `json:"skills"`
			NextCursor string  `json:"nextCursor"`
		}
		err := pages(ctx, c, listMethod, "", func(p page) (string, bool, error) {
			for _, e := range p.Skills {
				if !yield(e.skill()) {
					return "", false, nil
				}
			}
			return p.NextCursor, true, nil
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// Get returns the current entry of a skill, whether or not the server lists it. uri is that of its
// SKILL.md. If the server has no such skill, the error is one for which [client.IsServerError] is
// true.
func Get(ctx context.Context, c *client.Client, uri string) (*Skill, error) {
	if _, err := settings(c); err != nil {
		return nil, err
	}
	var result struct {
		Skill entry `json:"skill"`
	}
	if err := c.Call(ctx, getMethod, map[string]string{"uri": uri}, &result, client.WithRetry(true)); err != nil {
		return nil, err
	}
	if result.Skill.URI != uri {
		return nil, &client.ProtocolError{Method: getMethod, Reason: fmt.Sprintf("got the skill %.200q instead", result.Skill.URI)}
	}
	return result.Skill.skill()
}

// Read reads a file of the skill from the server that has listed it. name is the path in the folder
// of the skill, such as SKILL.md or references/FORMS.md. If the file is not one of s.Files, or is
// not what the entry says, the error wraps [ErrMismatch]. For SKILL.md that includes the
// frontmatter. Files of a skill without s.Files are not verified, except for the frontmatter.
//
// Read does not use the cache of the client. Read a file when it is needed, and not before: the
// specification forbids hosts to fetch all files of a server.
func (s *Skill) Read(ctx context.Context, c *client.Client, name string) ([]byte, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, fmt.Errorf("read file of skill %s: %q is not a path in its folder", s.Name, name)
	}
	uri := strings.TrimSuffix(s.URI, manifest) + (&url.URL{Path: name}).EscapedPath()
	var listed *File
	if s.Files != nil {
		i := slices.IndexFunc(s.Files, func(f File) bool { return f.Path == name })
		if i < 0 {
			return nil, fmt.Errorf("read %s of skill %s: %w: it is not listed there", name, s.Name, ErrMismatch)
		}
		listed = &s.Files[i]
		uri = listed.URI
	}
	result, err := c.ReadResource(ctx, uri, client.WithoutCache())
	if err != nil {
		return nil, err
	}
	data, err := bytesOf(result, uri)
	if err == nil {
		err = s.verify(name, listed, data)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of skill %s: %w", name, s.Name, err)
	}
	return data, nil
}

func bytesOf(result *mcp.ReadResourceResult, uri string) ([]byte, error) {
	for _, part := range result.Contents {
		if part.URI == uri {
			if part.Blob != nil {
				return part.Blob, nil
			}
			return []byte(part.Text), nil
		}
	}
	return nil, errors.New("the result does not have the file")
}

// verify compares a file with its entry, which may be nil.
func (s *Skill) verify(name string, listed *File, data []byte) error {
	if listed != nil {
		if int64(len(data)) != listed.Size {
			return fmt.Errorf("%w: it has %d bytes, not %d", ErrMismatch, len(data), listed.Size)
		}
		if digest := sha256.Sum256(data); "sha256:"+hex.EncodeToString(digest[:]) != listed.Digest {
			return fmt.Errorf("%w: its digest is another one", ErrMismatch)
		}
	}
	if name != manifest {
		return nil
	}
	frontmatter, err := frontmatterOf(data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if !equalJSON(frontmatter, s.Frontmatter) {
		return fmt.Errorf("%w: its frontmatter differs", ErrMismatch)
	}
	return nil
}

// ReadFolder lists what is directly in a folder of a skill. uri has no slash at its end; that of
// the skill's own folder is the URI of SKILL.md without that name. Folders have the MIME type
// inode/directory. It returns an error without a call if the server does not declare that it lists
// folders.
func ReadFolder(ctx context.Context, c *client.Client, uri string) ([]mcp.Resource, error) {
	text, err := settings(c)
	if err != nil {
		return nil, err
	}
	var declared struct {
		DirectoryRead bool `json:"directoryRead"`
	}
	if err := json.Unmarshal(text, &declared); err != nil || !declared.DirectoryRead {
		return nil, fmt.Errorf("the server does not declare directoryRead of the extension %s", extension)
	}
	var all []mcp.Resource
	type page struct {
		Resources  []mcp.Resource `json:"resources"`
		NextCursor string         `json:"nextCursor"`
	}
	err = pages(ctx, c, readDirMethod, uri, func(p page) (string, bool, error) {
		all = append(all, p.Resources...)
		if len(all) > maxChildren {
			return "", false, fmt.Errorf("call %s: %w", readDirMethod, client.ErrEndlessList)
		}
		return p.NextCursor, true, nil
	})
	return all, err
}
