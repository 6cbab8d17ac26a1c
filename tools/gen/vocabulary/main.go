// Command vocabulary generates the vocabulary of cmd/internal/text/tokens from the package tiktoken
// 1.0.22 of npm, of which it reads encoders/o200k_base.json:
//
//	go run ./gen/vocabulary -in node_modules/tiktoken/encoders/o200k_base.json
//
// It refuses any other vocabulary than the one that the library tiktoken in Python checks for.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// The digests of the file of the package, and of the vocabulary in the form of tiktoken: a line for
// each token, with its bytes in base64, a space and its rank.
const (
	digestOfFile       = "df53e1a5f146e33a1b144d12ad9d685ee1b54dbc8b0950791ed45c933b119dc1"
	digestOfVocabulary = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
)

func main() {
	log.SetFlags(0)
	in := flag.String("in", "", "o200k_base.json of the package")
	out := flag.String("out", "../cmd/internal/text/tokens/o200k_base.zst", "file to write")
	flag.Parse()
	data, err := os.ReadFile(*in)
	if err != nil {
		log.Fatal(err)
	}
	if err := checkDigest(data, digestOfFile); err != nil {
		log.Fatalf("%s: %v", *in, err)
	}
	list, err := parse(data)
	if err != nil {
		log.Fatalf("%s: %v", *in, err)
	}
	packed, err := pack(list)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, packed, 0o644); err != nil {
		log.Fatal(err)
	}
}

func checkDigest(data []byte, want string) error {
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != want {
		return fmt.Errorf("SHA-256 is %s, want %s", got, want)
	}
	return nil
}

// A token and its rank.
type token struct {
	text []byte
	rank int
}

// parse reads the file of the package. Each line of its ranks has a "!", the first rank, and tokens
// with this rank and the following ones.
func parse(data []byte) ([]token, error) {
	var file struct {
		Ranks string `json:"bpe_ranks"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	var list []token
	var lines bytes.Buffer
	for line := range strings.Lines(file.Ranks) {
		words := strings.Fields(line)
		if len(words) < 2 {
			return nil, fmt.Errorf("line of ranks without a rank: %.60q", line)
		}
		rank, err := strconv.Atoi(words[1])
		if err != nil {
			return nil, fmt.Errorf("parse rank: %w", err)
		}
		for i, word := range words[2:] {
			text, err := base64.StdEncoding.DecodeString(word)
			if err != nil {
				return nil, fmt.Errorf("parse token: %w", err)
			}
			list = append(list, token{text, rank + i})
			fmt.Fprintf(&lines, "%s %d\n", word, rank+i)
		}
	}
	return list, checkDigest(lines.Bytes(), digestOfVocabulary)
}

// pack returns the compressed vocabulary; the function unpack of cmd/internal/text/tokens has the
// form.
func pack(list []token) ([]byte, error) {
	slices.SortFunc(list, func(a, b token) int { return bytes.Compare(a.text, b.text) })
	var planes [5][]byte
	var rest, before []byte
	for _, t := range list {
		shared := 0
		for shared < min(len(before), len(t.text)) && before[shared] == t.text[shared] {
			shared++
		}
		for i, v := range []int{shared, len(t.text) - shared, t.rank, t.rank >> 8, t.rank >> 16} {
			planes[i] = append(planes[i], byte(v))
		}
		rest, before = append(rest, t.text[shared:]...), t.text
	}
	n := len(list)
	data := slices.Concat([]byte{byte(n), byte(n >> 8), byte(n >> 16)}, slices.Concat(planes[:]...), rest)
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, err
	}
	return z.EncodeAll(data, nil), nil
}
