package export

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/messages"
	"mcpwire/internal/rpc/traffic"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
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

// linkUpperPDU is the link type for payloads of upper layers behind tags that describe them
// (https://www.tcpdump.org/linktypes.html).
const linkUpperPDU = 252

// Tags of an upper PDU (https://www.tcpdump.org/linktypes/LINKTYPE_WIRESHARK_UPPER_PDU.html).
const (
	tagEnd       = 0
	tagDissector = 12
	tagProtocol  = 33 // text of Wireshark's column
	tagInfo      = 36 // text of Wireshark's column
)

const (
	maxPacket  = 16 << 20 // bytes of a payload; Wireshark rejects more than 256 MiB
	maxPCAPCol = 256      // bytes of a column's text
	maxComment = 4 << 10  // bytes of a comment; options are limited to 64 KiB
)

// PCAPNG writes a capture as pcapng, which Wireshark and tshark open without a plugin. Each
// message, line and HTTP head is a packet, whose comment has the number of the event and of the
// request that it answers. Each capture is an interface.
func PCAPNG(w io.Writer, events Events, opts *Options) (Omitted, error) {
	o := opts.withDefaults()
	p := &pcapngWriter{w: bufio.NewWriterSize(w, 64<<10), ifaces: map[string]uint32{}, source: messages.New(0), opts: o}
	p.writeSection()
	for e, err := range events {
		if err != nil {
			return p.omitted, err
		}
		p.writeEvent(e)
		if p.err != nil {
			return p.omitted, p.err
		}
	}
	return p.omitted, p.w.Flush()
}

type pcapngWriter struct {
	w       *bufio.Writer
	opts    Options
	ifaces  map[string]uint32
	source  *messages.Source
	buf     []byte
	omitted Omitted
	err     error
}

func (pw *pcapngWriter) writeSection() {
	b := binary.LittleEndian.AppendUint32(nil, byteOrderMagic)
	b = binary.LittleEndian.AppendUint16(b, 1) // version
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint64(b, ^uint64(0)) // length unknown
	b = appendOption(b, optUserApp, []byte(strings.TrimSpace(pw.opts.Tool+" "+pw.opts.Version)))
	pw.writeBlock(blockSection, appendOption(b, 0, nil))
}

func (pw *pcapngWriter) iface(id, name string) uint32 {
	if n, ok := pw.ifaces[id]; ok {
		return n
	}
	if name == "" {
		name = "mcp"
	}
	b := binary.LittleEndian.AppendUint16(nil, linkUpperPDU)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, 0) // no limit
	b = appendOption(b, optName, []byte(clip.String(printable.Line(name), maxPCAPCol)))
	b = appendOption(b, optTSResol, []byte{nanoseconds})
	pw.writeBlock(blockInterface, appendOption(b, 0, nil))
	n := uint32(len(pw.ifaces))
	pw.ifaces[id] = n
	return n
}

// writeEvent writes the packet of an event, if it has one.
func (pw *pcapngWriter) writeEvent(e *capture.Event) {
	if e.Kind == capture.KindHead {
		pw.iface(e.Capture, e.Head.Name)
		return
	}
	frame := pw.source.Add(e)
	data, dissector := packet(e)
	if data == nil {
		// An end without a reason is not counted.
		if e.Kind != capture.KindTail && (e.Kind != capture.KindEnd || len(e.Data) > 0) {
			pw.omitted.Events++
		}
		return
	}
	if len(data) > maxPacket {
		data = data[:maxPacket]
		pw.omitted.Cut++
	}
	info := infoColumn(e, frame)
	pdu := appendTag(pw.buf[:0], tagDissector, dissector)
	pdu = appendTag(pdu, tagProtocol, "MCP")
	pdu = appendTag(pdu, tagInfo, info)
	pdu = appendTag(pdu, tagEnd, "")
	pdu = append(pdu, data...)
	pw.buf = pdu

	iface := pw.iface(e.Capture, "")
	at := uint64(e.At.UnixNano())
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, len(pdu)+256), iface)
	b = binary.LittleEndian.AppendUint32(b, uint32(at>>32))
	b = binary.LittleEndian.AppendUint32(b, uint32(at))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(pdu)))
	b = binary.LittleEndian.AppendUint32(b, originalLength(len(pdu), e.Len-int64(len(data))))
	b = append(b, pdu...)
	b = pad(b, len(pdu))
	b = appendOption(b, optComment, []byte(packetComment(e, frame)))
	switch e.Dir {
	case capture.ToServer:
		b = appendOption(b, optFlags, binary.LittleEndian.AppendUint32(nil, outbound))
	case capture.ToClient:
		b = appendOption(b, optFlags, binary.LittleEndian.AppendUint32(nil, inbound))
	}
	pw.writeBlock(blockPacket, appendOption(b, 0, nil))
}

// originalLength returns the original length of a truncated packet. It limits values from the
// capture, which may be wrong.
func originalLength(n int, more int64) uint32 {
	return uint32(min(int64(n)+min(max(0, more), math.MaxInt32), math.MaxInt32))
}

// packet returns the bytes of an event and their dissector, or nil if the event cannot be a
// packet.
func packet(e *capture.Event) (data []byte, dissector string) {
	const text = "data-text-lines"
	switch e.Kind {
	case capture.KindMessage:
		return e.Data, "json"
	case capture.KindInvalid, capture.KindStderr, capture.KindBody, capture.KindNote:
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

// infoColumn returns the text of a packet in Wireshark's list.
func infoColumn(e *capture.Event, frame *traffic.Frame) string {
	return clip.String(printable.Line(directionArrow(e.Dir)+describe(e, frame)), maxPCAPCol)
}

func directionArrow(d capture.Dir) string {
	switch d {
	case capture.ToServer:
		return "→ "
	case capture.ToClient:
		return "← "
	}
	return ""
}

func describe(e *capture.Event, frame *traffic.Frame) string {
	switch e.Kind {
	case capture.KindRequest:
		return e.Request.Method + " " + e.Request.URL
	case capture.KindResponse:
		return fmt.Sprint("HTTP ", e.Response.Status)
	case capture.KindSSE:
		return "stream event"
	case capture.KindStderr:
		return "stderr"
	case capture.KindInvalid:
		return "not a message"
	case capture.KindMessage:
	default:
		return string(e.Kind)
	}
	switch {
	case frame == nil || len(frame.Messages) == 0:
		return "not a message"
	case len(frame.Messages) > 1:
		return fmt.Sprint("batch of ", len(frame.Messages))
	}
	return messageText(&frame.Messages[0])
}

func messageText(p *traffic.Message) string {
	switch p.Kind {
	case jsonrpc.KindRequest:
		return "request " + clip.String(string(p.ID), 64) + " " + string(p.Method)
	case jsonrpc.KindNotification:
		return "notification " + string(p.Method)
	case jsonrpc.KindError:
		return strings.TrimSpace("error " + clip.String(string(p.ID), 64) + " " + methodOf(p))
	}
	return strings.TrimSpace("response " + clip.String(string(p.ID), 64) + " " + methodOf(p))
}

func methodOf(p *traffic.Message) string {
	if p.Call == nil {
		return ""
	}
	return p.Call.Method
}

func packetComment(e *capture.Event, frame *traffic.Frame) string {
	// Wireshark before 4.2 does not know the tag for the column.
	text := fmt.Sprintf("event #%d: %s", e.N, infoColumn(e, frame))
	if e.Session != 0 {
		text += fmt.Sprintf(", session %d", e.Session)
	}
	if e.Exchange != 0 {
		text += fmt.Sprintf(", HTTP exchange %d", e.Exchange)
	}
	if frame != nil {
		for i := range frame.Messages {
			if len(text) > maxComment {
				break
			}
			p := &frame.Messages[i]
			if p.Call != nil && p.Kind != jsonrpc.KindRequest && p.Call.N != 0 {
				text += fmt.Sprintf(", answers #%d after %v", p.Call.N, p.Call.Latency)
			}
		}
	}
	if n := len(e.Redacted) + e.RedactedMore; n > 0 {
		text += fmt.Sprintf(", redacted: %d", n)
	}
	return clip.String(text, maxComment)
}

func (pw *pcapngWriter) writeBlock(kind uint32, body []byte) {
	length := uint32(len(body) + 12)
	head := binary.LittleEndian.AppendUint32(nil, kind)
	head = binary.LittleEndian.AppendUint32(head, length)
	for _, b := range [][]byte{head, body, head[4:]} {
		if _, err := pw.w.Write(b); err != nil && pw.err == nil {
			pw.err = err
		}
	}
}

// appendOption appends an option. Code 0 ends the options.
func appendOption(b []byte, code uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	return pad(append(b, value...), len(value))
}

// pad appends zeros so that n bytes become a multiple of four.
func pad(b []byte, n int) []byte { return append(b, make([]byte, -n&3)...) }

func appendTag(b []byte, tag uint16, value string) []byte {
	b = binary.BigEndian.AppendUint16(b, tag)
	n := (len(value) + 3) &^ 3
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	return pad(append(b, value...), len(value))
}
