// Follows a handoffd log over HTTP with the packages that Go's own checksum database is built on
// (golang.org/x/mod/sumdb/note and tlog): the note's signature, every tile against the signed root, the
// records of an entry bundle against their leaves, and that the log of a moment ago is the beginning of the
// log of now.
//
// Usage: tlog PREFIX VKEY [COMMAND...]     COMMAND is run between the two looks, to make the log grow.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

var prefix string

func get(path string) []byte {
	answer, err := http.Get(prefix + "/" + path)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		log.Fatalf("GET %s: %s %v", path, answer.Status, err)
	}
	return body
}

// A checkpoint that the key signed. Its text is C2SP's and not Go's older form, so it is read here.
func head(key note.Verifier) tlog.Tree {
	opened, err := note.Open(get("checkpoint"), note.VerifierList(key))
	if err != nil {
		log.Fatal(err)
	}
	lines := strings.Split(opened.Text, "\n")
	if lines[0] != key.Name() {
		log.Fatalf("the checkpoint is of %q", lines[0])
	}
	var tree tlog.Tree
	if _, err := fmt.Sscanf(lines[1], "%d", &tree.N); err != nil {
		log.Fatal(err)
	}
	if tree.Hash, err = tlog.ParseHash(lines[2]); err != nil {
		log.Fatal(err)
	}
	return tree
}

type tiles struct{}

func (tiles) Height() int { return 8 }

func (tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var data [][]byte
	for _, tile := range wanted {
		// Go's paths name the tile's height; C2SP's do not, for it is always 8.
		data = append(data, get(strings.Replace(tile.Path(), "tile/8/", "tile/", 1)))
	}
	return data, nil
}

func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Every record of the first bundle is the leaf that the signed root proves.
func records(tree tlog.Tree) int64 {
	reader := tlog.TileHashReader(tree, tiles{})
	count, path := tree.N, "tile/entries/000"
	if count >= 256 {
		count = 256
	} else {
		path = fmt.Sprintf("%s.p/%d", path, count)
	}
	bundle := get(path)
	for n := int64(0); n < count; n++ {
		length := int(bundle[0])<<8 | int(bundle[1])
		record := bundle[2 : 2+length]
		bundle = bundle[2+length:]
		proof := must(tlog.ProveRecord(tree.N, n, reader))
		check(tlog.CheckRecord(proof, tree.N, tree.Hash, n, tlog.RecordHash(record)))
	}
	if len(bundle) != 0 {
		log.Fatal("the bundle holds more than its records")
	}
	return count
}

func main() {
	log.SetFlags(0)
	prefix = os.Args[1]
	key := must(note.NewVerifier(os.Args[2]))
	old := head(key)
	if len(os.Args) > 3 {
		grow := exec.Command(os.Args[3], os.Args[4:]...)
		grow.Stdout, grow.Stderr = os.Stderr, os.Stderr
		check(grow.Run())
	}
	tree := head(key)
	proof := must(tlog.ProveTree(tree.N, old.N, tlog.TileHashReader(tree, tiles{})))
	check(tlog.CheckTree(proof, tree.N, tree.Hash, old.N, old.Hash))
	count := records(tree)
	fmt.Printf("%d records grew to %d, consistently; %d of them proven by their bytes\n", old.N, tree.N, count)
}
