package export

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/printable"
	"mcpwire/jsonrpc"
)

// Blocks and options of pcapng (https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-05.html).
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockPacket    = 6

	byteOrderMagic = 0x1A2B3C4D

	optComment = 1
	optUserApp = 4 // of a section
	optName    = 2 // of an interface
	optTSResol = 9 // of an interface
	optFlags   = 2 // of a packet

	nanoseconds = 9

	inbound  = 1 // flags of a packet
	outbound = 2
)

// linkUpperPDU is the link type of payloads of upper layers behind tags that say what they are (https://www.tcpdump.org/linktypes.html).
const linkUpperPDU = 252

// Tags of an upper PDU (https://www.tcpdump.org/linktypes/LINKTYPE_WIRESHARK_UPPER_PDU.html).
const (
	tagEnd       = 0
	tagDissector = 12
	tagProtocol  = 33 // text of Wireshark's column
	tagInfo      = 36 // text of Wireshark's column
)

const (
	maxPacket  = 16 << 20 // bytes of a payload; Wireshark refuses more than 256 MiB
	maxPCAPCol = 256      // bytes of a column's text
	maxComment = 4 << 10  // bytes of a comment; an option has 64 KiB at most
)

// PCAPNG writes a capture as pcapng, which Wireshark and tshark open without a plugin: each message, line and HTTP head is a packet, with the number of its event and
// that of the request that it answers in a comment. Each capture is an interface.
func PCAPNG(w io.Writer, events Events, opts *Options) (Left, error) {
	o := opts.withDefaults()
	p := &pcapng{w: bufio.NewWriterSize(w, 64<<10), ifaces: map[string]uint32{}, pairer: capture.NewPairer(nil), opts: o}
	p.section()
	for e, err := range events {
		if err != nil {
			return p.left, err
		}
		p.event(e)
		if p.err != nil {
			return p.left, p.err
		}
	}
	return p.left, p.w.Flush()
}

type pcapng struct {
	w      *bufio.Writer
	opts   Options
	ifaces map[string]uint32
	pairer *capture.Pairer
	buf    []byte
	left   Left
	err    error
}

func (p *pcapng) section() {
	b := binary.LittleEndian.AppendUint32(nil, byteOrderMagic)
	b = binary.LittleEndian.AppendUint16(b, 1) // version
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint64(b, ^uint64(0)) // length unknown
	b = appendOption(b, optUserApp, []byte(strings.TrimSpace(p.opts.Tool+" "+p.opts.Version)))
	p.block(blockSection, appendOption(b, 0, nil))
}

func (p *pcapng) iface(id, name string) uint32 {
	if n, ok := p.ifaces[id]; ok {
		return n
	}
	if name == "" {
		name = "mcp"
	}
	b := binary.LittleEndian.AppendUint16(nil, linkUpperPDU)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, 0) // no limit
	b = appendOption(b, optName, []byte(clip(printable.Line(name), maxPCAPCol)))
	b = appendOption(b, optTSResol, []byte{nanoseconds})
	p.block(blockInterface, appendOption(b, 0, nil))
	n := uint32(len(p.ifaces))
	p.ifaces[id] = n
	return n
}

// event writes the packet of an event, if it is one.
func (p *pcapng) event(e *capture.Event) {
	if e.Kind == capture.KindHead {
		p.iface(e.Capture, e.Head.Name)
		return
	}
	parts := p.pairer.Add(e)
	data, dissector := packet(e)
	if data == nil {
		if e.Kind != capture.KindTail && (e.Kind != capture.KindEnd || len(e.Data) > 0) { // that it is over is nothing to be seen
			p.left.Events++
		}
		return
	}
	if len(data) > maxPacket {
		data = data[:maxPacket]
		p.left.Cut++
	}
	info := column(e, parts)
	pdu := appendTag(p.buf[:0], tagDissector, dissector)
	pdu = appendTag(pdu, tagProtocol, "MCP")
	pdu = appendTag(pdu, tagInfo, info)
	pdu = appendTag(pdu, tagEnd, "")
	pdu = append(pdu, data...)
	p.buf = pdu

	iface := p.iface(e.Capture, "")
	at := uint64(e.At.UnixNano())
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, len(pdu)+256), iface)
	b = binary.LittleEndian.AppendUint32(b, uint32(at>>32))
	b = binary.LittleEndian.AppendUint32(b, uint32(at))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(pdu)))
	b = binary.LittleEndian.AppendUint32(b, originalLength(len(pdu), e.Len-int64(len(data))))
	b = append(b, pdu...)
	b = pad(b, len(pdu))
	b = appendOption(b, optComment, []byte(comment(e, parts)))
	switch e.Dir {
	case capture.ToServer:
		b = appendOption(b, optFlags, binary.LittleEndian.AppendUint32(nil, outbound))
	case capture.ToClient:
		b = appendOption(b, optFlags, binary.LittleEndian.AppendUint32(nil, inbound))
	}
	p.block(blockPacket, appendOption(b, 0, nil))
}

// originalLength is how long a packet was of which more is missing. A capture can say anything.
func originalLength(n int, more int64) uint32 {
	return uint32(min(int64(n)+min(max(0, more), math.MaxInt32), math.MaxInt32))
}

// packet returns the bytes of an event, and the dissector for them; nil if it is none that has a place among packets.
func packet(e *capture.Event) (data []byte, dissector string) {
	const text = "data-text-lines"
	switch e.Kind {
	case capture.KindMessage:
		return e.Data, "json"
	case capture.KindBad, capture.KindStderr, capture.KindBody, capture.KindNote:
		return e.Data, text
	case capture.KindRequest:
		r := e.Request
		return appendHead(nil, r.Method+" "+r.URL+" "+r.Proto, r.Headers), text
	case capture.KindResponse:
		r := e.Response
		return appendHead(nil, fmt.Sprint(r.Proto, " ", r.Status), r.Headers), text
	case capture.KindSSE:
		return appendSSE(nil, e.SSE, e.Data), text
	}
	return nil, ""
}

func appendHead(b []byte, first string, headers []capture.Header) []byte {
	b = append(append(b, first...), "\r\n"...)
	for _, h := range headers {
		b = append(b, h.Name+": "+h.Value+"\r\n"...)
	}
	return append(b, "\r\n"...)
}

// column is what Wireshark shows of a packet in its list.
func column(e *capture.Event, parts []capture.Part) string {
	return clip(printable.Line(arrow(e.Dir)+what(e, parts)), maxPCAPCol)
}

func arrow(d capture.Dir) string {
	switch d {
	case capture.ToServer:
		return "→ "
	case capture.ToClient:
		return "← "
	}
	return ""
}

// what says in a few words what an event is.
func what(e *capture.Event, parts []capture.Part) string {
	switch e.Kind {
	case capture.KindRequest:
		return e.Request.Method + " " + e.Request.URL
	case capture.KindResponse:
		return fmt.Sprint("HTTP ", e.Response.Status)
	case capture.KindSSE:
		return "event of the stream"
	case capture.KindStderr:
		return "stderr"
	case capture.KindBad:
		return "no message"
	case capture.KindMessage:
	default:
		return string(e.Kind)
	}
	if len(parts) != 1 {
		if len(parts) == 0 {
			return "no message"
		}
		return fmt.Sprint("batch of ", len(parts))
	}
	return messageText(&parts[0])
}

func messageText(p *capture.Part) string {
	switch p.Kind {
	case jsonrpc.KindRequest:
		return "request " + clip(string(p.ID), 64) + " " + p.Method
	case jsonrpc.KindNotification:
		return "notification " + p.Method
	case jsonrpc.KindError:
		return strings.TrimSpace("error " + clip(string(p.ID), 64) + " " + methodOf(p))
	}
	return strings.TrimSpace("response " + clip(string(p.ID), 64) + " " + methodOf(p))
}

func methodOf(p *capture.Part) string {
	if p.Call == nil {
		return ""
	}
	return p.Call.Method
}

// comment is what belongs to a packet besides its bytes.
func comment(e *capture.Event, parts []capture.Part) string {
	text := fmt.Sprintf("event #%d: %s", e.N, column(e, parts)) // versions of Wireshark before 4.2 do not know the tag for the column
	if e.Session != 0 {
		text += fmt.Sprintf(", session %d", e.Session)
	}
	if e.Exchange != 0 {
		text += fmt.Sprintf(", HTTP exchange %d", e.Exchange)
	}
	for i := range parts {
		if len(text) > maxComment {
			break
		}
		p := &parts[i]
		if p.Call != nil && p.Kind != jsonrpc.KindRequest && p.Call.N != 0 {
			text += fmt.Sprintf(", answers #%d after %v", p.Call.N, p.Call.Latency)
		}
	}
	if n := len(e.Redacted) + e.RedactedMore; n > 0 {
		text += fmt.Sprintf(", hidden: %d", n)
	}
	return clip(text, maxComment)
}

// block writes a block.
func (p *pcapng) block(kind uint32, body []byte) {
	length := uint32(len(body) + 12)
	head := binary.LittleEndian.AppendUint32(nil, kind)
	head = binary.LittleEndian.AppendUint32(head, length)
	for _, b := range [][]byte{head, body, head[4:]} {
		if _, err := p.w.Write(b); err != nil && p.err == nil {
			p.err = err
		}
	}
}

// appendOption appends an option; code 0 ends the options.
func appendOption(b []byte, code uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	return pad(append(b, value...), len(value))
}

// pad appends zeros so that n bytes become a multiple of four.
func pad(b []byte, n int) []byte { return append(b, make([]byte, -n&3)...) }

// appendTag appends a tag of an upper PDU.
func appendTag(b []byte, tag uint16, value string) []byte {
	b = binary.BigEndian.AppendUint16(b, tag)
	n := (len(value) + 3) &^ 3
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	return pad(append(b, value...), len(value))
}

// clip returns the beginning of a text, with "…" if there was more.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len("…")], "") + "…"
}
