// Makes PNGs smaller with a palette. Screenshots of text have a few hundred colors, so the loss is
// not visible.
import { deflateSync, inflateSync, crc32 } from 'node:zlib'

const maxColors = 256 // of a palette

// compress returns a PNG of the browser as a PNG with a palette.
export function compress(png) {
  const image = decode(png)
  const palette = paletteOf(image.pixels)
  const index = new Map(palette.map((c, i) => [c, i]))
  const bits = palette.length <= 16 ? 4 : 8
  const stride = Math.ceil((image.width * bits) / 8)
  const rows = Buffer.alloc(image.height * (stride + 1)) // each begins with the filter type 0, none
  for (let y = 0; y < image.height; y++) {
    for (let x = 0; x < image.width; x++) {
      const c = image.pixels[y * image.width + x]
      if (!index.has(c)) index.set(c, nearest(palette, c))
      const at = y * (stride + 1) + 1
      if (bits === 8) rows[at + x] = index.get(c)
      else rows[at + (x >> 1)] |= index.get(c) << (x & 1 ? 0 : 4)
    }
  }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(image.width, 0)
  head.writeUInt32BE(image.height, 4)
  head.set([bits, 3, 0, 0, 0], 8)
  const colors = Buffer.from(palette.flatMap((c) => [c >> 16, (c >> 8) & 255, c & 255]))
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', head), chunk('PLTE', colors), chunk('IDAT', deflateSync(rows, { level: 9, memLevel: 9 })), chunk('IEND', Buffer.alloc(0))])
}

function chunk(type, data) {
  const out = Buffer.alloc(data.length + 12)
  out.writeUInt32BE(data.length, 0)
  out.write(type, 4, 'latin1')
  data.copy(out, 8)
  out.writeUInt32BE(crc32(out.subarray(4, data.length + 8)), data.length + 8)
  return out
}

// decode decodes a PNG with 8 bits per channel that is not interlaced.
function decode(png) {
  const parts = []
  let width, height, channels
  for (let at = 8; at < png.length; ) {
    const size = png.readUInt32BE(at)
    const type = png.toString('latin1', at + 4, at + 8)
    const data = png.subarray(at + 8, at + 8 + size)
    if (type === 'IHDR') {
      ;[width, height] = [data.readUInt32BE(0), data.readUInt32BE(4)]
      channels = { 2: 3, 6: 4 }[data[9]]
      if (data[8] !== 8 || !channels || data[12]) throw new Error('unsupported PNG')
    } else if (type === 'IDAT') parts.push(data)
    at += size + 12
  }
  const raw = inflateSync(Buffer.concat(parts))
  const stride = width * channels
  const pixels = new Uint32Array(width * height)
  let above = new Uint8Array(stride)
  for (let y = 0; y < height; y++) {
    const row = unfilter(raw.subarray(y * (stride + 1), (y + 1) * (stride + 1)), above, channels)
    for (let x = 0; x < width; x++) pixels[y * width + x] = (row[x * channels] << 16) | (row[x * channels + 1] << 8) | row[x * channels + 2]
    above = row
  }
  return { width, height, pixels }
}

function unfilter(line, above, channels) {
  const out = new Uint8Array(line.length - 1)
  for (let i = 0; i < out.length; i++) {
    const [a, b, c] = i >= channels ? [out[i - channels], above[i], above[i - channels]] : [0, above[i], 0]
    out[i] = line[i + 1] + [0, a, b, (a + b) >> 1, paeth(a, b, c)][line[0]]
  }
  return out
}

function paeth(a, b, c) {
  const [pa, pb, pc] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)]
  return pa <= pb && pa <= pc ? a : pb <= pc ? b : c
}

// paletteOf returns the most frequent colors, without those that look the same as another.
function paletteOf(pixels) {
  const counts = new Map()
  for (const c of pixels) counts.set(c, (counts.get(c) || 0) + 1)
  const out = []
  for (const [c] of [...counts].sort((a, b) => b[1] - a[1])) {
    if (out.length === maxColors) break
    if (out.length < 16 || distance(out[nearest(out, c)], c) > 24) out.push(c)
  }
  return out
}

function nearest(palette, c) {
  let best = 0
  for (let i = 1; i < palette.length; i++) if (distance(palette[i], c) < distance(palette[best], c)) best = i
  return best
}

function distance(a, b) {
  const d = (shift) => ((a >> shift) & 255) - ((b >> shift) & 255)
  return d(16) ** 2 + d(8) ** 2 + d(0) ** 2
}
